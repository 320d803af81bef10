"""`python -m experiments.rate_distortion [config]`: the command."""

from experiments.harness import cli

cli.main("rate_distortion")
