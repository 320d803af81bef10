"""`python -m experiments.rotations [config]`: the command."""

from experiments.harness import cli

cli.main("rotations")
