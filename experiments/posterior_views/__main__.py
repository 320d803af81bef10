"""`python -m experiments.posterior_views [config]`: the command."""

from experiments.harness import cli

cli.main("posterior_views")
