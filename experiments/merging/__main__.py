"""`python -m experiments.merging [config]`: the command."""

from experiments.harness import cli

cli.main("merging")
