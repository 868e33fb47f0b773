"""Which compositions of transforms were chosen in each epoch, how often, and at what loss (Figure 1 of the paper)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from torch import Tensor

from outspan.files import write_lines
from outspan.plan import Plan
from outspan.shapes import Float32, Int64
from outspan.training.metadata import is_count
from outspan.transforms.table import find

FILE = "compositions.jsonl"
Counts = dict[str, list[float]]  # "rotate+shear_y": [number chosen, sum of their losses]


class Line(TypedDict):
    """A line of the file: an epoch, and for each composition its `count` and mean `loss`."""

    epoch: int
    compositions: dict[str, dict[str, float]]


def add_step(
    counts: Counts, drawn: Plan, chosen: Int64[Tensor, " B"], losses: Float32[Tensor, "images candidates"], depth: int
) -> None:
    """Add the compositions that a step has chosen: the first `depth` transforms of each chosen row, in order."""
    rows = chosen.cpu().numpy()
    weights = losses.flatten().double().cpu().numpy()[rows]
    ops = drawn.ops[drawn.out].numpy()[rows, :depth]
    distinct, index = np.unique(ops, axis=0, return_inverse=True)
    index = index.reshape(-1)
    sums = zip(np.bincount(index).tolist(), np.bincount(index, weights=weights).tolist(), strict=True)
    for composition, (number, loss) in zip(distinct.tolist(), sums, strict=True):
        entry = counts.setdefault("+".join(drawn.names[op] for op in composition if op >= 0) or "none", [0, 0.0])
        entry[0] += number
        entry[1] += loss


def add_epoch(out: Path, epoch: int, counts: Counts) -> None:
    """Write the line of an epoch. Lines of this and later epochs, which an interrupted run wrote, are removed."""
    lines = [line for line in read(out) if line["epoch"] < epoch] if (out / FILE).exists() else []
    row = {name: {"count": number, "loss": loss / number} for name, (number, loss) in sorted(counts.items())}
    write_lines(out / FILE, [*lines, {"epoch": epoch, "compositions": row}])


def read(out: Path) -> list[Line]:
    """Return the lines of a run, one per epoch. If there are none, raise a ValueError."""
    try:
        lines = [json.loads(line) for line in (out / FILE).read_text().splitlines()]
    except FileNotFoundError:
        raise ValueError(
            f"{out}: no {FILE}: it is written by a policy that keeps fewer candidates than it draws, after the first epoch"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{out / FILE}: damaged ({error}); remove the file") from None
    if not lines or not all(_is_epoch(line) for line in lines):
        raise ValueError(f"{out / FILE}: damaged (a line does not describe an epoch); remove the file")
    return lines


def _is_epoch(line: Any) -> bool:
    if not isinstance(line, dict) or type(line.get("epoch")) is not int or line["epoch"] < 0:
        return False
    chosen = line.get("compositions")
    entries = chosen.values() if isinstance(chosen, dict) else ()
    return bool(entries) and all(isinstance(entry, dict) and is_count(entry.get("count"), 1) for entry in entries)


def fractions(lines: Sequence[Line]) -> dict[str, list[float]]:
    """Return each composition's fraction of all choices, by epoch. Both orders of a pair count as one composition."""
    result: dict[str, list[float]] = {}
    for i, line in enumerate(lines):
        total = sum(entry["count"] for entry in line["compositions"].values())
        for name, entry in line["compositions"].items():
            unordered = "+".join(sorted(name.split("+")))
            result.setdefault(unordered, [0.0] * len(lines))[i] += entry["count"] / total
    return result


def mean_by_fifth(curves: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return each composition's mean fraction in each fifth of the epochs. With fewer than 5 epochs, in each epoch."""
    return {name: [float(part.mean()) for part in np.array_split(curve, min(5, len(curve)))] for name, curve in curves.items()}


def most_changed(fractions: Mapping[str, Sequence[float]], *, count: int = 5) -> list[str]:
    """Return the `count` compositions that rose most and the `count` that fell most, from the first to the last fifth."""
    parts = mean_by_fifth(fractions)
    ranked = sorted(parts, key=lambda name: parts[name][0] - parts[name][-1])
    return list(dict.fromkeys([*ranked[:count], *ranked[-count:]]))


def with_marked(
    fractions: Mapping[str, Sequence[float]], marked: Sequence[str]
) -> tuple[dict[str, Sequence[float]], list[str]]:
    """Add marked compositions that were never chosen to the fractions, with 0. Return the fractions and the marked names.

    Both orders of a pair are one composition: the parts of a name are sorted. An unknown transform is a ValueError.
    """
    names = list(dict.fromkeys("+".join(sorted(part.strip() for part in name.split("+"))) for name in marked))
    for part in (part for name in names if name not in fractions for part in name.split("+")):
        find(part)
    epochs = max(map(len, fractions.values()))
    return dict(fractions) | {name: [0.0] * epochs for name in names if name not in fractions}, names
