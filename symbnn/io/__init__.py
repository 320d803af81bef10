"""Keeping things: atomic, checked artefacts; never pickle."""
