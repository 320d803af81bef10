"""Rotations: language models trained apart, matched by more and more symmetries; the line between them."""
