"""Names of sites and variables as nested dicts, so that a network among them is the tree it was.

NumPyro's `random_flax_module("nn", ...)` calls its sites `nn/Dense_0.kernel`: the name of the module, a
slash, and the path of the weight with dots. Nested, `samples["nn"]` is what the Flax module takes. So a slash
always separates, and a dot does after a slash; in a name without a slash it is a letter like any other.
"""

from collections.abc import Mapping
from typing import Any

import jax

from symbnn import tree


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by name as nested dicts; `ValueError` if one name is both an array and the start of another."""
    return tree.nested({_path(name): leaf for name, leaf in leaves.items()})


def renamed(samples: Any) -> Any:
    """A tree of dicts nested by the names of its leaves; any other tree as it is."""
    paths = jax.tree_util.tree_leaves_with_path(samples)
    if not all(path and isinstance(key, jax.tree_util.DictKey) for path, _ in paths for key in path):
        return samples
    return nested({tree.path_name(path): leaf for path, leaf in paths})


def _path(name: str) -> str:
    first, slash, rest = name.partition("/")
    return first + slash + rest.replace(".", "/")
