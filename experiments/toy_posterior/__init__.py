"""Toy posterior: what symmetries make of the weights of the smallest network that has them."""
