"""A network of any library goes in; a `Model`, pure functions on a tree of arrays, comes out."""
