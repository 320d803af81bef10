"""What the tests of several studies need."""

from typing import Any

import numpy as np

import configs
from symbnn import data
from symbnn.inference.training import epochs


def debug_config(study: str) -> Any:
    """The config of a study that runs in seconds."""
    return configs.STUDIES[study].configs["debug"][1]


def full_size(*_, **__) -> data.Dataset:
    """As large as MNIST, without its files."""

    def blank(num: int) -> data.Split:
        return data.Split(np.zeros((num, 28, 28, 1), np.float32), np.zeros(num, np.int32))

    train, test = blank(60_000), blank(10_000)
    return data.Dataset("mnist", train, test, 10, (28, 28, 1))


def stop_before_training(monkeypatch) -> None:
    """Programs are built at full size up to the first compiled chunk of epochs, which is not run."""

    def build_and_stop(*arguments):
        assert "dot_general" in str(program.trace(*arguments).jaxpr)
        raise KeyboardInterrupt

    program = epochs._scan
    monkeypatch.setattr(epochs, "_scan", build_and_stop)
