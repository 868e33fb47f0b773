"""Compositions: which ones are trained, how edges are defined, and that measured transforms are not trained again."""

import json
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from outspan.config import Recipe
from outspan.data.sets import Data, load
from outspan.data.splits import InMemory
from outspan.measurement.compose import build_graph, compose, compositions
from outspan.measurement.measure import measure
from outspan.measurement.predictions import Predictions
from outspan.measurement.recipes import BASELINE
from outspan.measurement.study import StudyResult
from outspan.policies.table import build_policy
from outspan.transforms.normalize import Normalize
from studies import SETTINGS

pytestmark = pytest.mark.usefixtures("one_thread")
RECIPE = Recipe(data="digits", model="mlp-5", policy="none", depth=1, epochs=1, batch=100)


def wrong(*counts: int, of: int = 100) -> Predictions:
    """Return one model per count. Each model is wrong for the first `count` samples."""
    classes = torch.stack([(torch.arange(of) < count).long() for count in counts])
    return Predictions(classes, torch.zeros(of, dtype=torch.int64))


def test_all_ordered_pairs_and_all_blends_are_trained():
    result = compositions(RECIPE, ["rotate", "invert", "cutout"])
    assert list(result)[:4] == [BASELINE, "rotate", "invert", "cutout"]
    assert len(result) == 4 + 6
    blends = compositions(RECIPE, ["rotate", "invert", "cutout"], additive=True)
    assert list(blends)[4:] == ["rotate&invert", "rotate&cutout", "invert&cutout"]
    assert all(blends[name] == result[name] for name in list(result)[:4])
    digits = load("digits")
    images, labels = digits.train.images[:200], digits.train.labels[:200]
    for recipe, steps in ((result["invert+rotate"], ["invert", "rotate"]), (blends["rotate&invert"], ["rotate", "mixup"])):
        plan = build_policy(recipe, torch.nn.Identity(), digits, Normalize((0.0,), (1.0,)))(images, labels, step=3).plan
        for t, name in enumerate(steps):  # the second transform is applied after the first, or mixed in from a helper row
            used = plan.ops[plan.out, t]
            assert {plan.names[op] for op in used[used >= 0].tolist()} == {name}
        assert 60 < (plan.ops[plan.out, 0] >= 0).sum() < 140


def test_an_edge_needs_an_error_that_falls_by_more_than_a_tenth():
    errors = {BASELINE: 300, "a": 200, "b": 100, "a+b": 170, "b+a": 90}  # b + a reduces the error by exactly a tenth
    several = {name: wrong(count, count, of=1000) for name, count in errors.items()}
    result = build_graph(StudyResult(SETTINGS, range(2), ("x", "y"), several), ["a", "b"])
    pairs = {(pair.first, pair.second): pair for pair in result.pairs}
    assert result.edges == (pairs["a", "b"],)
    assert pairs["a", "b"].reduction == pytest.approx(0.15)
    assert pairs["b", "a"].reduction == pytest.approx(0.1)
    assert pairs["a", "b"].difference.value == pytest.approx(-0.03)
    low, high = pairs["a", "b"].difference.interval
    assert low < -0.03 < high < 0
    assert pairs["a", "b"].is_significant
    assert result.baseline.error == 0.3
    assert result.transforms["b"].error == 0.1
    values = result.as_dict()
    assert values["edges"] == [["a", "b"]]
    assert values["pairs"][1]["cut"] == pytest.approx(0.1)
    blended = {BASELINE: wrong(9, 9), "a": wrong(20, 20), "b": wrong(10, 10), "a&b": wrong(10, 10)}
    both = build_graph(StudyResult(SETTINGS, range(2), ("x", "y"), blended), ["a", "b"], additive=True)
    assert [(pair.first, pair.second) for pair in both.edges] == [("a", "b")]
    nothing = {name: wrong(0, 0) for name in (BASELINE, "a", "b", "a+b", "b+a")}
    assert build_graph(StudyResult(SETTINGS, range(2), ("x", "y"), nothing), ["a", "b"]).edges == ()


def test_models_measured_in_the_same_folder_are_used(tmp_path, monkeypatch):
    digits = load("digits")
    few = Data(
        "digits", *(InMemory(part.images[:60], part.labels[:60]) for part in (digits.train, digits.test)), digits.classes
    )
    monkeypatch.setattr("outspan.measurement.study.load_for", lambda *_, **__: few)
    first = measure(RECIPE, transforms=["rotate", "invert"], seeds=2, out=tmp_path)
    seen = []

    @contextmanager
    def watch(title):
        seen.append(title)
        yield None

    result = compose(RECIPE, transforms=["rotate", "invert"], seeds=2, out=tmp_path, watch=watch)
    assert seen == ["rotate+invert, 2 models (1 of 2)", "invert+rotate, 2 models (2 of 2)"]
    assert result.transforms["rotate"].error == first.transforms["rotate"].scores.error.value
    assert json.loads((tmp_path / "composition.json").read_text()) == result.as_dict()


def test_wrong_arguments_are_refused():
    for transforms in ([], ["rotate"], ["rotate", "rotate"]):
        with pytest.raises(ValueError, match="at least 2 different transforms"):
            compositions(RECIPE, transforms)
    with pytest.raises(ValueError, match="'mixup' mixes labels"):
        compositions(replace(RECIPE), ["rotate", "mixup"])
    with pytest.raises(ValueError, match="additive compositions are not for texts, got data 'imdb'"):
        compositions(replace(RECIPE, data="imdb"), ["switchout", "word_replacement"], additive=True)
