"""Frozen settings of the studies, by name."""
