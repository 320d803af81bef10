"""`symbnn convert`: weights of PyTorch to symbnn's, and back."""

import argparse

from symbnn.command.networks import Kind, kind_of_output, layers_of, model_of, read_weights, write_weights


def run(arguments: argparse.Namespace) -> None:
    """Read, write, and say what was done."""
    model, layers = model_of(arguments), layers_of(arguments)
    found = read_weights(arguments.source, model, layers)
    if len(found.networks) > 1:
        raise ValueError(
            f"{arguments.source} holds {found.words}; one can be converted: merge them first, or save one"
        )
    # A .safetensors file may be of either: then it is what the source is not.
    other: Kind = "symbnn" if found.kind == "torch" else "torch"
    kind = kind_of_output(arguments.destination, [arguments.source], arguments.to, other)
    print(f"{arguments.source}: {found.words}")
    written = write_weights(
        arguments.destination, model, found.networks[0], kind, layers=layers, like=arguments.like
    )
    print(written)
