"""Studies of mixup: the trained recipes, the choice of the weight decay, and the numbers of a hand-made example."""

import json

import pytest
import torch

from outspan.config import Recipe
from outspan.data.sets import Data, load
from outspan.data.splits import InMemory
from outspan.measurement import mixup
from outspan.measurement.mixup import (
    Tuning,
    check_values,
    mixup_baseline,
    mixup_recipes,
    same_class_name,
    study_mixup,
    summarize_mixup,
    tune,
)
from outspan.measurement.predictions import Predictions
from outspan.measurement.recipes import BASELINE
from outspan.measurement.study import Study, StudyResult
from outspan.policies.table import build_policy
from outspan.transforms.normalize import Normalize
from studies import SETTINGS

pytestmark = pytest.mark.usefixtures("one_thread")
RECIPE = mixup_baseline(Recipe(data="digits", model="mlp-5", epochs=1, batch=50))


@pytest.fixture
def few(monkeypatch) -> Data:
    digits = load("digits")
    data = Data(
        "digits", *(InMemory(part.images[:90], part.labels[:90]) for part in (digits.train, digits.test)), digits.classes
    )
    monkeypatch.setattr("outspan.measurement.study.load_for", lambda *_, **__: data)
    return data


def test_the_recipes_of_a_study(few):
    result = mixup_recipes(RECIPE, 1e-3, [0.0, 1.0])
    assert list(result) == [BASELINE, "l2-0.001", "mixup-0.001", "same-class-0.0-l2-0.001", "same-class-1.0-l2-0.001"]
    assert [recipe.weight_decay for recipe in result.values()] == [5e-4, *[1e-3] * 4]
    images, labels = few.train.images, few.train.labels
    preprocess = Normalize((0.0,), (1.0,))
    for name, fraction in (("mixup-0.001", None), ("same-class-0.0-l2-0.001", 0.0), ("same-class-1.0-l2-0.001", 1.0)):
        plan = build_policy(result[name], torch.nn.Identity(), few, preprocess)(images, labels, step=0).plan
        assert plan.names == ("mixup",)
        assert (plan.ops == 0).all()
        same = (labels[plan.partners[:, 0]] == labels).double().mean()
        assert same == fraction if fraction is not None else 0 < same < 0.3
        assert 0.4 < plan.levels.mean() < 0.6  # uniform weights
    for name in (BASELINE, "l2-0.001"):
        plan = build_policy(result[name], torch.nn.Identity(), few, preprocess)(images, labels, step=0).plan
        assert not plan.ops.numel()


def test_nearly_equal_numbers_have_different_names():
    shares = [0.3, 0.1 + 0.2]
    one, other = (mixup_recipes(RECIPE, decay, shares) for decay in (1e-3, 1.0000001e-3))
    assert len(one) == 5
    assert one.keys() & other.keys() == {BASELINE}


def test_the_weight_decay_is_chosen_on_held_out_training_images(few, tmp_path, monkeypatch):
    study = Study(RECIPE, seeds=range(2), out=tmp_path)
    assert tune(study, [0.01]) == Tuning(0.01, {}, 0)
    assert not (tmp_path / "tuning").exists()
    seen = []

    class Apart(Study):
        def run(self, recipes):
            seen.append((self.data, recipes))
            right = {"l2-0.1": 3, "l2-0.01": 9, "l2-0.001": 5}
            labels = self.data.test.labels
            ensembles = {
                name: Predictions((labels + (torch.arange(len(labels)) >= right[name])).repeat(2, 1), labels)
                for name in recipes
            }
            return StudyResult(self.settings, self.seeds, self.data.classes, ensembles)

    monkeypatch.setattr(mixup, "Study", Apart)
    result = tune(study, [0.1, 0.01, 0.1, 0.001])
    ((data, recipes),) = seen
    assert result == Tuning(0.01, {0.1: 3 / 15, 0.01: 9 / 15, 0.001: 5 / 15}, 15)
    assert (len(data.train), len(data.test)) == (75, 15)
    both = torch.cat([data.train.images, data.test.images]).flatten(1)
    assert torch.equal(both.unique(dim=0), few.train.images.flatten(1).unique(dim=0))
    assert {recipe.weight_decay for recipe in recipes.values()} == {0.1, 0.01, 0.001}


def test_a_complete_study(few, tmp_path):
    result = study_mixup(RECIPE, weight_decays=[1e-4, 1e-2], fractions=[0.0, 1.0], seeds=2, out=tmp_path)
    assert set(result.tuning.accuracies) == {1e-4, 1e-2}
    assert [one.fraction for one in result.same_class] == [0.0, 1.0]
    assert result.tuning.held_out == 15
    assert sum(result.margins.right["mixup"]) + sum(result.margins.wrong["mixup"]) == 90
    stored = json.loads((tmp_path / "mixup.json").read_text())
    assert stored == result.as_dict()
    assert stored["scores"]["same_class"]["error"] == result.same_class[1].scores.error


def test_numbers_by_hand():
    """Four samples of class 0. The baseline is wrong on two, one of them by a large margin. Mixing classes corrects it."""
    labels = torch.zeros(4, dtype=torch.int64)
    baseline, corrected = torch.tensor([[0, 0, 1, 1]] * 2), torch.tensor([[0, 0, 0, 1]] * 2)
    lead = torch.tensor([[0.95, 0.15, 0.9, 0.2], [0.95, 0.25, 1.0, 0.2]])
    names = list(mixup_recipes(RECIPE, 0.5, [0.0, 1.0]))
    several = {name: Predictions(baseline, labels) for name in names}
    several[same_class_name(0.0, 0.5)] = Predictions(corrected, labels)
    measured = StudyResult(SETTINGS, range(2), ("a", "b"), several, {name: lead for name in names})
    result = summarize_mixup(measured, Tuning(0.5, {}, 0), [0.0, 1.0])
    first, second = result.margins.corrected
    assert (first.count, first.broken, first.baseline_accuracy) == (1, 0, 0.0)
    assert first.mean_margin == pytest.approx(0.95)
    assert first.histogram == (0,) * 9 + (1,)
    assert (second.count, second.mean_margin) == (0, None)
    assert result.margins.mean_of_wrong == pytest.approx(0.575)
    assert result.margins.right["baseline"] == [0, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    assert result.margins.wrong["mixup"] == [0, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    assert result.weight_decay.error == 0.5
    assert result.same_class[0].scores.error == 0.25
    assert (result.difference.value, result.difference.interval) == (0, (0, 0))  # mixup votes as the baseline


def test_wrong_arguments_are_refused(few, tmp_path):
    study = Study(RECIPE, seeds=range(2), out=tmp_path)
    for decays in ([], [-1.0], [float("nan"), 1.0]):
        with pytest.raises(ValueError, match="weight decays must be 0 or more"):
            tune(study, decays)
    with pytest.raises(ValueError, match=r"at least one, got \[\]"):
        check_values(RECIPE, [1e-3], [])
    with pytest.raises(ValueError, match=r"mixup is not for texts, got data 'reviews.csv'"):
        check_values(Recipe(data="reviews.csv"), [1e-3])
    plain = Study(mixup_baseline(Recipe(data="digits", model="convnet", batch=50)), seeds=range(2), out=tmp_path / "c")
    with pytest.raises(ValueError, match="needs an mlp without validation images, got convnet: pass one"):
        tune(plain, [1e-3, 1e-4])
