"""`python -m experiments.model_zoo [config]`: the command."""

from experiments.harness import cli

cli.main("model_zoo")
