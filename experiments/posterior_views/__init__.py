"""A posterior in pictures: independently trained networks before and after symmetry removal."""
