"""The steps of a run: the schedule of the learning rate, and the parameters with weight decay."""

from dataclasses import replace

import pytest
import torch

from outspan.config import Recipe
from outspan.training.state import new_state
from outspan.training.step import lr_at


def test_schedules_by_hand():
    recipe = Recipe(lr=1.0, warmup=0.1, schedule="cosine")
    assert lr_at(recipe, 0, 100) == pytest.approx(1 / 11)
    assert lr_at(recipe, 10, 100) == 1.0
    assert lr_at(recipe, 55, 100) == pytest.approx(0.5)
    steps = replace(recipe, schedule="multistep", warmup=0.0)
    assert [lr_at(steps, step, 100) for step in (0, 29, 30, 60, 80)] == pytest.approx([1, 1, 0.1, 0.01, 0.001])
    assert lr_at(replace(recipe, schedule="constant"), 70, 100) == 1.0


def test_weights_decay_and_biases_do_not():
    state = new_state(Recipe(model="convnet", weight_decay=0.3), (1, 28, 28), 10, torch.device("cpu"))
    decay = {id(p): group["weight_decay"] for group in state.optimizer.param_groups for p in group["params"]}
    for name, parameter in state.model.named_parameters():
        assert decay[id(parameter)] == (0.3 if parameter.ndim > 1 else 0.0), name
