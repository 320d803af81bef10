"""`python -m experiments.loss_barriers [config]`: the command."""

from experiments.harness import cli

cli.main("loss_barriers")
