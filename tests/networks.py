"""Small networks with specs written by hand, shared by the tests of alignment and gauges."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from symbnn import symmetry


def mlp_params(sizes, key, *, bias=True, spread=0.0, dtype=jnp.float32):
    """Weights N(0, 2/fan-in), biases N(0, 0.1²); incoming weights times exp(spread · N(0, 1)) per unit."""
    params = {}
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        keys = jax.random.split(jax.random.fold_in(key, layer), 3)
        scale = jnp.exp(spread * jax.random.normal(keys[2], (fan_out,), dtype))
        kernel = jax.random.normal(keys[0], (fan_in, fan_out), dtype) * np.sqrt(2 / fan_in) * scale
        params[layer_name(layer, sizes)] = {"kernel": kernel}
        if bias:
            params[layer_name(layer, sizes)]["bias"] = 0.1 * jax.random.normal(keys[1], (fan_out,), dtype)
    return params


def layer_name(layer, sizes):
    return "out" if layer == len(sizes) - 2 else f"hidden{layer}"


def mlp_spec(sizes, params, *, scales=False, signs=False):
    """Groups h0, h1, ...; scales for ReLU, signs for tanh."""
    axes, scale_marks, sign_marks = {}, {}, {}
    last = len(sizes) - 2
    for layer in range(last + 1):
        name = layer_name(layer, sizes)
        before, after = (f"h{layer - 1}" if layer else None), (f"h{layer}" if layer < last else None)
        axes[f"{name}/kernel"] = (before, after)
        scale_marks[f"{name}/kernel"] = (before and "-", after and "+")
        sign_marks[f"{name}/kernel"] = (before and "±", after and "±")
        if "bias" in params[name]:
            axes[f"{name}/bias"] = (after,)
            scale_marks[f"{name}/bias"] = (after and "+",)
            sign_marks[f"{name}/bias"] = (after and "±",)
    return symmetry.from_axes(
        axes, params, scales=scale_marks if scales else None, signs=sign_marks if signs else None
    )


def mlp_apply(params, inputs, activation=jax.nn.relu):
    names = sorted(name for name in params if name != "out")
    for name in names:
        inputs = activation(inputs @ params[name]["kernel"] + params[name].get("bias", 0.0))
    return inputs @ params["out"]["kernel"] + params["out"].get("bias", 0.0)


def noisy_copies(spec, params, key, num, noise=0.3, *, flipped=False):
    """Copies with noise relative to every leaf, each relabelled, or also flipped, at random; the elements."""

    def one(key):
        key_noise, key_element = jax.random.split(key)
        leaves, treedef = jax.tree.flatten(params)
        noisy = [
            leaf + noise * jnp.std(leaf) * jax.random.normal(jax.random.fold_in(key_noise, i), leaf.shape)
            for i, leaf in enumerate(leaves)
        ]
        element = symmetry.random_element(spec, key_element)
        none = symmetry.identity(spec)
        element = element._replace(scales=none.scales, signs=element.signs if flipped else none.signs)
        return symmetry.act(spec, element, jax.tree.unflatten(treedef, noisy)), element

    return jax.jit(jax.vmap(one))(jax.random.split(key, num))
