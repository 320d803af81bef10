"""Making samples: factory(**settings) -> (key, target) -> Fit."""
