"""How much the members of a posterior sample disagree, for `(members, inputs, classes)` probabilities.

    mutual information = H(mean_m p_m) - mean_m H(p_m)            in nats, not negative
    disagreement       = 1 - sum_c n_c (n_c - 1) / (M (M - 1))    share of pairs with different argmax

each averaged over inputs; `mutual_information_score` is the first input by input.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from symbnn.evaluate.checks import checked, member_probabilities


@checked(member_probabilities)
@jax.jit
def mutual_information_score(member_probs: Float[Array, "members n c"]) -> Float[Array, " n"]:
    """Mutual information of prediction and member at each input: what the members disagree about."""
    mean = jnp.mean(member_probs, axis=0)
    entropy_of_mean = -jnp.sum(xlogy(mean, mean), axis=-1)
    mean_entropy = -jnp.mean(jnp.sum(xlogy(member_probs, member_probs), axis=-1), axis=0)
    # Equal members give zero; rounding may give less.
    return jnp.maximum(entropy_of_mean - mean_entropy, 0.0)


@checked(member_probabilities)
@jax.jit
def mutual_information(member_probs: Float[Array, "members n c"]) -> Float[Array, ""]:
    """Mean mutual information of prediction and member."""
    return jnp.mean(mutual_information_score(member_probs))


@checked(member_probabilities)
@jax.jit
def disagreement(member_probs: Float[Array, "members n c"]) -> Float[Array, ""]:
    """Share of the pairs of members that predict different classes."""
    members = member_probs.shape[0]
    if members < 2:
        raise ValueError(f"member_probs: expected at least two members to disagree, got {members}")
    classes, rows = jnp.argmax(member_probs, axis=-1), jnp.arange(member_probs.shape[1])
    # Counted without a one-hot array of all members.
    votes = jnp.zeros(member_probs.shape[1:], jnp.float32).at[rows[None], classes].add(1.0)
    same = jnp.sum(votes * (votes - 1.0), axis=-1) / (members * (members - 1))
    return 1.0 - jnp.mean(same)
