"""Packages that not every user has: imported where they are used, asked for by the name of their extra."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Imports within this context belong to the extra `name`; `what` needs them and says how to get them."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise ModuleNotFoundError(
            f'{what} needs {package}; install it with: pip install "symbnn[{name}]"', name=error.name
        ) from error
