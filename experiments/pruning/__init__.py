"""Pruning: which weights can be set to zero, ranked by standard deviations of posteriors and otherwise."""
