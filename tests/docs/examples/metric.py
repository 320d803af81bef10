"""A metric: how often the label is one of the two most probable classes; scikit-learn as its oracle."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import top_k_accuracy_score

from symbnn.evaluate.checks import checked, labels, probabilities


@checked(probabilities, labels)
@jax.jit
def top_two(probs, labels):
    """Share of inputs whose label is one of the two most probable classes."""
    best = jax.lax.top_k(probs, 2)[1]
    return jnp.mean(jnp.any(best == labels[:, None], axis=1), dtype=jnp.float32)


random = np.random.default_rng(0)
probs = random.dirichlet(np.ones(4), size=50).astype(np.float32)
given = random.integers(4, size=50).astype(np.int32)
oracle = top_k_accuracy_score(given, probs, k=2, labels=np.arange(4))
np.testing.assert_allclose(top_two(jnp.asarray(probs), jnp.asarray(given)), oracle, atol=1e-6)
