"""Aligned diagnostics: what R-hat of weights says before and after alignment, on chains that mix slowly."""
