"""Bayesian neural networks with weight-space symmetry removed."""
