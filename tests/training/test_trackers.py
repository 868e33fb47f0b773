"""Trackers get every epoch once, also after a restart, and examples of what was trained on. They do not change the run."""

import json
import math
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import outspan
from outspan.policies.ranks import Part
from outspan.training import Stopped, run
from outspan.training.examples import make_examples
from outspan.training.train import train
from outspan.transforms.normalize import Normalize
from trained_runs import SMALL, equal, few, final

RANDOM = replace(SMALL, policy="random", defaults="flip")


def read_events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return events


@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_tensorboard_has_every_epoch_once_after_a_restart(tmp_path):
    with pytest.raises(Stopped):
        train(RANDOM, out=tmp_path, splits=few(), track="tensorboard", on_step=lambda progress: progress.step == 20)
    with pytest.raises(Stopped):
        train(RANDOM, out=tmp_path, splits=few(), track="tensorboard", on_step=lambda progress: progress.step == 25)
    summary = train(RANDOM, out=tmp_path, splits=few(), track="tensorboard")
    events = read_events(tmp_path)
    logged = {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}
    assert [step for step, _ in logged["test_accuracy"]] == [10, 20, 30]
    assert [value for _, value in logged["train_loss"]] == pytest.approx([row["train_loss"] for row in summary.metrics])
    assert [value for _, value in logged["lr"]] == pytest.approx([row["lr"] for row in summary.metrics])
    final_lr = 0.05 * (1 + math.cos(math.pi * (29 - 0.6) / (30 - 0.6)))  # after 30 steps with a warm-up of 2 %
    assert summary.metrics[-1]["lr"] == pytest.approx(final_lr)
    pictures = events.Images("examples")
    assert [picture.step for picture in pictures] == [10, 20, 30]
    assert all(picture.width > picture.height > 100 for picture in pictures)


@pytest.mark.parametrize("policy", ["random", "uncertain"])
def test_the_examples_are_what_the_model_was_trained_on(tmp_path, monkeypatch, policy):
    steps, take_step = [], run.take_step

    def record(state, learner, recipe, batch, lr, **options):
        losses = take_step(state, learner, recipe, batch, lr, **options)
        steps.append((batch, losses.clone()))
        return losses

    monkeypatch.setattr(run, "take_step", record)
    reports = []
    train(replace(RANDOM, policy=policy), out=tmp_path, splits=few(), track=reports.append)
    preprocess = Normalize(*few().train.statistics())
    pixels = {image.numpy().tobytes() for image in few().train.images}
    assert [report.metrics["step"] for report in reports] == [10, 20, 30]
    for report in reports:
        batch, losses = steps[int(report.metrics["step"]) - 1]
        assert torch.equal(preprocess(torch.stack([one.augmented for one in report.examples])), batch.inputs[:8])
        assert [one.loss for one in report.examples] == losses[:8].tolist()
        assert all(one.original.numpy().tobytes() in pixels for one in report.examples)
        for row, one in enumerate(report.examples):
            plan = batch.plan
            names = [plan.names[op] for op in plan.ops[plan.out[row]].tolist() if op >= 0]
            assert one.caption == f"{'+'.join(names) or 'none'}, loss {losses[row]:.3f}"
            assert names or torch.equal(one.original, one.augmented)


def test_trackers_do_not_change_the_run_and_get_the_same_examples_after_a_restart(tmp_path):
    train(RANDOM, out=tmp_path / "plain", splits=few())
    whole, resumed = [], []
    train(RANDOM, out=tmp_path / "whole", splits=few(), track=[whole.append])
    for stop in (5, 10, 25, None):
        try:
            train(
                RANDOM,
                out=tmp_path / "a",
                splits=few(),
                track=[resumed.append],
                on_step=lambda now, stop=stop: now.step == stop,
            )
        except Stopped:
            continue
    assert equal(final(tmp_path / "plain"), final(tmp_path / "whole"))
    assert equal(final(tmp_path / "plain"), final(tmp_path / "a"))
    assert [report.metrics for report in resumed] == [report.metrics for report in whole]
    for one, other in zip(whole, resumed, strict=True):
        assert [example.caption for example in one.examples] == [example.caption for example in other.examples]
        assert all(torch.equal(a.augmented, b.augmented) for a, b in zip(one.examples, other.examples, strict=True))


