"""`python -m experiments.compact_posterior [config]`: the command."""

from experiments.harness import cli

cli.main("compact_posterior")
