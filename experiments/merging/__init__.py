"""Merging: trained networks made one without training, step by step: aligned, averaged, corrected, fitted."""