def test_long_runs_have_about_ten_epochs_with_examples(tmp_path):
    reports = []
    train(replace(SMALL, epochs=24, batch=20), out=tmp_path, splits=few(20), track=reports.append)
    assert len(reports) == 24
    assert [report.metrics["epoch"] for report in reports if report.examples] == [0, 3, 6, 9, 12, 15, 18, 21, 23]


def test_the_examples_of_a_rank_are_from_its_own_rows():
    images, labels = few(8).train.images, torch.arange(8)
    policy = outspan.Plain(outspan.randaugment(2, 9), classes=10, preprocess=Normalize((0.5,), (0.5,)))
    losses = torch.arange(8.0)
    whole = make_examples(images, policy(images, labels, step=3), losses, "images", policy.preprocess)
    part = Part(images[:4], range(4), 8, lambda values: values)
    own = make_examples(part, policy(part, labels, step=3), losses, "images", policy.preprocess)
    assert [one.caption for one in own] == [one.caption for one in whole[:4]]
    assert all(torch.equal(a.augmented, b.augmented) for a, b in zip(own, whole[:4], strict=True))


@pytest.mark.parametrize(
    ("track", "message"),
    [
        ("tensorbord", "unknown tracker 'tensorbord', did you mean 'tensorboard'"),
        (
            "mlflow",
            r"unknown tracker 'mlflow' \(known: tensorboard, wandb, functions in Python, as in outspan.train\(track=function",
        ),
        (["wandb", 3], r"track must be names of trackers \(tensorboard, wandb\) or functions, got \['wandb', 3\]"),
        (5, "track must be names of trackers"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_trackers_are_refused_before_the_folder_is_made(tmp_path, track, message):
    with pytest.raises(ValueError, match=message):
        outspan.train(SMALL, out=tmp_path / "run", splits=few(), track=track)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")])
def test_a_missing_tracker_is_named(tmp_path, monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf"tracker '{name}' is not installed: pip install 'outspan\[track\]'"):
        train(SMALL, out=tmp_path / "run", splits=few(), track=name)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["", "{", "3", '{"id": 3, "step": 0}', '{"id": "a"}', "[" * 5000])
def test_a_damaged_identifier_of_weights_and_biases_is_refused(tmp_path, text):
    with pytest.raises(Stopped):
        train(SMALL, out=tmp_path, splits=few(), on_step=lambda progress: progress.step == 12)
    (tmp_path / "wandb.json").write_text(text)
    with pytest.raises(ValueError, match=r"wandb\.json: damaged; remove it, and the run is logged as a new one"):
        train(SMALL, out=tmp_path, splits=few(), track="wandb")


def read_records(file: Path) -> Iterator[dict[str, str]]:
    """Yield the rows that were logged to a .wandb file: a header, then blocks of 32 KiB of framed records."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record = file.read_bytes(), 7, b""
    while at < len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, position = struct.unpack_from("<IHB", data, at)  # 1: whole, 4: the last part
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if position in (1, 4):
            items, record = Record.FromString(record).history.item, b""
            if items:
                yield {item.key or "/".join(item.nested_key): item.value_json for item in items}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # its own
def test_weights_and_biases_has_every_epoch_once_after_a_restart(tmp_path, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    reports, out = [], tmp_path / "run"
    for stop in (15, 25, None):
        try:
            train(
                RANDOM, out=out, splits=few(), track=["wandb", reports.append], on_step=lambda now, stop=stop: now.step == stop
            )
        except Stopped:
            (out / "step-000000025.safetensors").unlink(missing_ok=True)  # then step 20, which is logged, is done again
    wandb.teardown()  # its process may still be writing
    rows = [row for file in sorted(out.glob("wandb/offline-run-*/*.wandb")) for row in read_records(file)]
    assert len({file.name for file in out.glob("wandb/offline-run-*/*.wandb")}) == 1  # one run, continued
    assert [float(row["_step"]) for row in rows] == [10, 20, 30]
    assert [float(row["test_accuracy"]) for row in rows] == [row["test_accuracy"] for row in final(out)[1]["metrics"]]
    captions = {report.metrics["step"]: [one.caption for one in report.examples] for report in reports}
    assert {int(row["_step"]): json.loads(row["examples/captions"]) for row in rows} == captions
    pictures = [np.asarray(Image.open(file)) for file in out.glob("wandb/offline-run-*/files/media/images/*.png")]
    assert len(pictures) == 24
    first = reports[0].examples[0]
    expected = torch.cat([first.original, first.augmented], dim=2).expand(3, -1, -1).permute(1, 2, 0).numpy()
    assert any(np.array_equal(picture, expected) for picture in pictures)
