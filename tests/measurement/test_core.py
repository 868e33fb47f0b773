"""Core sets: the search, on a hand-made table of errors."""

import pytest
import torch

from outspan.config import Recipe
from outspan.measurement.core import search
from outspan.measurement.predictions import Predictions
from outspan.measurement.recipes import BASELINE
from outspan.measurement.study import Study, StudyResult
from studies import SETTINGS

RECIPE = Recipe(model="mlp", policy="none", depth=1, seed=4)


class Table(Study):
    """A study with fixed numbers of errors on 1,000 samples."""

    def __init__(self, errors: dict[str, int]) -> None:
        self.baseline, self.seeds, self.settings, self.errors, self.trained = RECIPE, [0, 1], SETTINGS, errors, []

    def run(self, recipes):
        self.trained += recipes
        labels = torch.zeros(1000, dtype=torch.int64)
        predictions = {
            name: Predictions((torch.arange(1000) < self.errors[name]).long().repeat(2, 1), labels) for name in recipes
        }
        return StudyResult(SETTINGS, [0, 1], ("a", "b"), predictions)


ERRORS = {BASELINE: 100, "rotate": 60, "cutout": 70, "invert": 90, "rotate+cutout": 50, "rotate+invert": 59}
ERRORS |= {"rotate+cutout+invert": 49}


def test_the_shortest_set_within_a_tenth_of_the_best_is_chosen():
    table = Table(ERRORS)
    chosen = search(table, ["invert", "cutout", "rotate"])
    assert chosen.transforms == ("rotate", "cutout")  # 50 is within a tenth of 49, 60 is not
    assert chosen.as_dict()["best"] == {"transforms": ["rotate", "cutout", "invert"], "error": 0.049}
    assert [step.scores.error for step in chosen.path] == [0.1, 0.06, 0.05, 0.049]
    assert chosen.path[0].next_errors == {"invert": 0.09, "cutout": 0.07, "rotate": 0.06}
    assert chosen.as_dict()["cost"] == {"transforms_an_image": 1.0, "models": 14}
    assert len(table.trained) == 7
    assert (chosen.recipe.policy, chosen.recipe.transforms, chosen.recipe.seed) == ("sequence", "rotate,cutout", 0)
    low, high = chosen.path[1].interval
    assert low < 0.06 < high
    assert chosen.difference.value == pytest.approx(-0.05)  # the 50 samples whose vote the set corrects
    low, high = chosen.difference.interval
    assert -0.05 - 2.3 * (0.05 * 0.95 / 1000) ** 0.5 < low < -0.05 < high < 0  # 1.96 standard errors of a fraction
    assert chosen.difference.is_significant


def test_the_search_stops_if_no_transform_helps():
    chosen = search(Table(ERRORS | {"rotate+cutout": 60, "rotate+invert": 61}), ["rotate", "cutout", "invert"])
    assert chosen.transforms == ("rotate",)
    assert chosen.path[-1].next_errors == {"cutout": 0.06, "invert": 0.061}
    alone = search(Table({BASELINE: 50, "rotate": 48, "cutout": 70, "rotate+cutout": 48}), ["rotate", "cutout"])
    assert alone.transforms == ()  # no transforms at all are within a tenth of the best
    assert alone.recipe.policy == "none"
    assert alone.difference.interval == (0, 0)
    assert not alone.difference.is_significant
    assert alone.best.transforms == ("rotate",)


def test_wrong_arguments_are_refused_before_training():
    table = Table(ERRORS)
    for names, message in ((["rotate", "cutmix"], "'cutmix' mixes labels"), ([], "no transform to measure")):
        with pytest.raises(ValueError, match=message):
            search(table, names)
    assert table.trained == []
