"""The command `symbnn`: arguments go in, lines come out. An error is one line; help starts no JAX."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from symbnn import __version__, names

FAILURE, USAGE_ERROR, INTERRUPTED = 1, 2, 130
LONGEST = 600
"""Letters of an error; lists of hundreds of leaves are cut."""
MODEL = "a function of yours, module:function, in a file of this folder; or one of symbnn.models, as resnet18"
WEIGHTS = (
    "of PyTorch (.pt, .pth, .th, .bin, .safetensors), of symbnn (a network, a posterior, a stage), or .npz"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code.

    Args:
        arguments: Those behind the command's name; by default the process's own.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    parsed = _parse([argument for argument in given if argument != "--debug"])
    # A console script does not look for modules where the user is.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        importlib.import_module(f"symbnn.command.{parsed.command}").run(parsed)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough; nothing is left to flush at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if debug:
            raise
        is_expected = isinstance(error, ValueError | OSError | ImportError)
        kind = "" if is_expected else f"{type(error).__name__}, which nobody expected (--debug shows where): "
        _say(f"symbnn {parsed.command}", f"{kind}{error}")
        return USAGE_ERROR if is_expected else FAILURE
    return 0


class _Parser(argparse.ArgumentParser):
    """Whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end."""
        _say(self.prog, f"{message}; {self.prog} --help says more")
        sys.exit(USAGE_ERROR)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="symbnn",
        description="Bayesian neural networks with weight-space symmetry removed.",
        epilog="symbnn COMMAND --help says what a command takes; --debug shows the place of an error.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"symbnn {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("studies", help="the studies of the repository, one line each")
    inspect = _command(commands, "inspect", "symmetries of a network, checked on its weights")
    inspect.add_argument("weights", metavar="WEIGHTS", help=f"file {WEIGHTS}")
    inspect.add_argument(
        "--complete", action="store_true", help="measure whether symmetries are missing (small networks)"
    )
    merge = _command(commands, "merge", "several trained networks made one")
    merge.add_argument("weights", nargs="+", metavar="WEIGHTS", help=f"files {WEIGHTS}")
    merge.add_argument("--out", required=True, metavar="FILE", help="where the merged network is written")
    merge.add_argument(
        "--inputs",
        metavar="NPZ",
        help="its `inputs` are what units are compared on; with `targets`, judged",
    )
    merge.add_argument("--method", default="auto", help="how units are matched: auto, weights or activations")
    convert = _command(commands, "convert", "weights of PyTorch to those of symbnn, and back")
    convert.add_argument("source", metavar="IN", help=f"file {WEIGHTS}")
    convert.add_argument("destination", metavar="OUT", help="file to write")
    for writer in (merge, convert):
        writer.add_argument(
            "--to", choices=("symbnn", "torch", "npz"), help="what is written; by default told by the suffix"
        )
        writer.add_argument("--like", metavar="FILE", help="PyTorch's weights with the names that are wanted")
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen = commands.choices[parsed.command]
        options = [word for action in chosen._actions for word in action.option_strings]
        chosen.error(f"unknown argument {unknown[0]!r}; {names.nearest(unknown[0], options)}")
    return parsed


def _command(commands: Any, name: str, summary: str) -> argparse.ArgumentParser:
    """A command about a network."""
    description = f"{summary[0].upper()}{summary[1:]}."
    parser = commands.add_parser(name, help=summary, description=description, allow_abbrev=False)
    parser.add_argument("--model", required=True, metavar="MODEL", help=MODEL)
    parser.add_argument(
        "--input-shape", type=_sizes, metavar="32,32,3", help="of one input, if MODEL does not know it"
    )
    parser.add_argument("--outputs", type=int, metavar="10", help="their number, if MODEL does not know it")
    parser.add_argument("--hidden", type=_sizes, metavar="64,64", help="units of each hidden layer, of mlp")
    parser.add_argument("--width", type=float, metavar="0.5", help="factor of all channels, of residual nets")
    parser.add_argument("--activation", metavar="relu", help="of mlp and lenet")
    parser.add_argument(
        "--layers",
        type=_pairs,
        metavar="hidden=fc1,out=fc2",
        help="our layers = PyTorch's, where they cannot be matched by name and shape",
    )
    return parser


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of sizes, as 32,32,3")
    return sizes


def _pairs(text: str) -> dict[str, str]:
    pairs = [part.split("=") for part in text.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of pairs, as hidden=fc1,out=fc2")
    return {ours.strip(): theirs.strip() for ours, theirs in pairs}


def _say(prog: str, message: str) -> None:
    text = " ".join(message.split())
    print(f"{prog}: error: {text if len(text) <= LONGEST else text[:LONGEST] + ' ...'}", file=sys.stderr)


__all__ = ["main"]
