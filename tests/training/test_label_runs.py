"""Runs with several labels per sample, after the training: the best epoch, report, export and the command line."""

import csv
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn import metrics as peer

import outspan
from outspan.data.stratify import hold_out
from outspan.training.distributed import Ranks
from outspan.training.logits import validation_metrics
from outspan.training.train import train
from outspan.training.validation import has_stopped
from trained_runs import SMALL, few, make_pairs

MULTI = replace(SMALL, batch=32, epochs=4)
VALIDATED = replace(MULTI, policy="none", validation=50, epochs=5)


def test_the_best_epoch_is_that_with_the_highest_map(tmp_path):
    """Exact matches may be 0 in all epochs, so they do not decide. The reference is the mAP of the loaded weights."""
    data = make_pairs()
    summary = train(VALIDATED, out=tmp_path, splits=data)
    values = [row["validation_map"] for row in summary.metrics]
    assert summary.best.epoch == values.index(max(values))
    assert (summary.best.metric, summary.best.score) == ("map", max(values))
    held_out = hold_out(data.train, VALIDATED.validation, VALIDATED.seed)[1]
    best = outspan.load(tmp_path, best=True)
    probabilities = outspan.predict(best, held_out.images).probabilities.double().numpy()
    occurs = held_out.labels.any(0).numpy()
    expected = peer.average_precision_score(held_out.labels.numpy()[:, occurs], probabilities[:, occurs], average="macro")
    assert max(values) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("metric", ["map", "macro_f1"])
def test_ranks_compute_the_metric_of_all_samples(metric):
    """Each of three ranks evaluates a part; what they exchange is replaced by the sum of what each of them sends."""
    split, sent = (make_pairs(40, 25) if metric == "map" else few(40)).test, []
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(10))
    arguments = model, split, outspan.Normalize((0.5,), (0.5,)), "cpu"

    class Sending(Ranks):
        def all_reduce(self, values, *, largest=False):
            sent.append(values.clone())

    class Receiving(Ranks):
        def all_reduce(self, values, *, largest=False):
            values.copy_(sum(sent))

    for rank in range(3):
        validation_metrics(*arguments, Sending(rank, 3), metric)
    scores = validation_metrics(*arguments, Receiving(1, 3), metric)
    assert scores.keys() == {"accuracy", metric}
    assert scores == pytest.approx(validation_metrics(*arguments, Ranks(), metric))


def test_patience_reads_the_map():
    rows = [{"validation_map": value, "validation_accuracy": 0.0, "test_accuracy": 0.0} for value in (0.1, 0.3, 0.2, 0.25)]
    assert not has_stopped(rows[:3], 2)
    assert has_stopped(rows, 2)
    assert not has_stopped([*rows[:3], {**rows[0], "validation_map": 0.4}], 2)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Return the folder of a run with validation, and the file of its data."""
    folder = tmp_path_factory.mktemp("pairs")
    data, arrays = make_pairs(), {}
    for name, split in (("train", data.train), ("test", data.test)):
        arrays |= {f"x_{name}": split.images.numpy(), f"y_{name}": split.labels.numpy()}
    np.savez(folder / "pairs.npz", **arrays)
    keys = {"data": str(folder / "pairs.npz"), "epochs": 4, "policy": "uncertain", "model": "mlp", "validation": 30}
    outspan.train(replace(MULTI, **keys), out=folder / "run")
    return folder


def test_a_report_has_the_metrics_of_labels(pairs):
    page = outspan.report(pairs / "run", out=pairs / "report.html").read_text()
    evaluation = outspan.evaluate(pairs / "run")
    for name in ("average precision, mean (mAP)", "F1, over all labels", "average precision, %", "validation, mAP"):
        assert name in page
    assert f"{100 * evaluation.metrics.map:.2f}" in page
    assert "could not" not in page


def test_an_onnx_file_has_independent_probabilities(pairs, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the exporter
        outspan.export(pairs / "run", tmp_path / "model.onnx")
    images = make_pairs(20, 5).train.images
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    run = outspan.load(pairs / "run")
    with torch.inference_mode():
        expected = torch.sigmoid(run.model(run.preprocess(images)))
    np.testing.assert_allclose(session.run(None, {"images": images.numpy()})[0], expected.numpy(), rtol=0, atol=1e-4)


def test_a_folder_for_hugging_face_is_loaded_with_several_labels(pairs, tmp_path):
    result = outspan.export(pairs / "run", tmp_path / "model", format="huggingface")
    run, again = outspan.load(pairs / "run"), outspan.load(result.path)
    images = make_pairs(20, 5).train.images
    assert again.multi_label
    assert torch.equal(again.predict(images).probabilities, run.predict(images).probabilities)
    card, evaluation = (result.path / "README.md").read_text(), outspan.evaluate(pairs / "run")
    assert f"Test mAP {100 * evaluation.metrics.map:.2f} %" in card
    assert "with 10 classes, of which a sample can have several" in card
    assert "| class | samples | average precision, % | recall, % |" in card
    assert ".labels(0.5)" in card


def test_commands_print_several_labels(pairs, run):
    folder, image = pairs / "run", pairs / "one.png"
    assert "average precision, mean (mAP)" in run("evaluate", folder)
    Image.fromarray(make_pairs().test.images[0, 0].numpy()).save(image)
    probabilities = outspan.predict(folder, [image]).probabilities[0]
    printed = json.loads(run("predict", folder, image, "--threshold", 0.1, "--json"))["probabilities"]
    assert printed.keys() == {str(i) for i in (probabilities > 0.1).nonzero().flatten().tolist()}
    assert "one.png  no class above 100 %" in run("predict", folder, image, "--threshold", 1)
    for name in ("out.csv", "out.jsonl"):
        run("predict", folder, image, "--threshold", 0.1, "-o", pairs / name)
    assert json.loads((pairs / "out.jsonl").read_text())["labels"] == [*printed]
    [row] = csv.DictReader((pairs / "out.csv").read_text().splitlines())
    assert row["labels"] == ";".join(printed)


def test_policies_are_compared_by_map(pairs, tmp_path):
    keys = {"data": str(pairs / "pairs.npz"), "model": "mlp", "epochs": 1, "batch": 32}
    result = outspan.compare(policies="none,random", metric="map", out=tmp_path, **keys)
    runs = {folder.parent: outspan.evaluate(folder.parent).metrics.map for folder in tmp_path.rglob("recipe.toml")}
    values = [value for one in result.budgets[1.0].values() for value in one.values]
    assert sorted(values) == pytest.approx(sorted(runs.values()))
    defined = "10 classes and several labels per sample: use one of map, micro_f1, macro_f1, accuracy, label_accuracy"
    with pytest.raises(ValueError, match=f"metric 'auroc' is not defined .* {defined}"):
        outspan.compare(policies="none,random", metric="auroc", out=tmp_path / "other", **keys)
