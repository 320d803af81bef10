"""Scaling symmetry: how far training with weight decay stays above the least mass, and why."""
