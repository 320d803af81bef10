"""`python -m experiments.toy_posterior [config]`: the command."""

from experiments.harness import cli

cli.main("toy_posterior")
