"""Likelihood and prior make a target."""
