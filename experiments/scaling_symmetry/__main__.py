"""`python -m experiments.scaling_symmetry [config]`: the command."""

from experiments.harness import cli

cli.main("scaling_symmetry")
