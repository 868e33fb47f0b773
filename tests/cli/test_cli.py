"""The commands, run as a user runs them."""

import subprocess
import sys

import pytest

from outspan import cli
from outspan.cli import app
from outspan.config import KEYS
from outspan.recipe_keys import StudyKeys


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "No such command 'nothing'"),
        (("apply", "x.png"), "Missing option"),
        (("gallery", "--wrong"), "No such option"),
        (("gallery", "--epochs", "1"), "No such option: --epochs"),
        (("train", "--data"), "Option '--data' requires an argument"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(arguments, message, run):
    assert message in run(*arguments, code=2)


def commands(group, *path) -> list[tuple[str, ...]]:
    names = [(*path, command.name) for command in group.registered_commands]
    return names + [one for sub in group.registered_groups for one in commands(sub.typer_instance, *path, sub.name)]


@pytest.mark.parametrize("command", commands(app), ids=" ".join)
def test_every_command_has_an_example(command, run):
    assert f"Example: outspan {' '.join(command)}" in run(*command, "--help")


def test_the_help_lists_the_recipe_keys(run):
    for command, keys in (("train", KEYS), ("measure", StudyKeys.__annotations__)):
        printed = " ".join(run(command, "--help").split())
        assert f"All keys (docs/training.md#recipes): {', '.join(keys)}." in printed
        assert "--set KEY=VALUE" in printed
    assert "Default: 0.5 for images, 1 for text." in " ".join(run("measure", "--help").split())


@pytest.mark.parametrize(
    ("argument", "expanded"),
    [
        ("~/runs", "HOME/runs"),
        ("--out=~/runs", "--out=HOME/runs"),
        ("data=~/photos", "data=HOME/photos"),
        ("~/a=b", "HOME/a=b"),
        ("a~/b", "a~/b"),
        ("lr=0.1", "lr=0.1"),
    ],
)
def test_a_tilde_expands_to_the_home_folder(argument, expanded, monkeypatch):
    monkeypatch.setenv("HOME", "HOME")
    assert cli._with_home(argument) == expanded


def test_the_installed_command_reports_errors_without_a_traceback(tmp_path):
    command = [sys.executable, "-m", "outspan", "apply", str(tmp_path / "none.png"), "-o", "out.png", "--ops", "invert"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert process.returncode == 2
    assert process.stderr == f"outspan: {tmp_path / 'none.png'}: no such file\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("group", ["data", "theory"])
def test_a_group_without_a_command_prints_its_help(group, run):
    assert run(group).startswith(f"Usage: outspan {group}")


class Unfinished:
    """An object that fails when it is deleted, like a data loader of torch that a signal interrupts in its constructor."""

    def __del__(self):
        raise AttributeError("_workers_status")


def test_an_interruption_hides_errors_of_unfinished_objects(monkeypatch, run):
    def make(*_, **__):
        unfinished = Unfinished()
        assert unfinished
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", make)
    assert run("train", code=130) == "outspan: interrupted\n"  # an ignored error would fail this test


def test_studies_under_torchrun_are_refused(run, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert "torchrun is for `outspan train`, got `outspan compare`: start it without torchrun" in run("compare", code=2)
    monkeypatch.setenv("RANK", "1")
    assert run("compare", code=2).startswith("outspan: rank 1: torchrun is for")
    assert "Usage" in run("--help")
