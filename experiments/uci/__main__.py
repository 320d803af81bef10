"""`python -m experiments.uci [config]`: the command."""

from experiments.harness import cli

cli.main("uci")
