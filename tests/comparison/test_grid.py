"""Grids: which points there are, what is refused before any is trained, and which is chosen."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from made import make_folder
from outspan.comparison.grid import build_grid, grid_search, points
from outspan.config import Recipe, read_recipe

SMALL = Recipe(data="digits", model="mlp", policy="none", epochs=8, batch=20, fraction=0.02, validation=20)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_path_in_a_grid_stays_in_its_folder():
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
def test_what_is_wrong_with_a_grid_is_said_before_it_is_trained(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        build_grid(written(tmp_path / "g.toml", text))


def test_a_grid_begins_as_a_recipe_does(tmp_path):
    text = 'optimizer = "adamw"\nvalidation = 5\nbatch = '
    recipe, axes = build_grid(written(tmp_path / "g.toml", f"{text}[64, 128]\n"))
    assert points(recipe, axes)["batch=64"] == read_recipe(written(tmp_path / "r.toml", f"{text}64\n"))
    text = "keep = [5, 8]\ncandidates = [8]\nvalidation = 5\n"
    assert set(build_grid(written(tmp_path / "g.toml", text))[1]) == {
        "keep",
        "candidates",
    }  # each alone would be out of range


DIVERGES = replace(SMALL, warmup=0.0, schedule="constant")


def check_the_one_that_ends_is_chosen(out: Path, *, jobs: int) -> None:
    result = grid_search(DIVERGES, {"lr": [1e6, 0.1]}, out=out, jobs=jobs)
    assert result.points["lr=1000000.0"] is None
    assert result.chosen == "lr=0.1"
    assert json.loads((out / "grid.json").read_text()) == asdict(result)


def test_a_point_that_diverges_is_not_chosen(tmp_path):
    check_the_one_that_ends_is_chosen(tmp_path, jobs=1)
    with pytest.raises(ValueError, match="every point of the grid diverged"):
        grid_search(DIVERGES, {"lr": [1e6]}, out=tmp_path)
    with pytest.raises(ValueError, match=r"lr=0.1: .* a run of another recipe"):  # which point it is
        grid_search(replace(DIVERGES, epochs=2), {"lr": [0.1]}, out=tmp_path)


def test_a_point_that_diverges_beside_another_is_not_chosen(side_by_side, tmp_path):
    check_the_one_that_ends_is_chosen(tmp_path, jobs=2)


def test_a_folders_own_validation_split_chooses(tmp_path):
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
    assert metrics.keys() == result.points.keys()  # none was trained again: all of train was trained on
    assert result.points == {name: row["validation_accuracy"] for name, row in metrics.items()}
    assert result.test_accuracy == metrics[result.chosen]["test_accuracy"]
    with pytest.raises(ValueError, match="validation must be 0 for data that has a validation split, got 2"):
        grid_search(replace(recipe, validation=2), {"lr": [0.1]}, out=tmp_path / "both")
