"""Grid search: the points of a grid, errors before training, and the chosen point."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from made import make_folder
from outspan.comparison.grid import build_grid, grid_search, points
from outspan.config import Recipe, read_recipe

SMALL = Recipe(data="digits", model="mlp", policy="none", epochs=8, batch=20, fraction=0.02, validation=20)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_slashes_in_the_name_of_a_point_are_escaped():
    assert list(points(Recipe(validation=5), {"weights": ["../w", ""]})) == ["weights=..%2Fw", "weights="]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('lr = [0.1, "much"]\nvalidation = 5\n', "lr must be a number, got 'much'"),
        ("lr = 0.1\nvalidation = 5\n", "a grid needs a list of values for at least one key"),
        ("lr = []\nvalidation = 5\n", "lr has no values"),
        ('optimizer = ["sgd", "adamw"]\nvalidation = 5\n', "a grid over optimizers needs lr"),
    ],
)
def test_an_invalid_grid_is_refused(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        build_grid(write(tmp_path / "g.toml", text))


def test_a_grid_has_the_defaults_of_a_recipe(tmp_path):
    text = 'optimizer = "adamw"\nvalidation = 5\nbatch = '
    recipe, axes = build_grid(write(tmp_path / "g.toml", f"{text}[64, 128]\n"))
    assert points(recipe, axes)["batch=64"] == read_recipe(write(tmp_path / "r.toml", f"{text}64\n"))
    text = 'policy = "uncertain"\nkeep = [5, 8]\ncandidates = [8]\nvalidation = 5\n'
    assert set(build_grid(write(tmp_path / "g.toml", text))[1]) == {
        "keep",
        "candidates",
    }  # valid together, although each alone would be out of range


DIVERGES = replace(SMALL, warmup=0.0, schedule="constant")


def check_the_finite_point_is_chosen(out: Path, *, jobs: int) -> None:
    result = grid_search(DIVERGES, {"lr": [1e6, 0.1]}, out=out, jobs=jobs)
    assert result.points["lr=1000000.0"] is None
    assert result.chosen == "lr=0.1"
    assert json.loads((out / "grid.json").read_text()) == asdict(result)


def test_a_point_that_diverges_is_not_chosen(tmp_path):
    check_the_finite_point_is_chosen(tmp_path, jobs=1)
    with pytest.raises(ValueError, match="every point of the grid diverged"):
        grid_search(DIVERGES, {"lr": [1e6]}, out=tmp_path)
    with pytest.raises(ValueError, match=r"lr=0.1: .* a run of another recipe"):  # the message names the point
        grid_search(replace(DIVERGES, epochs=2), {"lr": [0.1]}, out=tmp_path)


def test_a_point_that_diverges_in_parallel_is_not_chosen(side_by_side, tmp_path):
    check_the_finite_point_is_chosen(tmp_path, jobs=2)


def test_the_validation_split_of_a_folder_chooses_the_point(tmp_path):
    root = tmp_path / "set"
    make_folder(root, train=4, test=3)
    recipe = Recipe(data=str(root), model="mlp", policy="none", size=8, epochs=1, batch=4)
    with pytest.raises(ValueError, match="has none: set validation"):
        grid_search(recipe, {"lr": [0.1, 1e-9]}, out=tmp_path / "none")
    (root / "val").rename(root / "test")
    make_folder(tmp_path / "more", train=4, test=3)
    (tmp_path / "more" / "val").rename(root / "val")
    result = grid_search(recipe, {"lr": [0.1, 1e-9]}, out=tmp_path / "grid")
    metrics = {
        path.name: json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
        for path in (tmp_path / "grid").iterdir()
        if path.is_dir()
    }
    assert metrics.keys() == result.points.keys()  # no final training, because every point was trained on the whole train split
    assert result.points == {name: row["validation_accuracy"] for name, row in metrics.items()}
    assert result.test_accuracy == metrics[result.chosen]["test_accuracy"]
    with pytest.raises(ValueError, match="validation must be 0 for data that has a validation split, got 2"):
        grid_search(replace(recipe, validation=2), {"lr": [0.1]}, out=tmp_path / "both")
