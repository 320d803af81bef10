"""What units are compared by: networks go in, features and similarities of their units come out."""

from symbnn.symmetry.alignment.features.capture import Apply, activation_features
from symbnn.symmetry.alignment.features.signs import element_of, without_signs
from symbnn.symmetry.alignment.features.similarity import Activations, correlation, hooked_features
from symbnn.symmetry.alignment.features.weights import Arrays, Features, in_units, weight_features

__all__ = [
    "Activations",
    "Apply",
    "Arrays",
    "Features",
    "activation_features",
    "correlation",
    "element_of",
    "hooked_features",
    "in_units",
    "weight_features",
    "without_signs",
]
