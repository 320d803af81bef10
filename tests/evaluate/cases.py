"""Predictions that every metric of classes is tried on."""

import numpy as np

from symbnn.evaluate.calibration import bin_edges


def random_case(seed, inputs, classes, sharpness=2.0):
    random = np.random.default_rng(seed)
    logits = sharpness * random.normal(size=(inputs, classes))
    probs = np.exp(logits - logits.max(1, keepdims=True))
    probs = (probs / probs.sum(1, keepdims=True)).astype(np.float32)
    return probs, random.integers(0, classes, inputs).astype(np.int32)


def edge_case():
    """Confidences on bin edges, exactly 1, exactly tied; a class that is absent; exact zeros."""
    top = np.concatenate([bin_edges(15)[8:], np.full(6, 0.75), bin_edges(15)[9:]]).astype(np.float32)
    probs = np.stack([top, 1 - top, np.zeros_like(top)], axis=1)
    return probs, (np.arange(len(top)) % 3 == 0).astype(np.int32)


CASES = {
    "random": random_case(0, 400, 10),
    "edges": edge_case(),
    "one input": random_case(1, 1, 4),
    "two classes": random_case(2, 100, 2),
    "thousand classes": random_case(3, 300, 1000, sharpness=4.0),
}


def top(probs, labels):
    return probs.max(1), (probs.argmax(1) == labels).astype(np.float64)
