"""`python -m experiments.pruning [config]`: the command."""

from experiments.harness import cli

cli.main("pruning")
