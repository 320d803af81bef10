"""Discovery: a network's program goes in, its `SymmetrySpec` comes out."""
