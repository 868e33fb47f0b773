"""Checkpoints with a valid digest and invalid content: they are refused in one line, or the older checkpoint is used."""

import json
from typing import Any

import pytest
import torch

from crafted import count_tracebacks, crafted_metadata, make_run, write
from outspan.training import checkpoint
from outspan.training.train import train
from outspan.training.trained import load as load_model


@pytest.fixture(scope="module")
def stored_run(tmp_path_factory):
    """Return the recipe, tensors and metadata of a tiny run that was stopped in the middle of its second epoch."""
    return make_run(tmp_path_factory.mktemp("run"))


@pytest.mark.slow
def test_with_invalid_metadata_the_older_checkpoint_is_used(stored_run, tmp_path):
    _, _, metadata = stored_run
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
    absent = {name for name in accepted if name.endswith(" missing") and not name.startswith((*UNCHECKED, "chosen."))}
    optional = ("data.train_digest", "data.test_digest", "data.cache", "metrics.0.lr", "unchanged")
    assert absent == {f"{key} missing" for key in optional}
    for name in (name for name in accepted if not name.endswith(" missing")):
        key, _, wrong = name.partition(" = ")
        assert name.startswith(UNCHECKED) or (json_type(wrong) == json_type(repr(value_at(metadata, key))) and wrong != "-5"), (
            name
        )


UNCHECKED = ("setting.", "recipe.")  # information only; and the recipe, which is compared with the requested one


def value_at(metadata: Any, key: str) -> Any:
    for part in key.split("."):
        metadata = metadata[int(part) if isinstance(metadata, list) else part]
    return metadata


def json_type(text: str) -> str:
    """Return the JSON type of a value by its first character."""
    return "number" if text[0] in "0123456789-" else "text" if text[0] in "'\"" else text[0]


@pytest.mark.parametrize("key", ["step", "recipe", "data", "setting", "metrics", "chosen", "losses", "seconds"])
def test_the_message_names_the_invalid_key(stored_run, tmp_path, key):
    _, tensors, metadata = stored_run
    for changed in ({k: v for k, v in metadata.items() if k != key}, {**metadata, key: -5}):
        write(tmp_path / "step-000000004.safetensors", tensors, json.dumps(changed))
        with pytest.raises(ValueError, match=f"no complete checkpoint, step-000000004.safetensors damaged .*'{key}'"):
            load_model(tmp_path)


def test_steps_and_metrics_that_contradict_each_other_are_refused(stored_run, tmp_path):
    recipe, tensors, metadata = stored_run
    for changed, message in (
        ({"step": -5}, "'step' must be an integer of at least 0, got -5"),
        ({"step": 7, "metrics": metadata["metrics"] * 2}, "'step' must be at most the run's 6 steps, got 7"),
        ({"step": 6}, "'metrics' must have a row for each of 2 epochs, got 1"),
        ({"data": metadata["data"] | {"mean": []}}, r"'data.mean' must have 1 values, got 0"),
    ):
        write(tmp_path / "step-000000004.safetensors", tensors, json.dumps(metadata | changed))
        with pytest.raises(ValueError, match=message):
            train(recipe, out=tmp_path)


def test_tensors_that_do_not_match_the_model_are_refused_by_name(stored_run, tmp_path):
    recipe, tensors, metadata = stored_run
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
def test_no_crafted_checkpoint_causes_a_traceback(every, changes, tmp_path, one_thread):
    counts = count_tracebacks(tmp_path, every=every, **changes)
    print(counts)
    assert counts["first"] == []
    assert counts["tracebacks"] == 0
    assert counts["refused"] > counts["cases"] / 2  # most cases are invalid
