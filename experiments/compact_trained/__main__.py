"""`python -m experiments.compact_trained [config]`: the command."""

from experiments.harness import cli

cli.main("compact_trained")
