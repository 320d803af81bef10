"""Datasets as checked in-memory arrays."""

from symbnn.data.base import DataError, Dataset, Split, Statistics, normalise, statistics
from symbnn.data.folders import ImageFolder, image_folder
from symbnn.data.load import describe, known, load

__all__ = [
    "DataError",
    "Dataset",
    "ImageFolder",
    "Split",
    "Statistics",
    "describe",
    "image_folder",
    "known",
    "load",
    "normalise",
    "statistics",
]
