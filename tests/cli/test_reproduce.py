"""The command `outspan reproduce`, on generated files in the official format."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from made import make_official
from outspan.config import read_values
from outspan.files import HOME
from outspan.reproduce.paper import PAPER

CELLS = ("--rows", "svhn/wrn-28-10", "--methods", "baseline,ra,ta,uncertain,pba", "--seeds", "2", "--scale", "0.001")


def test_everything_is_listed(run):
    out = run("reproduce")
    for name, item in PAPER.items():
        assert f"{name}  {item.title}" in out
    assert out.count("measured here: ") + out.count("runnable") + out.count("needs data that is not available: ") == 14


def test_without_rows_only_the_numbers_of_the_paper_are_shown(run, narrow, monkeypatch):
    monkeypatch.chdir(narrow)
    out = run("reproduce", "table-3")
    assert "97.89 ± 0.03" in out
    assert "svhn/wrn-28-10: runnable, recipes/paper/svhn-wrn-28-10.toml" in out
    assert "cifar100/wrn-28-10: needs" in out
    assert not (narrow / "runs").exists()
    assert "table-1 has no rows to run; use this command instead: outspan theory verify" in run(
        "reproduce", "table-1", "--rows", "x", code=2
    )
    assert "nothing to run: give a table and --rows" in run("reproduce", "table-3", "--scale", "0.1", code=2)
    assert "--rows needs a table, e.g. outspan reproduce table-3 --rows x" in run("reproduce", "--rows", "x", code=2)


def test_cells_are_run_once_and_shown_with_the_numbers_of_the_paper(run, narrow, one_thread, monkeypatch):
    monkeypatch.setenv("COMMIT", "abc")
    out = run("reproduce", "table-3", *CELLS, "-o", narrow / "out")
    lines = {tuple(line.split()[:2]): line for line in out.splitlines() if line.startswith("svhn/wrn-28-10 ")}
    assert lines["svhn/wrn-28-10", "uncertain"].split()[-4:] == ["*", "98.3", "±", "0.03"]
    assert lines["svhn/wrn-28-10", "baseline"].split()[-2:] == ["*", "96.9"]
    assert lines["svhn/wrn-28-10", "ta"].split()[-2:] == ["*", "-"]
    assert "svhn/wrn-28-10 pba: needs --policy-file pba=FILE: schedules/" in out
    assert "* scaled: 0.001 of the epochs and images (at least 1 epoch and 2 batches). Not comparable" in out
    result = json.loads((narrow / "out" / "table-3" / "scale-0.001" / "table-3.json").read_text())
    assert [(cell["method"], cell["seeds"], len(cell["accuracies"])) for cell in result["cells"]] == [
        ("baseline", [0, 1], 2), ("pba", [], 0), ("ra", [0, 1], 2), ("ta", [0, 1], 2), ("uncertain", [0, 1], 2),
    ]  # fmt: skip
    assert result["commit"] == "abc"
    assert [cell["recipe"].get("policy") for cell in result["cells"]] == [
        "baseline", None, "randaugment", "trivialaugment", "uncertain",
    ]  # fmt: skip
    before = {path: path.stat().st_mtime_ns for path in Path(narrow / "out").rglob("*.safetensors")}
    assert len(before) == 8
    assert run("reproduce", "table-3", *CELLS, "-o", narrow / "out") == out
    assert {path: path.stat().st_mtime_ns for path in Path(narrow / "out").rglob("*.safetensors")} == before
    fewer = ("--rows", "svhn/wrn-28-10", "--methods", "ta,aa", "--scale", "0.001")
    run("reproduce", "table-3", *fewer, "-o", narrow / "out")  # cells of earlier commands stay in the file
    cells = json.loads((narrow / "out" / "table-3" / "scale-0.001" / "table-3.json").read_text())["cells"]
    assert [(cell["method"], cell["seeds"]) for cell in cells] == [
        ("baseline", [0, 1]), ("aa", [0]), ("ra", [0, 1]), ("ta", [0, 1]), ("uncertain", [0, 1]),
    ]  # fmt: skip
    assert [cell for cell in cells if cell["method"] != "aa"] == [cell for cell in result["cells"] if cell["seeds"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table-8",), "unknown table or figure 'table-8'"),
        (("table-3", "--rows", "svhn/x"), "unknown row 'svhn/x'"),
        (("table-3", "--rows", "svhn/wrn-28-10", "--methods", "rar"), "unknown method 'rar', did you mean"),
        (("table-3", "--rows", "svhn/wrn-28-10", "--scale", "2"), "scale must lie in (0, 1], got 2"),
        (("table-3", "--rows", "svhn/wrn-28-10", "--policy-file", "x"), "--policy-file must be METHOD=FILE"),
        (("table-3", "--rows", "svhn/wrn-28-10", "--seeds", "0"), "Invalid value for '--seeds'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message, run, narrow):
    assert message in run("reproduce", *arguments, "-o", narrow / "out", code=2)


def test_a_cell_that_fails_is_explained_and_the_others_are_run(run, narrow, one_thread):
    make_official("cifar100", narrow)
    (narrow / "cifar-100-binary" / "test.bin").write_bytes(b"short")
    rows = ("--rows", "cifar100/wrn-28-10,svhn/wrn-28-10", "--methods", "baseline", "--scale", "0.001")
    out = run("reproduce", "table-3", *rows, "-o", narrow / "out", code=1)
    assert f"cifar100/wrn-28-10 baseline: seed 0: {narrow}/cifar-100-binary/test.bin: 5 bytes, expected" in out
    cells = json.loads((narrow / "out" / "table-3" / "scale-0.001" / "table-3.json").read_text())["cells"]
    assert [(len(cell["accuracies"]), bool(cell["why_not"])) for cell in cells] == [(0, True), (1, False)]


def test_a_wrong_policy_file_is_refused_before_training(run, narrow):
    (narrow / "policy").write_text("nothing here")
    reasons = {"fast-aa": "not a Python or JSON list", "pba": "must be a Python list, got 'nothing here'"}
    for method, reason in reasons.items():
        options = ("--methods", f"baseline,{method}", "--policy-file", f"{method}={narrow / 'policy'}", "--scale", "0.001")
        message = run("reproduce", "table-3", "--rows", "svhn/wrn-28-10", *options, "-o", narrow / "out", code=2)
        assert f"{narrow / 'policy'}, line 1: {reason}" in message
        assert not (narrow / "out").exists()


def test_cells_without_data_name_the_missing_file(run, narrow):
    out = run(
        "reproduce",
        "table-3",
        "--rows",
        "cifar100/wrn-28-10,imagenet/resnet-50",
        "--methods",
        "ra",
        "-o",
        narrow / "out",
        code=1,
    )
    assert f"cifar100/wrn-28-10 ra: needs {narrow}/cifar-100-binary (outspan data fetch cifar100, from https://" in out
    assert "imagenet/resnet-50 ra: needs" in out
    assert not (narrow / "out").exists()


_INSTALLED = """
import contextlib, io, json, sys
sys.meta_path = [finder for finder in sys.meta_path if "outspan" not in str(getattr(finder, "__dict__", ""))]  # editable
sys.path.insert(0, {folder!r})
import outspan
assert outspan.__file__.startswith({folder!r}), outspan.__file__
from outspan.cli import main
results = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["outspan", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as ended:
            results.append((ended.code, out.getvalue(), err.getvalue()))
print(json.dumps(results))
"""


def run_installed(folder: Path, empty: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Run commands of a package in `folder` from an empty folder, without a clone. Return code, stdout and stderr of each."""
    command = [sys.executable, "-c", _INSTALLED.format(folder=str(folder)), json.dumps(commands)]
    environment = {**os.environ, "OUTSPAN_DATA": str(empty)}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=empty, timeout=600)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def check_installed(folder: Path, empty: Path) -> None:
    empty.mkdir()
    train = ["train", "-o", "runs/x"]
    listed, table, recipe, missing = run_installed(
        folder,
        empty,
        ["reproduce"],
        ["reproduce", "table-3"],
        [*train, "recipes/paper/mnist-mlp.toml"],
        [*train, "recipes/none.toml"],
    )
    assert listed[0] == 0, listed
    assert "measured here: " in listed[1]
    assert table[0] == 0, table
    assert "97.89 ± 0.03" in table[1]
    assert "outspan data fetch mnist" in recipe[2]  # the recipe exists, its data does not
    assert "recipes/none.toml: no such file" in missing[2]


@pytest.mark.slow
def test_an_installed_package_reproduces_without_a_clone(tmp_path):
    packages = read_values(HOME / "pyproject.toml")["tool"]["scikit-build"]["wheel"]["packages"]
    for name, source in packages.items():  # the same layout as in the wheel
        skipped = shutil.ignore_patterns("*.so", "*.cpp", "*.h", "__pycache__")
        shutil.copytree(HOME / source, tmp_path / "site" / name, ignore=skipped)
    check_installed(tmp_path / "site", tmp_path / "empty")


@pytest.mark.slow
def test_a_wheel_reproduces_without_a_clone(tmp_path):
    for command in (
        ["wheel", "--no-deps", "-q", "-w", str(tmp_path), "-C", f"build-dir={tmp_path / 'build'}", str(HOME)],
        [
            "install",
            "--no-deps",
            "-q",
            "--target",
            str(tmp_path / "site"),
            "--find-links",
            str(tmp_path),
            "--no-index",
            "outspan",
        ],
    ):
        subprocess.run([sys.executable, "-m", "pip", *command], check=True)
    check_installed(tmp_path / "site", tmp_path / "empty")
