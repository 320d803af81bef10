"""Weights of PyTorch: files and state dicts go in, parameters come out, and back. PyTorch is not needed."""

from symbnn.io.pytorch.families import LayerMap, torch_layers
from symbnn.io.pytorch.files import load_safetensors, load_torch
from symbnn.io.pytorch.matching import is_counter
from symbnn.io.pytorch.weights import from_torch, to_torch
from symbnn.io.pytorch.write import save_safetensors, save_torch

__all__ = [
    "LayerMap",
    "from_torch",
    "is_counter",
    "load_safetensors",
    "load_torch",
    "save_safetensors",
    "save_torch",
    "to_torch",
    "torch_layers",
]
