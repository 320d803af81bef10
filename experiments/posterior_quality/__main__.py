"""`python -m experiments.posterior_quality [config]`: the command."""

from experiments.harness import cli

cli.main("posterior_quality")
