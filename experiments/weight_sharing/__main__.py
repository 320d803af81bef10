"""`python -m experiments.weight_sharing [config]`: the command."""

from experiments.harness import cli

cli.main("weight_sharing")
