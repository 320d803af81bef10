"""`python -m experiments.diversity [config]`: the command."""

from experiments.harness import cli

cli.main("diversity")
