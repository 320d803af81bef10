"""Corrections of a network whose weights were averaged, at the places that its own program shows."""
