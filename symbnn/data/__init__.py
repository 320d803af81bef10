"""Datasets as checked in-memory arrays."""
