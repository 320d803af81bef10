"""The description of a symmetry group: a network's leaves go in, a hashable `SymmetrySpec` comes out."""
