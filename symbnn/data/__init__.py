"""Datasets as checked in-memory arrays."""

from symbnn.data.base import DataError, Dataset, Split
from symbnn.data.load import load

__all__ = ["DataError", "Dataset", "Split", "load"]
