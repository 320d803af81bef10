"""Language models trained apart, and the line between them: matched by labels, by matrices, by rotations.

`python -m experiments.rotations shakespeare` takes half an hour on a busy machine and reads
`text/shakespeare.txt` in the data folder. Expect copies of one network to become one, and the loss of the
midpoint of two networks to fall once the stream is rotated; the matrices of heads alone do not lower it.
"""

from dataclasses import dataclass
from typing import Literal

from configs.fields import bounded
from configs.parts import Descent, Seeded


@dataclass(frozen=True)
class Texts:
    """The text, by characters."""

    name: Literal["text/shakespeare", "text/numbers"] = "text/shakespeare"
    """text/shakespeare, from the data folder, or text/numbers, bundled."""
    directory: str | None = None
    """Folder that holds `text/shakespeare.txt`; else SYMBNN_DATA_DIR."""
    length: int = bounded(64, 2, 100_000)
    """Characters of a sequence."""
    num_train: int | None = bounded(None, 2, 10_000_000)
    """Training sequences, drawn by seed; all by default."""
    num_test: int | None = bounded(None, 2, 10_000_000)
    """Test sequences, drawn by seed; all by default."""


@dataclass(frozen=True)
class LanguageModel:
    """A small GPT: RMSNorm before every layer, no biases."""

    dimension: int = bounded(32, 2, 100_000)
    """Of the residual stream; a multiple of the heads."""
    depth: int = bounded(2, 1, 1_000)
    """Blocks."""
    num_heads: int = bounded(4, 1, 1_000)
    """Of every attention."""
    mlp_units: int = bounded(128, 1, 1_000_000)
    """Hidden units of every block."""


@dataclass(frozen=True)
class Rotations(Seeded):
    """Pairs of language models from different seeds, judged along the line between them."""

    data: Texts = Texts()
    model: LanguageModel = LanguageModel()
    training: Descent = Descent(num_epochs=4, batch_size=32, learning_rate=3e-3)
    num_pairs: int = bounded(5, 1, 10_000)
    """Pairs of networks."""
    members_per_block: int = bounded(2, 1, 10_000)
    """Networks trained at once."""
    num_points: int = bounded(11, 3, 10_001)
    """Points on the line, ends included; an odd number has the midpoint among them."""
    num_judged: int = bounded(500, 1, 10_000_000)
    """Test sequences that losses are measured on, at most."""
    num_copies: int = bounded(8, 2, 10_000)
    """Copies of a network, moved by random symmetries, whose mean is the control."""


REFUSES = {
    "data.npz": "its networks predict the next character of a text",
    "model.factory": "it is about the heads and the residual stream of a language model",
}

CONFIGS = {
    "shakespeare": (
        "plays by characters, five pairs of width 32: half an hour on a busy machine",
        Rotations(),
    ),
    "debug": (
        "numbers in words, two pairs of width 8: two minutes, nearly all of it the compiler",
        Rotations(
            data=Texts(name="text/numbers", length=16, num_train=200, num_test=50),
            model=LanguageModel(dimension=8, depth=1, num_heads=2, mlp_units=12),
            training=Descent(num_epochs=4, batch_size=20, learning_rate=1e-2),
            num_pairs=2,
            members_per_block=4,
            num_points=5,
            num_copies=3,
        ),
    ),
}
