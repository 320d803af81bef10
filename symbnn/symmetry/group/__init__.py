"""The group itself: elements go in, moved networks, counts of swaps and proofs of invariance come out."""
