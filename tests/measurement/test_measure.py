"""`outspan.measure` and the other studies from Python: their results, their files, and the output of the commands."""

import json

import pytest
import torch

import outspan
from outspan.config import KEYS, Recipe, read_recipe
from outspan.measurement.core import find_core_set
from outspan.measurement.predictions import load_predictions
from outspan.measurement.recipes import SET_BY_STUDIES
from outspan.measurement.scores import compute_scores
from outspan.recipe_keys import StudyKeys

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_result_agrees_with_the_stored_files(few, tmp_path):
    out = tmp_path / "measured"
    result = outspan.measure(data=str(few), transforms=["rotate", "invert"], seeds=4, out=out, epochs=2, batch=25)
    assert isinstance(result, outspan.Measurement)
    assert list(result.transforms) == ["rotate", "invert"]
    assert result.info.seeds == (0, 1, 2, 3)
    assert result.info.settings.recipe.model == "mlp"  # as in the paper
    assert result.info.settings.recipe.probability == 0.5
    stored = json.loads((out / "scores.json").read_text())
    assert stored == result.as_dict()
    assert list(stored["transforms"]["rotate"]) == [
        *("accuracy", "error", "instability", "ties", "first_3_seeds", "by_class", "difference", "corrected", "broken"),
    ]
    predictions = load_predictions(out / "predictions.npz")
    assert list(predictions) == ["baseline", "rotate", "invert"]
    for name, one in predictions.items():
        assert torch.equal(one.classes, result.predictions[name].classes)
    assert result.transforms["rotate"].scores.error.value == compute_scores(predictions["rotate"]).error
    effect = result.transforms["invert"].effect
    assert effect.error.value == compute_scores(predictions["invert"]).error - result.baseline.error.value
    assert effect.verdict in ("better", "worse", "no significant difference")
    assert {text.get_text() for text in result.figure().axes[0].texts} == {"baseline", "rotate", "invert"}


def test_the_command_prints_the_result_of_the_function(few, tmp_path, run):
    out = tmp_path / "measured"
    recipe = Recipe(data=str(few), model="mlp-10", epochs=2, batch=25)
    result = outspan.measure(recipe, transforms="rotate, invert", seeds=[0, 1], out=str(out))
    files = {path: path.stat().st_mtime_ns for path in (out / "models").iterdir()}
    changes = [f"data={few}", "model=mlp-10", "epochs=2", "batch=25"]
    arguments = ["--transforms", "rotate,invert", "--seeds", "2", *(x for change in changes for x in ("--set", change))]
    printed = run("measure", *arguments, "-o", out).splitlines()
    for name in ("baseline", "rotate", "invert"):
        one = result.transforms[name].scores if name in result.transforms else result.baseline
        row = next(line for line in printed if line.startswith(name))
        assert f"{100 * one.accuracy.value:.2f} ± {100 * one.accuracy_std:.2f}" in row
        assert f"{100 * one.instability.value:.2f}" in row
    assert {path: path.stat().st_mtime_ns for path in (out / "models").iterdir()} == files  # nothing was trained again
    assert json.loads((out / "scores.json").read_text()) == result.as_dict()


def test_measuring_fewer_transforms_keeps_earlier_results(few, tmp_path):
    keys = {"data": str(few), "model": "mlp-5", "epochs": 1, "out": tmp_path / "m"}
    outspan.measure(transforms=["rotate", "invert"], seeds=2, **keys)
    result = outspan.measure(transforms=["blur"], seeds=2, **keys)
    assert list(result.transforms) == ["blur", "invert", "rotate"]
    assert result.earlier == ("invert", "rotate")
    result = outspan.measure(transforms=["blur"], seeds=3, **keys)
    assert (list(result.transforms), result.unfinished) == (["blur"], ("invert", "rotate"))


def test_the_repr_of_a_result_is_short(few, tmp_path):
    result = outspan.measure(data=str(few), epochs=1, transforms=["rotate"], seeds=2, out=tmp_path / "m")
    assert "tensor" not in repr(result)
    assert "rotate" in repr(result)
    assert len(repr(result)) < 5000


def test_a_core_set_is_written_as_a_recipe(few, tmp_path):
    result = find_core_set(data=str(few), model="mlp-5", transforms=["rotate", "invert"], seeds=2, epochs=2, out=tmp_path)
    assert json.loads((tmp_path / "core.json").read_text()) == result.as_dict()
    assert read_recipe(tmp_path / "core.toml").policy == result.recipe.policy
    assert result.chosen in result.path
    assert result.models == 2 * len({path.name.rpartition("-")[0] for path in (tmp_path / "models").iterdir()})


def test_keys_that_a_study_sets_itself_are_refused(tmp_path, unchecked):
    assert {*StudyKeys.__annotations__} == {*KEYS} - {*SET_BY_STUDIES}
    for keys, message in (
        ({"policy": "none"}, "measure sets policy itself, so policy cannot be changed"),
        ({"seed": 3}, "measure sets seed itself"),
        ({"epoch": 3}, "unknown key 'epoch', did you mean 'epochs'"),
        ({"transforms": "rotate,mixup"}, "'mixup' mixes labels"),
        ({"seeds": 1}, r"at least 2 different seeds, got 1"),
        ({"seeds": 2.5}, "at least 2 different seeds, got 2.5"),
        ({"seeds": [1, 1]}, r"at least 2 different seeds, got \[1, 1\]"),
        ({"transforms": None}, "transforms must be names such as 'rotate', or 'all', got None"),
        ({"transforms": [1]}, r"transforms must be names such as 'rotate', or 'all', got \[1\]"),
        ({"probability": 0.0}, r"probability must lie in \(0, 1\], got 0.0"),
    ):
        with pytest.raises(ValueError, match=message):
            outspan.measure(data="digits", out=tmp_path / "m", **keys)
    assert not (tmp_path / "m").exists()
