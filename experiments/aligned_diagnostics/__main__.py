"""`python -m experiments.aligned_diagnostics [config]`: the command."""

from experiments.harness import cli

cli.main("aligned_diagnostics")
