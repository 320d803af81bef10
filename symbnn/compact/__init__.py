"""Compact posteriors: simple laws fitted to aligned samples."""
