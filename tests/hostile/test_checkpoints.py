"""Checkpoints with a good digest and bad contents: refused in one line, or passed over for the one before."""

import json
from typing import Any

import pytest
import torch

from crafted import count_tracebacks, crafted_metadata, make_run, write
from outspan.training import checkpoint
from outspan.training.train import train
from outspan.training.trained import load as load_model


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A tiny run in the middle of its second epoch: its recipe, tensors and metadata."""
    return make_run(tmp_path_factory.mktemp("made"))


def test_whatever_the_metadata_is_the_older_checkpoint_is_taken(made, tmp_path):
    _, _, metadata = made
    older = {**metadata, "step": 3}  # the end of the first epoch
    tensor = {"model.weight": torch.zeros(1)}
    write(tmp_path / "step-000000003.safetensors", tensor, json.dumps(older))
    accepted = set()
    for name, text in crafted_metadata(metadata):
        write(tmp_path / "step-000000004.safetensors", tensor, text)
        _, loaded = checkpoint.load(tmp_path)
        if json.dumps(loaded) != json.dumps(older):
            assert json.dumps(loaded) == text
            accepted.add(name)
    absent = {name for name in accepted if name.endswith(" missing") and not name.startswith((*FREE, "chosen."))}
    assert absent == {f"{key} missing" for key in ("data.train_digest", "data.test_digest", "data.cache", "metrics.0.lr")}
    for name in (name for name in accepted if not name.endswith(" missing")):
        key, _, wrong = name.partition(" = ")
        assert name.startswith(FREE) or (kind(wrong) == kind(repr(value_at(metadata, key))) and wrong != "-5"), name


FREE = ("setting.", "recipe.")  # a note; and a recipe's values, which are compared with the recipe that is asked for


def value_at(metadata: Any, key: str) -> Any:
    for part in key.split("."):
        metadata = metadata[int(part) if isinstance(metadata, list) else part]
    return metadata


def kind(text: str) -> str:
    """Return what a value is, as JSON has it: what it begins with tells."""
    return "number" if text[0] in "0123456789-" else "text" if text[0] in "'\"" else text[0]


@pytest.mark.parametrize("key", ["step", "recipe", "data", "setting", "metrics", "chosen", "losses", "seconds"])
def test_the_line_names_the_key(made, tmp_path, key):
    _, tensors, metadata = made
    for changed in ({k: v for k, v in metadata.items() if k != key}, {**metadata, key: -5}):
        write(tmp_path / "step-000000004.safetensors", tensors, json.dumps(changed))
        with pytest.raises(ValueError, match=f"no complete checkpoint, step-000000004.safetensors damaged .*'{key}'"):
            load_model(tmp_path)


def test_steps_and_metrics_that_contradict_each_other_are_refused(made, tmp_path):
    recipe, tensors, metadata = made
    for changed, message in (
        ({"step": -5}, "'step' must be an integer of at least 0, got -5"),
        ({"step": 7, "metrics": metadata["metrics"] * 2}, "'step' must be at most the run's 6 steps, got 7"),
        ({"step": 6}, "'metrics' must have a row for each of 2 epochs, got 1"),
        ({"data": metadata["data"] | {"mean": []}}, r"'data.mean' must have 1 values, got 0"),
    ):
        write(tmp_path / "step-000000004.safetensors", tensors, json.dumps(metadata | changed))
        with pytest.raises(ValueError, match=message):
            train(recipe, out=tmp_path)


def test_other_tensors_than_the_models_are_refused_by_name(made, tmp_path):
    recipe, tensors, metadata = made
    weight = "model.1.weight"
    for changed, message in (
        ({key: value for key, value in tensors.items() if key != weight}, f"has no tensor '{weight}'"),
        (tensors | {"model.extra": torch.zeros(1)}, "has a tensor 'model.extra', which neither the model"),
        (tensors | {weight: tensors[weight].double()}, f"'{weight}' must be torch.float32 .*, got torch.float64"),
        (tensors | {weight: tensors[weight].T}, rf"'{weight}' must be torch.float32 \[2, 16\], got torch.float32 \[16, 2\]"),
        ({key: value for key, value in tensors.items() if key.startswith("model.")}, "has no optimizer state"),
        (tensors | {"momentum.1.weight": torch.zeros(2)}, r"'momentum.1.weight' must be .* got torch.float32 \[2\]"),
    ):
        write(tmp_path / "step-000000004.safetensors", {k: v.contiguous() for k, v in changed.items()}, json.dumps(metadata))
        for command in (lambda: train(recipe, out=tmp_path), lambda: load_model(tmp_path)):
            with pytest.raises(ValueError, match=f"{tmp_path}: the checkpoint.*{message}"):
                command()


@pytest.mark.parametrize(
    ("every", "changes"),
    [
        (29, {}),
        (61, {"optimizer": "adamw"}),
        (61, {"policy": "adversarial"}),
        pytest.param(1, {}, marks=pytest.mark.slow),
        pytest.param(1, {"optimizer": "adamw"}, marks=pytest.mark.slow),
        pytest.param(1, {"policy": "adversarial"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_no_crafted_checkpoint_ends_in_a_traceback(every, changes, tmp_path, one_thread):
    found = count_tracebacks(tmp_path, every=every, **changes)
    print(found)
    assert found["first"] == []
    assert found["tracebacks"] == 0
    assert found["refused"] > found["cases"] / 2  # most of them are nonsense
