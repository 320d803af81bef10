"""`python -m experiments.widths [config]`: the command."""

from experiments.harness import cli

cli.main("widths")
