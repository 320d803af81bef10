"""Ensembles at several widths: what alignment makes of their mean, their spread and their barriers."""
