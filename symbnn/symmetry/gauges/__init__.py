"""Gauges: a network goes in, the representative of its orbit comes out."""
