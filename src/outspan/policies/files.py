"""Published policy files: the list of pairs of Fast AutoAugment, and the schedules of PBA.

Both files contain Python lists (the first is also JSON). They are parsed and never executed.
"""

import ast
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np

from outspan.messages import shown, unknown
from outspan.policies.lists import find_list, items_of, read_text, refuse, value_of
from outspan.policies.proposals import one_pair
from outspan.policies.published import factor_level
from outspan.policies.sampler import propose
from outspan.policies.steps import Proposal, Schedule, Step

_MIRRORED = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")  # applied with a random sign


def _no_level(_: float) -> float:
    return 0.0


def _from_middle(fraction: float) -> float:
    return abs(2 * fraction - 1)  # the published range is symmetric about 0


# The operations of Fast AutoAugment (arXiv:1905.00397): for each name in its code, our name, and our level as a function of the
# fraction of its range.
FAST_AUTOAUGMENT_LEVELS: Mapping[str, tuple[str, Callable[[float], float]]] = MappingProxyType(
    {
        "ShearX": ("shear_x", _from_middle),  # up to 0.3
        "ShearY": ("shear_y", _from_middle),
        "TranslateX": ("translate_x", lambda fraction: _from_middle(fraction) * 0.45 / (10 / 32)),  # up to 0.45 of the side
        "TranslateY": ("translate_y", lambda fraction: _from_middle(fraction) * 0.45 / (10 / 32)),
        "Rotate": ("rotate", _from_middle),  # up to 30 degrees
        "AutoContrast": ("auto_contrast", _no_level),
        "Invert": ("invert", _no_level),
        "Equalize": ("equalize", _no_level),
        "Solarize": ("solarize", lambda fraction: 1 - fraction),  # thresholds from 0 to 256
        "Posterize": ("posterize", lambda fraction: (4 - int(4 * fraction)) / 4),  # 4 to 8 bits, rounded down
        "Contrast": ("contrast", factor_level),
        "Color": ("color", factor_level),
        "Brightness": ("brightness", factor_level),
        "Sharpness": ("sharpness", factor_level),
        "Cutout": ("cutout", lambda fraction: 0.4 * fraction),  # up to a fifth of the side
    }
)

# The transforms of PBA (arXiv:1905.05393), in the order of the numbers in its files: our level as a function of the magnitude,
# from 0 to 10, for 32-pixel images.
PBA_LEVELS: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {
        "auto_contrast": _no_level,
        "equalize": _no_level,
        "invert": _no_level,
        "rotate": lambda magnitude: magnitude / 10,
        "posterize": lambda magnitude: (4 + int(0.4 * magnitude)) / 4,  # 4 bits to 0 bits
        "solarize": lambda magnitude: int(25.6 * magnitude) / 256,
        "color": lambda magnitude: factor_level(magnitude / 10),
        "contrast": lambda magnitude: factor_level(magnitude / 10),
        "brightness": lambda magnitude: factor_level(magnitude / 10),
        "sharpness": lambda magnitude: factor_level(magnitude / 10),
        "shear_x": lambda magnitude: magnitude / 10,
        "shear_y": lambda magnitude: magnitude / 10,
        "translate_x": lambda magnitude: magnitude / 10,  # up to 10 pixels
        "translate_y": lambda magnitude: magnitude / 10,
        "cutout": lambda magnitude: min(magnitude / 8, 1.0),  # 2 pixels per unit of magnitude, at most 16
    }
)
_COUNTS = (0.2, 0.5)  # cumulative: 20 % of the images get no transform, 30 % get one, 50 % get two
_NUMBERS = 4 * len(PBA_LEVELS)  # of a policy: every transform twice, each time with a probability and a magnitude


def file_and_function(file: str) -> tuple[str, str]:
    """Return the two parts of `FILE#FUNCTION`. The function is "" if there is none, or if a file has this whole name."""
    path, mark, name = file.rpartition("#")
    return (path, name) if mark and name.isidentifier() and not os.path.isfile(file) else (file, "")


def fast_autoaugment(file: str) -> Proposal:
    """Read pairs of [name, probability, level]; each image gets one pair. `FILE#FUNCTION` reads a list in published code."""
    path, name = file_and_function(file)
    try:
        pairs = find_list(Path(path), name)
        options = [step for pair in items_of(path, pairs, "a list of pairs") for step in _read_pair(path, pair)]
    except RecursionError:
        raise ValueError(f"{path}: not a policy file: nested too deeply") from None
    if not options:
        refuse(path, pairs, "the list is empty")
    return one_pair(options)


