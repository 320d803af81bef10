"""The command line of every study: `python -m experiments.<study> <config> [--overrides] [--rundir DIR]`.

Whatever goes wrong answers with one line (what, expected, got, what to do) and a non-zero exit code;
`--debug` shows the traceback.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tyro

import configs
from experiments.harness.compiled import keep_programs
from experiments.harness.cores import use_all_cores
from symbnn import names

USAGE_ERROR, FAILURE, INTERRUPTED = 2, 1, 130


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """What every run may be told besides its config."""

    rundir: str | None = None
    """Folder of the run; runs/<study>/<config> by default."""
    fresh: bool = False
    """Start over instead of reusing finished stages."""


def main(study: str, arguments: Sequence[str] | None = None) -> None:
    """Run one study from the command line."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    try:
        sys.exit(_run(study, [argument for argument in arguments if argument != "--debug"]))
    except KeyboardInterrupt:
        _say("interrupted; finished stages are kept, the same command goes on where it stopped")
        sys.exit(INTERRUPTED)
    except (ValueError, OSError) as error:
        if debug:
            raise
        _say(f"error: {' '.join(str(error).split())}")
        sys.exit(FAILURE)


def list_studies() -> str:
    """Studies and configs, one line each."""
    lines = ["usage: python -m experiments.<study> <config> [--overrides] [--rundir DIR] [--fresh]", ""]
    for study, found in configs.STUDIES.items():
        lines += [f"{study}: {found.summary}", *_config_lines(found.configs)]
    return "\n".join(lines)


def _run(study: str, arguments: list[str]) -> int:
    known = configs.STUDIES[study].configs
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview(study))
        return 0 if arguments else USAGE_ERROR
    name, options = arguments[0], arguments[1:]
    if name not in known:
        _say(f"error: unknown config {name!r} of {study}; {names.nearest(name, known)}")
        return USAGE_ERROR
    _check_options(study, known[name][1], options)
    parsed = _parse(study, name, options)
    if parsed is None:
        return USAGE_ERROR
    configs.check(parsed.config)
    directory = Path(parsed.rundir) if parsed.rundir else _default_directory(study, name, parsed.config)
    if "jax" not in sys.modules:  # Once it runs, its devices stay what they are.
        use_all_cores(os.environ)
        keep_programs(os.environ)
    # Imported only now: JAX takes seconds, and neither help nor a typo should.
    module = importlib.import_module(f"experiments.{study}.study")
    if parsed.fresh:
        importlib.import_module("experiments.harness.rundir").clear(directory)
    module.run(parsed.config, directory)
    return 0


def _overview(study: str) -> str:
    summary, known, _ = configs.STUDIES[study]
    return "\n".join(
        [
            f"usage: python -m experiments.{study} <config> [--overrides] [--rundir DIR] [--fresh] [--debug]",
            *("", summary, "", *_config_lines(known), ""),
            f"python -m experiments.{study} <config> --help lists the overrides",
        ]
    )


def _config_lines(known: dict[str, tuple[str, Any]]) -> list[str]:
    return [f"  {name:<12} {summary}" for name, (summary, _) in known.items()]


class _Command(NamedTuple):
    config: Any
    rundir: str | None
    fresh: bool


def _parse(study: str, name: str, options: list[str]) -> _Command | None:
    """The config with its overrides and the run's own options; None after a usage error was told."""
    summary, default = configs.STUDIES[study].configs[name]
    fields = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    extended = dataclasses.make_dataclass("Options", [], bases=(RunOptions, type(default)), frozen=True)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            parsed = tyro.cli(
                extended,
                args=options,
                prog=f"python -m experiments.{study} {name}",
                description=summary,
                default=extended(**fields),
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if stop.code == 0:
            raise
        _say(f"error: {_unboxed(errors.getvalue())}; python -m experiments.{study} {name} --help lists all")
        return None
    config = type(default)(**{field: getattr(parsed, field) for field in fields})
    return _Command(config, parsed.rundir, parsed.fresh)


def _check_options(study: str, config: Any, options: list[str]) -> None:
    """`ValueError` for what the study refuses, and for settings that are replaced by what the user brings."""
    given = {option.partition("=")[0].removeprefix("--").replace("_", "-") for option in options}
    for name, why in configs.STUDIES[study].refuses.items():
        if name in given:
            raise ValueError(f"--{name} does not apply to {study}: {why}")
    for name, field, _ in configs.walk(config):
        without = sorted(given & set(field.metadata.get("instead_of", ()))) if name in given else []
        if without:
            raise ValueError(f"--{without[0]} has no effect beside --{name}, which takes its place; give one")


def _default_directory(study: str, name: str, config: Any) -> Path:
    """runs/<study>/<config>, with a mark of the overrides if there are any: other settings, other folder."""
    base = Path("runs") / study
    if config == configs.STUDIES[study].configs[name][1]:
        return base / name
    text = json.dumps(dataclasses.asdict(config), sort_keys=True)
    return base / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _unboxed(text: str) -> str:
    """The first sentence of tyro's boxed message, and the option that it thinks was meant."""
    sections: list[list[str]] = [[]]
    for line in text.splitlines():
        words = line.strip("│╰╯ ").strip()
        if not words or set(words) <= set("─-"):
            sections.append([])
        elif "╭" not in line:
            sections[-1].append(words)
    filled = [section for section in sections if section]
    # Where the terminal has no box characters, the title is a section of its own.
    filled = filled if "╭" in text else filled[1:]
    message = " ".join(filled[0]) if filled else text.strip()
    hints = [section[1].split()[0] for section in filled if section[0].startswith("Perhaps") and section[1:]]
    return message.rstrip(".") + (f"; did you mean {hints[0]}?" if hints else "")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
