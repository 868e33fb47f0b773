"""What a measure came to, as numbers: for a file, a table and a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from outspan.measurement.scores import (
    Changes,
    Intervals,
    Predictions,
    corrected_and_broken,
    count_ties,
    difference_intervals,
    intervals,
    scores,
    scores_by_class,
)
from outspan.measurement.study import BASELINE, Measured

LEVEL, DRAWS = 0.95, 1000
FEW = 3  # seeds whose estimate stands beside that of all: the paper's Appendix B
_SHARED = (
    "all seeds saw the same images and transforms in the same order and differ by their initialisation alone: "
    "their instability is not that of independent runs"
)


def about(
    settings: Mapping[str, Any], seeds: Sequence[int], several: Mapping[str, Predictions], *, seed: int = 0
) -> dict[str, Any]:
    """Return what every study says first: how it was made, and what a reader must not overlook."""
    found = {"settings": dict(settings), "seeds": list(seeds), "samples": len(several[BASELINE].labels)}
    found["kind"] = "texts" if " texts, " in settings.get("test", "") else "images"
    found |= count_ties(several.values(), seed=seed)
    labels, classes = several[BASELINE].labels, several[BASELINE].classes
    found["largest_class"] = int(labels.bincount().max()) / len(labels)
    found["learnt"] = bool((classes == labels).double().mean() > found["largest_class"])
    return found | ({"note": _SHARED} if settings.get("shared_batches") else {})


def summarise(measured: Measured, *, seed: int = 0) -> dict[str, Any]:
    """Return the scores of the baseline and of each transform, with intervals, and what each corrects and breaks."""
    several = measured.predictions
    around = intervals(several, level=LEVEL, draws=DRAWS, seed=seed)
    apart = difference_intervals(several, BASELINE, level=LEVEL, draws=DRAWS, seed=seed)
    entries = {name: _entry(some, around[name], measured, seed) for name, some in several.items()}
    for name, difference in apart.items():
        entries[name]["difference"] = _difference(entries[name], entries[BASELINE], difference)
        entries[name] |= _changed(corrected_and_broken(several[name], several[BASELINE], seed=seed))
    found = about(measured.settings, measured.seeds, several, seed=seed)
    found["intervals"] = {"level": LEVEL, "draws": DRAWS, "over": "test samples; the models stay as they are"}
    return found | {BASELINE: entries.pop(BASELINE), "transforms": entries}


def _entry(some: Predictions, around: Intervals, measured: Measured, seed: int) -> dict[str, Any]:
    whole = scores(some, seed=seed)
    right = (some.classes == some.labels).sum(1).tolist()
    accuracy = {"value": whole.accuracy, "std": whole.std, "interval": list(around.accuracy)}
    entry: dict[str, Any] = {
        "accuracy": accuracy | {"by_seed": [count / whole.samples for count in right]},
        "error": {"value": whole.error, "interval": list(around.error)},
        "instability": {"value": whole.instability, "interval": list(around.instability)},
        "ties": whole.ties,
    }
    if len(some.classes) > FEW:
        few = asdict(scores(some.first(FEW), seed=seed))
        entry[f"first_{FEW}_seeds"] = {key: few[key] for key in ("accuracy", "error", "instability", "ties")}
    by_class = {measured.classes[label]: asdict(own) for label, own in scores_by_class(some, seed=seed).items()}
    return entry | {"by_class": by_class}


def _difference(entry: Mapping[str, Any], baseline: Mapping[str, Any], apart: Intervals) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, interval in (("accuracy", apart.accuracy), ("error", apart.error), ("instability", apart.instability)):
        found[key] = {"value": entry[key]["value"] - baseline[key]["value"], "interval": list(interval)}
    low, high = apart.error
    return found | {"verdict": "better" if high < 0 else "worse" if low > 0 else "not told apart"}


def _changed(changes: Changes) -> dict[str, Any]:
    corrected = {"count": len(changes.corrected), "baseline_accuracy": changes.baseline_on_corrected}
    return {"corrected": corrected, "broken": {"count": len(changes.broken), "accuracy": changes.own_on_broken}}


def save_predictions(path: Path, measured: Measured) -> None:
    """Write all predictions as an .npz file: labels [n], seeds [k], and classes [k, n] by name; the same bytes every time."""
    arrays: dict[str, Any] = {"labels": measured.predictions[BASELINE].labels.numpy(), "seeds": np.array(measured.seeds)}
    arrays |= {name: some.classes.numpy() for name, some in measured.predictions.items()}
    with open(path, "wb") as file:  # numpy dates every entry 1980
        np.savez_compressed(file, **arrays)


def load_predictions(path: Path) -> dict[str, Predictions]:
    """Return the predictions in such a file, by name."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: torch.from_numpy(file[name]) for name in file.files}
        labels, _ = arrays.pop("labels"), arrays.pop("seeds")
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not the predictions of a measure ({error})") from None
    return {name: Predictions(classes, labels) for name, classes in arrays.items()}
