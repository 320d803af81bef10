"""Things one can sample from."""
