"""Chains: a kernel and its tuning go in; draws, on whatever devices, kept and resumed, come out."""
