"""What is run to see the library's programs: a table of names, filled by the modules beside this one."""

from collections.abc import Callable
from typing import NamedTuple

Run = Callable[[], object]


class Case(NamedTuple):
    """Calls of the public interface on small shapes."""

    run: Run
    is_dry: bool
    """Traced only. Not where the host decides from numbers what to call next."""
    is_mapped: bool
    """The library itself lays it over devices: run once with one and once with eight."""


CASES: dict[str, Case] = {}


def case(name: str, *, is_dry: bool = True, is_mapped: bool = False) -> Callable[[Run], Run]:
    """Add a function to the table."""

    def add(run: Run) -> Run:
        CASES[name] = Case(run, is_dry, is_mapped)
        return run

    return add
