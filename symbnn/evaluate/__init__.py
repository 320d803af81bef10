"""Judging samples: jitted, arrays in, scalars out."""
