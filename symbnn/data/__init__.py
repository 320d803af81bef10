"""Datasets as checked arrays, in memory or streamed."""

from symbnn.data.base import DataError, Dataset, Split, Statistics, normalise, statistics
from symbnn.data.folders import ImageFolder, image_folder
from symbnn.data.load import describe, known, load
from symbnn.data.npz import from_npz
from symbnn.data.streamed import Streamed

__all__ = [
    "DataError",
    "Dataset",
    "ImageFolder",
    "Split",
    "Statistics",
    "Streamed",
    "describe",
    "from_npz",
    "image_folder",
    "known",
    "load",
    "normalise",
    "statistics",
]
