"""Transpositions: how far apart two networks are as permutations, before and after training."""
