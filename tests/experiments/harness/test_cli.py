"""The command line answers every mistake with one line, an exit code, and no traceback."""

import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

import configs
from experiments.harness import cli

ROOT = Path(__file__).parents[3]


def run_main(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main("compact_posterior", list(arguments))
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_every_study_and_config_is_listed():
    text = cli.list_studies()
    for study, (_, known, _) in configs.STUDIES.items():
        assert study in text
        assert all(re.search(rf"^  {name} ", text, re.MULTILINE) for name in known)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("digit",), "unknown config 'digit' of compact_posterior; did you mean 'digits'?"),
        (("digits", "--model.hiden", "3"), "did you mean --model.hidden?"),
        (("digits", "--seed", "many"), "invalid literal for int"),
        (("digits", "--model.activation", "rel"), "Expected one of"),
        (("digits", "--seed"), "Missing value"),
        (
            ("digits", "--inference.num-chains", "-3"),
            "--inference.num-chains must be between 1 and 4096, got -3",
        ),
        (("digits", "--inference.num-chains", "100000"), "between 1 and 4096, got 100000"),
        (("digits", "--model.hidden", "8", "0"), "--model.hidden must be between 1 and 1e+06, got 8 0"),
        (("debug", "--data.name", "digitz"), "did you mean 'digits'?"),
        (("debug", "--data.num-train", "5000"), "num_train"),
    ],
)
def test_a_mistake_is_one_line(capsys, tmp_path, arguments, message):
    code, _, errors = run_main(capsys, *arguments, "--rundir", str(tmp_path / "run"))
    assert code in (cli.USAGE_ERROR, cli.FAILURE)
    assert message in errors
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1


BROUGHT = ("data.npz", "model.factory")


@pytest.mark.parametrize("study", configs.STUDIES)
def test_every_study_takes_what_users_bring_or_says_why_not(study, capsys, tmp_path):
    config = configs.STUDIES[study].configs["debug"][1]
    known = {name for name, _, _ in configs.walk(config)}
    refused = configs.STUDIES[study].refuses
    assert known & set(BROUGHT) == set(BROUGHT) - set(refused)
    for name in refused:
        with pytest.raises(SystemExit) as stop:
            cli.main(study, ["debug", f"--{name}", "some", "--rundir", str(tmp_path / "run")])
        assert stop.value.code == cli.FAILURE
        message = capsys.readouterr().err
        assert message.startswith(f"error: --{name} does not apply to {study}: {refused[name]}")
        assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("study", "brought", "beside"),
    [
        ("compact_posterior", "--data.npz", "--data.name=digits"),
        ("compact_posterior", "--model.factory", "--model.hidden=8"),
        ("weight_sharing", "--model.factory", "--model.name=lenet"),
        ("model_zoo", "--model.factory", "--network=optunet"),
        ("diversity", "--model.factory", "--hidden=8"),
        ("posterior_quality", "--model.factory", "--network.width=2"),
    ],
)
def test_a_setting_that_would_have_no_effect_is_refused(study, brought, beside, capsys, tmp_path):
    with pytest.raises(SystemExit):
        cli.main(study, ["debug", brought, "own", beside, "--rundir", str(tmp_path / "run")])
    expected = f"error: {beside.partition('=')[0]} has no effect beside {brought}, which takes its place"
    assert capsys.readouterr().err.startswith(expected)


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'digits'"):
        cli.main(
            "compact_posterior",
            ["debug", "--data.name", "digitz", "--debug", "--rundir", str(tmp_path / "run")],
        )


def test_help_names_every_override(capsys):
    code, out, _ = run_main(capsys, "digits", "--help")
    assert code == 0
    default = configs.STUDIES["compact_posterior"].configs["digits"][1]
    for name, _, _ in configs.walk(default):
        assert f"--{name}" in out


def test_no_config_shows_the_overview(capsys):
    code, out, _ = run_main(capsys)
    assert code == cli.USAGE_ERROR
    assert "digits" in out
    assert run_main(capsys, "--help")[0] == 0


def test_overrides_get_their_own_directory():
    default = configs.STUDIES["compact_posterior"].configs["debug"][1]
    other = cli._parse("compact_posterior", "debug", ["--seed", "7"]).config
    plain = cli._default_directory("compact_posterior", "debug", default)
    assert plain.name == "debug"
    assert cli._default_directory("compact_posterior", "debug", other) != plain


def test_every_named_config_is_within_its_bounds():
    for _, known, _ in configs.STUDIES.values():
        for _, config in known.values():
            configs.check(config)


@pytest.mark.parametrize("arguments", ["--help", "digits --help", "digitz", "digits --sed 1", ""])
def test_help_and_typos_answer_without_jax(arguments):
    """In the time that a person waits for: JAX alone takes longer."""
    start = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "experiments.compact_posterior", *arguments.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - start
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert {"configs", "tyro"} <= imported
    assert not imported & {"jax", "jaxlib", "numpy", "matplotlib"}
    assert ended.returncode == (0 if "--help" in arguments else cli.USAGE_ERROR)
    assert seconds < 2.0


def test_every_study_has_a_folder_with_its_command_and_a_config_file():
    folders = {path.parent.name for path in (ROOT / "experiments").glob("*/study.py")}
    assert folders == set(configs.STUDIES)
    for study in folders:
        assert f'cli.main("{study}")' in (ROOT / "experiments" / study / "__main__.py").read_text()


@pytest.mark.parametrize(
    ("contract", "field"),
    [
        ("studies are independent of one another", "modules"),
        ("what studies share knows no study", "forbidden_modules"),
    ],
)
def test_the_import_contracts_know_every_study(contract, field):
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = (each[field] for each in known if each["name"] == contract)
    assert set(found) == {f"experiments.{study}" for study in configs.STUDIES}


@pytest.mark.slow
def test_a_full_disk_is_one_line(tmp_path):
    """No file may grow over 4 kB: run.json fits, the first chunk of samples does not."""
    start = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
        "from experiments.harness import cli; "
        f"cli.main('compact_posterior', ['debug', '--rundir', {str(tmp_path / 'run')!r}])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", start], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: ")
    assert "free space" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert (tmp_path / "run" / "run.json").exists()
