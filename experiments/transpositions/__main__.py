"""`python -m experiments.transpositions [config]`: the command."""

from experiments.harness import cli

cli.main("transpositions")
