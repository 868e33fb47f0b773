"""The commands of the theory lab, run as a user runs them."""

import json

import numpy as np
import pytest
from PIL import Image

from outspan import rng
from outspan.theory.verification import verify


@pytest.fixture
def run(run):
    return lambda *arguments, code=0: run("theory", *arguments, code=code)


def test_verify_prints_one_block_per_result_within_80_columns(run, monkeypatch):
    rows = verify(draws=100)
    monkeypatch.setattr("outspan.theory.verification.verify", lambda *, draws, seed: rows if (draws, seed) == (100, 0) else [])
    out = run("verify", "--draws", 100)
    assert "Theorem 1, eq. 1: flip, (n+1)λ" in out
    assert "fails by" in out
    assert "σ small (not met)" in " ".join(out.split())  # it may be wrapped
    assert max(map(len, out.splitlines())) <= 80
    printed = json.loads(run("verify", "--draws", 100, "--json"))
    assert len(printed) == out.count("\n  printed ") == len(rows)
    assert printed[0]["exact"] == rows[0].exact


def test_counterexample(run):
    out = run("counterexample")
    assert "0.8889" in out
    assert "0.6111" in out
    assert max(map(len, out.splitlines())) <= 80
    cases = json.loads(run("counterexample", "--json"))
    assert cases["smallest"]["grown"] == pytest.approx(11 / 18)
    assert all(case["grown"] < 0 < case["printed"] for case in cases["spike"])


def test_plot_writes_every_figure(run, tmp_path):
    out = run("plot", "-o", tmp_path / "plots")
    written = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert len(written) == 5
    assert all(name in out for name in written)
    for name in written:
        with Image.open(tmp_path / "plots" / name) as image:
            assert image.size == (600, 360)


def test_rank_writes_the_ranking(run, tmp_path):
    scores = tmp_path / "scores.json"
    scores.write_text('{"source": "here", "error": {"rotate": 1.0, "invert": 2.0, "shear_x": 1.5}}')
    names = "rotate,invert,shear_x,blur"
    arguments = ("--data", "digits", "--transforms", names, "--samples", 50, "--draws", 1)
    out = run("rank", *arguments, "--measured", scores, "-o", tmp_path / "rank.json", "--figure", tmp_path / "rank.png")
    assert "Spearman" in out
    ranking = json.loads((tmp_path / "rank.json").read_text())
    assert {row["name"] for row in ranking["rows"]} == set(names.split(","))
    assert set(ranking["spearman"]) == {"energy", "along", "gain", "net"}
    assert (tmp_path / "rank.png").stat().st_size > 1000
    assert "Spearman" not in run("rank", *arguments, "-o", tmp_path / "rank.json")


def test_rank_reads_a_folder_of_images(run, tmp_path):
    g = rng.generator(0, "folder")
    for path in [tmp_path / split / name / f"{i}.png" for split in ("train", "val") for name in "ab" for i in range(15)]:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(g.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(path)
    arguments = ("rank", "--data", tmp_path, "--transforms", "rotate,invert", "--samples", 20, "-o", tmp_path / "rank.json")
    message = run(*arguments, code=2)
    assert "images of 150528 values are too large to rank by pixels" in message
    out = run(*arguments, "--size", 8)
    assert len(json.loads((tmp_path / "rank.json").read_text())["rows"]) == 2
    assert max(map(len, out.removesuffix(f"wrote {tmp_path / 'rank.json'}\n").splitlines())) <= 80


def test_wrong_arguments_are_refused(run, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"rotate": "low"}')
    arguments = ("rank", "--data", "digits", "--transforms", "rotate", "-o", tmp_path / "rank.json")
    assert "must be finite numbers by transform" in run(*arguments, "--measured", bad, code=2)
    bad.write_text('{"rotate": NaN}')
    assert "must be finite numbers by transform" in run(*arguments, "--measured", bad, code=2)
    bad.write_text('{"rotate": 1, "invert": 2, "blur": 3}')
    few = run(*arguments, "--measured", bad, "--figure", tmp_path / "rank.png", code=2)
    assert "needs scores for at least three of the transforms" in few
    nowhere = tmp_path / "none" / "rank.json"
    assert f"folder {nowhere.parent} does not exist" in run(*arguments[:-1], nowhere, code=2)
    assert "not a readable JSON file" in run(*arguments, "--measured", tmp_path / "none.json", code=2)
    assert "--measured" in run(*arguments, "--figure", tmp_path / "rank.png", code=2)
    assert "'mixup' mixes labels" in run("rank", "--data", "digits", "--transforms", "mixup", "-o", tmp_path / "r.json", code=2)
    assert "verify" in run("--help")
    for command in ("verify", "counterexample", "plot", "rank"):
        assert "Example: outspan theory" in run(command, "--help")
    assert not (tmp_path / "rank.json").exists()
