"""What units are compared by: networks go in, features and similarities of their units come out."""

from symbnn.symmetry.alignment.features.capture import Apply, activation_features
from symbnn.symmetry.alignment.features.signs import (
    Parity,
    best_signs,
    character,
    element_of,
    parity,
    sign_key,
    unflipped,
    with_signs,
    without_signs,
)
from symbnn.symmetry.alignment.features.similarity import Activations, correlation, hooked_features
from symbnn.symmetry.alignment.features.weights import ACTIVATION, Arrays, Features, in_units, weight_features

__all__ = [
    "ACTIVATION",
    "Activations",
    "Apply",
    "Arrays",
    "Features",
    "Parity",
    "activation_features",
    "best_signs",
    "character",
    "correlation",
    "element_of",
    "hooked_features",
    "in_units",
    "parity",
    "sign_key",
    "unflipped",
    "weight_features",
    "with_signs",
    "without_signs",
]
