"""Loss barriers: two networks from different seeds, the line between them, with and without alignment."""
