"""What a posterior is: something one can sample networks from.

Posteriors are frozen dataclasses registered as pytrees. The constructor checks shapes; JAX rebuilds them
without the check, because inside a transformation leaves may be placeholders or carry a stacked axis
(the components of a mixture are one posterior whose leaves are stacked).
"""

import dataclasses
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
from jaxtyping import Array, Float

from symbnn.types import Key, Params, Samples

Class = TypeVar("Class", bound=type)


@runtime_checkable
class Posterior(Protocol):
    """A law over the weights of one network."""

    def sample(self, key: Key, num: int) -> Samples:
        """`num` networks, stacked."""
        ...

    def log_prob(self, params: Params) -> Float[Array, ""]:
        """Log-density of one network; log-mass where the law is discrete."""
        ...


@runtime_checkable
class Gaussian(Protocol):
    """A Gaussian law: w = mean + R z with independent unit normals z, so R Rᵀ is the covariance."""

    @property
    def mean(self) -> Params:
        """The mean network."""
        ...

    def loadings(self, direction: Params) -> Any:
        """Rᵀ direction, as a tree: what directionᵀ (w - mean) loads on each of the normals z.

        Inner products of loadings are covariances: of directionᵀ w and otherᵀ w, the sum over all numbers of
        loadings(direction) · loadings(other).
        """
        ...


def register(*, static: tuple[str, ...] = ()) -> Any:
    """Class decorator: a frozen dataclass becomes a pytree; the fields in `static` are not traced."""

    def decorate(cls: Class) -> Class:
        names = tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]
        traced = tuple(name for name in names if name not in static)

        def flatten(posterior: Any) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, ...]]:
            children = tuple((jax.tree_util.GetAttrKey(name), getattr(posterior, name)) for name in traced)
            return children, tuple(getattr(posterior, name) for name in static)

        def unflatten(values: Any, children: Any) -> Any:
            posterior: Any = object.__new__(cls)
            for name, value in zip((*traced, *static), (*children, *values), strict=True):
                object.__setattr__(posterior, name, value)
            return posterior

        jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
        return cls

    return decorate


def check_num(num: int) -> None:
    """`ValueError` unless `num` is a number of draws."""
    if num < 1:
        raise ValueError(f"num must be a positive number of draws; got {num}")