def pba(file: str, *, searched: int, epochs: int, epoch_steps: int) -> Schedule:
    """Read a schedule of a search of `searched` epochs, and stretch it to `epochs` epochs of `epoch_steps` steps each."""
    lines = [(number, text) for number, text in enumerate(read_text(Path(file)).splitlines(), 1) if text.strip()]
    changes = _lineage(file, [_read_change(file, number, text) for number, text in lines])
    starts = [0, *(change.epoch for change in changes)]
    for change, previous in zip(changes, starts, strict=False):
        if not previous <= change.epoch <= searched:
            allowed = f"[{previous}, {searched}], not before the previous line and within the search (policy_epochs)"
            raise ValueError(f"{file}, line {change.line}: the epoch must lie in {allowed}, got {shown(change.epoch)}")
    policies = [changes[0].before, *(change.after for change in changes)]
    ends = [-(-change.epoch * epochs // searched) * epoch_steps for change in changes]
    return Schedule(tuple(_pba_proposal(numbers) for numbers in policies), tuple(ends))


def _pba_proposal(numbers: list[int]) -> Proposal:
    """Return the proposal that tries the transforms in random order, each with its probability, until 0, 1 or 2 are applied."""
    names = [*PBA_LEVELS, *PBA_LEVELS]
    levels = [PBA_LEVELS[name](numbers[2 * i + 1]) for i, name in enumerate(names)]
    steps = [Step(name, level, level, mirrored=name in _MIRRORED) for name, level in zip(names, levels, strict=True)]
    return propose([*steps, Step("identity")], 2, partial(_pick_drawn, np.array(numbers[::2]) / 10))


def _pick_drawn(probabilities: np.ndarray, bits: np.ndarray, generators: Sequence[np.random.Generator]) -> np.ndarray:
    rows = len(bits) // len(generators)
    return np.concatenate([_draw_steps(probabilities, rows, rng) for rng in generators])


def _draw_steps(probabilities: np.ndarray, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return the indices of two steps for each row, [rows, 2]. The last step, the identity, stands for no transform."""
    is_drawn = rng.random((rows, len(probabilities))) < probabilities
    order = np.where(is_drawn, rng.random(is_drawn.shape), 2.0)
    first = order.argsort(axis=1)[:, :2]
    count = (rng.random((rows, 1)) >= _COUNTS).sum(axis=1, keepdims=True)
    applied = np.take_along_axis(is_drawn, first, axis=1) & (np.arange(2) < count)
    return np.where(applied, first, len(probabilities))


def _read_pair(path: str, pair: ast.expr) -> list[Step]:
    steps = items_of(path, pair, "a pair of operations")
    if len(steps) != 2:
        refuse(path, pair, f"a pair has 2 operations, got {len(steps)}")
    return [_read_step(path, step) for step in steps]


def _read_step(path: str, step: ast.expr) -> Step:
    parts = items_of(path, step, "[name, probability, level]")
    if len(parts) != 3:
        refuse(path, step, f"an operation is [name, probability, level], got {len(parts)} parts")
    name, probability, fraction = (value_of(path, part) for part in parts)
    if not isinstance(name, str):
        refuse(path, step, f"an operation begins with its name, got {shown(name)}")
    if name not in FAST_AUTOAUGMENT_LEVELS:
        refuse(path, step, str(unknown("operation", name, FAST_AUTOAUGMENT_LEVELS)))
    for quantity, number in (("probability", probability), ("level", fraction)):
        if type(number) not in (int, float) or not 0 <= number <= 1:
            refuse(path, step, f"the {quantity} of {name} must be a number in [0, 1], got {shown(number)}")
    transform, level_of = FAST_AUTOAUGMENT_LEVELS[name]
    level = level_of(fraction)
    return Step(transform, level, level, probability, mirrored=transform in _MIRRORED)


@dataclass(frozen=True)
class _Change:
    """A line of the log of a PBA search: a trial was overwritten by a clone of another."""

    line: int
    trial: object
    clone: object  # the trial that was cloned
    epoch: int  # of the cloned trial
    before: list[int]
    after: list[int]


def _read_change(path: str, number: int, text: str) -> _Change:
    """Read a line of the log: [trial, clone, epoch, clone's epoch, policy before, policy after]."""
    where = f"{path}, line {number}"
    try:
        line = ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"{where}: must be a Python list, got {text[:40]!r}") from None
    if not isinstance(line, list) or len(line) != 6:
        got = f"{len(line)} parts" if isinstance(line, list) else repr(line)[:40]
        raise ValueError(f"{where}: must be [trial, clone, epoch, clone's epoch, policy before, policy after], got {got}")
    trial, clone, _, epoch, *policies = line
    if type(epoch) is not int:
        raise ValueError(f"{where}: the clone's epoch must be a whole number, got {shown(epoch)}")
    before, after = (policy.get("hp_policy", policy) if isinstance(policy, dict) else policy for policy in policies)
    for numbers in (before, after):
        if not isinstance(numbers, list) or len(numbers) != _NUMBERS:
            got = f"{len(numbers)} numbers" if isinstance(numbers, list) else repr(numbers)[:40]
            raise ValueError(f"{where}: a policy must be {_NUMBERS} whole numbers, got {got}")
        for value in numbers:
            if type(value) is not int or not 0 <= value <= 10:
                raise ValueError(
                    f"{where}: probabilities and magnitudes must be whole numbers from 0 to 10, got {shown(value)}"
                )
    return _Change(number, trial, clone, epoch, before, after)


def _lineage(path: str, changes: list[_Change]) -> list[_Change]:
    """Return the changes that led to the final policy: the last ones, where each clones the trial of the change before it."""
    if not changes:
        raise ValueError(f"{path}: the file has no lines")
    first = max((i + 1 for i in range(len(changes) - 1) if changes[i].trial != changes[i + 1].clone), default=0)
    return changes[first:]
