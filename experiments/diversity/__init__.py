"""Diversity: how much independently trained networks differ, and whether samples treat units alike."""
