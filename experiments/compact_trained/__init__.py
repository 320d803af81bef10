"""Ensemble and VI of the compact posterior at full size: accuracies beside the published ones."""
