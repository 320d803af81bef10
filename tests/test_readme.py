"""What README says is true: its example runs, its commands and files exist, its numbers are in results/."""

import re
from pathlib import Path

import configs

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(example.strip().splitlines()) <= 30
    exec(compile(example, "README.md", "exec"), {})
    raw, aligned = re.findall(r"agrees with HMC on (\d\.\d+)", capsys.readouterr().out)
    assert float(raw) < float(aligned)


def test_every_study_named_exists():
    # `experiments.results` publishes a run; it is no study.
    commands = re.findall(r"python -m experiments\.(?!results)(\w+) (\w+)", README)
    assert commands
    for study, config in commands:
        assert config in configs.STUDIES[study].configs


def test_every_study_is_named():
    for study in configs.STUDIES:
        assert f"python -m experiments.{study}" in README


def test_every_file_linked_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
