"""The result of a measurement: a hand-made table, the verdicts, and the file of predictions."""

import json
import zipfile

import pytest
import torch

from outspan.measurement.effects import summarize
from outspan.measurement.predictions import Predictions, load_predictions, save_predictions
from outspan.measurement.recipes import BASELINE
from outspan.measurement.scores import compute_scores
from outspan.measurement.study import StudyResult
from studies import SETTINGS


def test_summary_by_hand():
    """Four seeds and four samples. The baseline is wrong on one sample and tied on another. `rotate` corrects the first."""
    labels = torch.tensor([0, 1, 2, 2])
    baseline = torch.tensor([[0, 0, 2, 2], [0, 0, 2, 2], [0, 0, 2, 0], [0, 1, 2, 0]])
    rotate = labels.repeat(4, 1)
    several = {BASELINE: Predictions(baseline, labels), "rotate": Predictions(rotate, labels)}
    measured, counts = StudyResult(SETTINGS, range(4), ("a", "b", "c"), several), set()
    result = summarize(measured).as_dict()
    assert result["ties"] == result["baseline"]["ties"] == 1
    assert result["seeds"] == [0, 1, 2, 3]
    assert result["samples"] == 4
    assert "note" not in result
    assert result["baseline"]["accuracy"]["by_seed"] == [0.75, 0.75, 0.5, 0.75]
    assert result["baseline"]["accuracy"]["value"] == 11 / 16
    entry = result["transforms"]["rotate"]
    assert entry["error"]["value"] == entry["instability"]["value"] == entry["ties"] == 0
    for seed in range(8):  # a tie is decided at random; if it was wrong, it is corrected
        other = summarize(measured, seed=seed)
        counts.add((other.baseline.error.value, other.transforms["rotate"].effect.corrected))
    assert counts == {(0.25, 1), (0.5, 2)}
    assert entry["broken"] == {"count": 0, "accuracy": None}
    assert entry["difference"]["error"]["value"] == -result["baseline"]["error"]["value"]
    assert entry["difference"]["verdict"] == "not told apart"  # four samples are too few
    assert result["baseline"]["by_class"]["b"] == {
        "samples": 1, "accuracy": 0.25, "std": 0.5, "error": 1.0, "instability": 0.25, "ties": 0,
    }  # fmt: skip
    assert result["baseline"]["first_3_seeds"]["accuracy"] == compute_scores(several[BASELINE].first(3)).accuracy
    json.dumps(result, allow_nan=False)


def test_verdicts():
    labels = torch.zeros(200, dtype=torch.int64)
    half = (torch.arange(200) % 2).repeat(2, 1)
    several = {BASELINE: half, "rotate": 0 * half, "invert": 0 * half + 1, "blur": half}
    ensembles = {name: Predictions(classes, labels) for name, classes in several.items()}
    result = summarize(StudyResult(SETTINGS, range(2), ("a", "b"), ensembles))
    verdicts = {name: one.effect.verdict for name, one in result.transforms.items()}
    assert verdicts == {"rotate": "better", "invert": "worse", "blur": "no significant difference"}
    assert result.by_verdict("better") == ("rotate",)
    values = result.as_dict()["transforms"]
    assert values["blur"]["difference"]["verdict"] == "not told apart"  # the value in files must stay the same
    assert values["rotate"]["corrected"] == {"count": 100, "baseline_accuracy": 0.0}
    assert values["invert"]["broken"] == {"count": 100, "accuracy": 0.0}


def test_the_figure_shows_the_scores():
    labels = torch.zeros(200, dtype=torch.int64)
    half = torch.stack([torch.arange(200) % 2, torch.arange(200) % 2, torch.arange(200) % 4])
    several = {BASELINE: half, "rotate": 0 * half, "invert": 0 * half + 1, "blur": half}
    ensembles = {name: Predictions(classes, labels) for name, classes in several.items()}
    for noun in ("images", "texts"):
        result = summarize(StudyResult(SETTINGS, range(3), ("a", "b"), ensembles, noun=noun))
        axis = result.figure().axes[0]
        assert axis.get_title() == f"3 seeds, 200 test {noun}, 95 % intervals over {noun}"
    scored = {BASELINE: result.baseline} | {name: one.scores for name, one in result.transforms.items()}
    assert {text.get_text() for text in axis.texts} == set(scored)
    for text in axis.texts:
        scores = scored[text.get_text()]
        assert text.xy == pytest.approx((100 * scores.instability.value, 100 * scores.error.value))


def test_predictions_are_loaded_as_stored_and_have_no_time_stamp(tmp_path):
    ensembles = Predictions(torch.tensor([[0, 1], [1, 1]]), torch.tensor([0, 1]))
    save_predictions(tmp_path / "p.npz", {BASELINE: ensembles, "blur": ensembles}, [0, 1])
    result = load_predictions(tmp_path / "p.npz")
    assert list(result) == [BASELINE, "blur"]
    assert torch.equal(result["blur"].classes, ensembles.classes)
    with zipfile.ZipFile(tmp_path / "p.npz") as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    (tmp_path / "bad.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="not a file of predictions"):
        load_predictions(tmp_path / "bad.npz")
