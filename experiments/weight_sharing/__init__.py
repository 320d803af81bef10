"""Stochastic weight sharing (2DGBNN): most weights of a network drawn from a few shared Gaussians."""
