"""Operations of every compiled program that a call of the library runs, as often as it runs them.

`python -m tests.bench.counted NUMBER` aligns so many ResNet-18s and prints what that took. In a process of
its own, because `jax.jit` must be replaced before symbnn is imported (`tests.accelerators.recorder`).
"""

import json
import sys
import time
from collections import Counter
from typing import Any

import jax

from tests.accelerators.recorder import Program, Recorder


class Counting(Recorder):
    """Counts calls; programs inside of others are counted with them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[Any] = Counter()

    def note(self, program: Program) -> None:
        """One more call of this function at these shapes."""
        if program.is_part:
            return
        like = (id(program.function), str((program.arguments, program.settings)))
        self.calls[like] += 1
        self.programs.setdefault(like, program)

    def operations(self) -> float:
        """Of all calls since the last `forget`, by XLA's own count; the body of a loop counts once."""
        return sum(number * _operations(self.programs[like]) for like, number in self.calls.items())

    def forget(self) -> None:
        """Count from zero."""
        self.calls.clear()


def _operations(program: Program) -> float:
    with jax.enable_x64(program.is_double):
        lowered = program.function.lower(*program.arguments, **program.settings)
    return float((lowered.cost_analysis() or {}).get("flops", 0.0))


def main(number: int) -> dict[str, float]:
    """Seconds and operations of a network that is aligned to another."""
    counting = Counting()
    counting.install()
    from symbnn import models, symmetry, tree

    model = models.resnet18((32, 32, 3), 10)
    networks = jax.vmap(model.init)(jax.random.split(jax.random.key(0), number + 1))
    reference, others = tree.take(networks, 0), tree.take(networks, slice(1, None))
    seconds = 0.0
    for _ in range(2):
        # The first time compiles.
        counting.forget()
        begun = time.perf_counter()
        jax.block_until_ready(symmetry.align(model.spec, others, reference=reference).samples)
        seconds = time.perf_counter() - begun
    return {
        "seconds": seconds / number,
        "operations": counting.operations() / number,
        "weights": float(tree.num_weights(reference)),
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
