"""A plan lists, row by row, which transforms a sample gets, at which level, at which place, and mixed with which row.

All randomness of an augmentation is in its plan. So a plan can be printed, stored, replayed and moved to any device.
This module computes no pixels; `outspan.apply` executes plans.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np
import torch
from torch import Tensor

from outspan.messages import shown
from outspan.plan_parsing import DTYPES, check_range, fill_column, parse_json
from outspan.shapes import Float32, Int16, Int64


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Plan:
    """Which transforms every image of a batch gets: a table of N rows with L steps. `Plan.of` builds one from names.

    Row i starts as image `source[i]`. Step t applies the transform `names[ops[i, t]]` at `levels[i, t]`. The op -1 leaves
    the row unchanged. A mixing transform (mixup, cutmix) reads row `partners[i, t]` as it was before step t. `out` lists
    the rows that are returned, in order.
    """

    names: tuple[str, ...]
    ops: Int16[Tensor, "N L"]
    levels: Float32[Tensor, "N L"]
    places: Float32[Tensor, "N L 4"]  # positions in the image, as fractions in [0, 1)
    partners: Int64[Tensor, "N L"]  # a row of this plan; -1: none
    source: Int64[Tensor, " N"]
    out: Int64[Tensor, " M"]

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise a ValueError if dtypes, shapes or row numbers are not consistent, for example after a change in place."""
        if len(set(self.names)) < len(self.names):  # executors look transforms up by name
            duplicate = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"names must be different, got {shown(duplicate)} twice")
        if self.ops.ndim != 2:
            raise ValueError(f"ops must have shape [rows, steps], got {list(self.ops.shape)}")
        rows, steps = self.ops.shape
        shapes = {
            "ops": (rows, steps),
            "levels": (rows, steps),
            "places": (rows, steps, 4),
            "partners": (rows, steps),
            "source": (rows,),
            "out": (self.out.numel(),),
        }
        for name, shape in shapes.items():
            tensor = getattr(self, name)
            if tensor.dtype != DTYPES[name] or not tensor.is_cpu:
                raise ValueError(f"{name} must be {DTYPES[name]} on the cpu, got {tensor.dtype} on {tensor.device}")
            if tensor.shape != shape:
                raise ValueError(f"{name} must have shape {list(shape)}, got {list(tensor.shape)}")
        self._check_indices()

    def _check_indices(self) -> None:
        rows = self.ops.shape[0]
        check_range("ops", self.ops, -1, len(self.names))
        check_range("partners", self.partners, -1, rows)
        check_range("out", self.out, 0, rows)
        check_range("source", self.source, 0, None)

    def has_valid_layout(self) -> bool:
        """Return whether the tensors still have the sizes checked at construction; their values are not checked.

        `resize_` and `.data =` can change them later. A kernel gets addresses and would then read past the end.
        """
        if self.ops.ndim != 2 or self.out.ndim != 1:
            return False
        rows, steps = self.ops.shape
        entries = rows * steps
        return (
            # Sizes in bytes: comparing shapes and dtypes takes several times as long.
            self.ops.nbytes == 2 * entries
            and self.levels.nbytes == 4 * entries
            and self.places.nbytes == 16 * entries
            and self.partners.nbytes == 8 * entries
            and self.source.nbytes == 8 * rows
            and self.out.nbytes == 8 * self.out.shape[0]
            and self.ops.is_cpu
            and self.levels.is_cpu
            and self.places.is_cpu
            and self.partners.is_cpu
            and self.source.is_cpu
            and self.out.is_cpu
        )

    @classmethod
    def of(
        cls,
        steps: Sequence[Sequence[str]],
        *,
        levels: Sequence[Sequence[float]] | None = None,
        places: Sequence[Sequence[Sequence[float]]] | None = None,
        partners: Sequence[Sequence[int]] | None = None,
        source: Sequence[int] | None = None,
        out: Sequence[int] | None = None,
    ) -> "Plan":
        """Build a plan from names: one list of transforms per row. By default row i starts as image i.

        `levels` has one number per step: 0 is no change, 1 or -1 is the end of the paper's range.

        >>> Plan.of([["rotate", "invert"], []], levels=[[0.5, 0.0], []])
        Plan of 2 rows, 2 steps
          0: image 0, rotate 0.5, invert
          1: image 1
        """
        for row in steps:
            if isinstance(row, str):
                raise ValueError(f"steps must be one list of names per row, got {row!r} for a row")
            if wrong := [name for name in row if not isinstance(name, str)]:
                raise ValueError(f"steps must be names, got {shown(wrong[0])}: pass levels in `levels`")
        names = tuple(dict.fromkeys(name for row in steps for name in row))
        rows, depth = len(steps), max(map(len, steps), default=0)
        ops = torch.full((rows, depth), -1, dtype=torch.int16)
        for i, row in enumerate(steps if depth else ()):
            ops[i, : len(row)] = torch.tensor([names.index(name) for name in row], dtype=torch.int16)
        columns = {
            "levels": torch.zeros((rows, depth)),
            "places": torch.zeros((rows, depth, 4)),
            "partners": torch.full((rows, depth), -1, dtype=torch.int64),
        }
        for name, values in (("levels", levels), ("places", places), ("partners", partners)):
            fill_column(name, columns[name], values, steps)
        every = list(range(rows))
        columns["source"] = torch.tensor(every if source is None else list(source), dtype=torch.int64)
        columns["out"] = torch.tensor(every if out is None else list(out), dtype=torch.int64)
        return cls(names, ops, **columns)

    @classmethod
    def cat(cls, plans: Sequence["Plan"]) -> "Plan":
        """Concatenate the rows of plans over the same images; the outputs are concatenated in the same order."""
        if not plans:
            raise ValueError("cat needs at least one plan, got none")
        names = tuple(dict.fromkeys(name for plan in plans for name in plan.names))
        depth = max(plan.ops.shape[1] for plan in plans)
        parts: dict[str, list[Tensor]] = {name: [] for name in DTYPES}
        first = 0
        for plan in plans:
            plan._check_indices()  # a negative row would become a row of the previous plan
            rows, steps = plan.ops.shape
            moved = torch.where(plan.partners >= 0, plan.partners + first, plan.partners)
            pad = (0, depth - steps)
            parts["ops"].append(torch.nn.functional.pad(plan._ops_by(names), pad, value=-1))
            parts["levels"].append(torch.nn.functional.pad(plan.levels, pad))
            parts["places"].append(torch.nn.functional.pad(plan.places, (0, 0, *pad)))
            parts["partners"].append(torch.nn.functional.pad(moved, pad, value=-1))
            parts["source"].append(plan.source)
            parts["out"].append(plan.out + first)
            first += rows
        return cls(names, **{name: torch.cat(tensors) for name, tensors in parts.items()})

    def then(self, other: "Plan") -> "Plan":
        """Append the steps of another plan, whose row k continues output k of this plan; its partners are outputs too."""
        self._check_indices()
        other._check_indices()
        rows, plain = len(self.ops), self._is_plain()
        if len(other.ops) != len(self.out) or not other._is_plain() or not (plain or len(self.out.unique()) == len(self.out)):
            raise ValueError(f"the second plan must have one row for each of {len(self.out)} outputs, got {len(other.ops)}")
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        if plain:
            return Plan(
                names,
                torch.cat([self._ops_by(names), other._ops_by(names)], dim=1),
                torch.cat([self.levels, other.levels], dim=1),
                torch.cat([self.places, other.places], dim=1),
                torch.cat([self.partners, other.partners], dim=1),
                self.source,
                self.out,
            )
        rows_of = torch.cat([self.out, torch.tensor([-1])])  # the last entry stands for "none"
        added = {
            "ops": torch.full((rows, other.ops.shape[1]), -1, dtype=torch.int16),
            "levels": torch.zeros((rows, other.ops.shape[1])),
            "places": torch.zeros((rows, other.ops.shape[1], 4)),
            "partners": torch.full((rows, other.ops.shape[1]), -1),
        }
        added["ops"][self.out] = other._ops_by(names)
        added["levels"][self.out] = other.levels
        added["places"][self.out] = other.places
        added["partners"][self.out] = rows_of[other.partners]
        return Plan(
            names,
            torch.cat([self._ops_by(names), added["ops"]], dim=1),
            torch.cat([self.levels, added["levels"]], dim=1),
            torch.cat([self.places, added["places"]], dim=1),
            torch.cat([self.partners, added["partners"]], dim=1),
            self.source,
            self.out,
        )

    def __len__(self) -> int:
        """Return the number of outputs."""
        return len(self.out)

    def __getitem__(self, rows: SupportsIndex | slice | Sequence[int] | np.ndarray | Tensor) -> "Plan":
        """Return the plan of these outputs alone: `apply(images, plan[rows])` is `apply(images, plan)[rows]`.

        The rows that they mix with are kept, up to the last step that reads them.
        """
        self._check_indices()
        if not isinstance(rows, slice):
            rows = torch.as_tensor(rows).reshape(-1)
            rows = rows if rows.dtype == torch.bool else rows.long()
        out = self.out[rows]
        count, steps = self.ops.shape
        need = torch.full((count,), -1)  # the step up to which a row is needed; -1: not needed
        need[out] = steps
        for t in reversed(range(steps)):
            mixing = (need > t) & (self.ops[:, t] >= 0) & (self.partners[:, t] >= 0)
            partners = self.partners[mixing, t]
            need[partners] = need[partners].clamp(min=t)
        kept = (need >= 0).nonzero().squeeze(1)
        place = torch.full((count + 1,), -1, dtype=torch.int64)  # the last entry stands for "none"
        place[kept] = torch.arange(len(kept))
        done = torch.arange(steps) >= need[kept].unsqueeze(1)
        return Plan(
            self.names,
            self.ops[kept].masked_fill(done, -1),
            self.levels[kept].masked_fill(done, 0),
            self.places[kept].masked_fill(done.unsqueeze(2), 0),
            place[self.partners[kept].masked_fill(done, -1)],
            self.source[kept],
            place[out],
        )

    def to_json(self) -> str:
        """Return the plan as JSON text; `Plan.from_json` restores it bit for bit."""
        return json.dumps({"names": self.names, **{name: getattr(self, name).tolist() for name in DTYPES}})

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Read a plan from JSON text; text that is not a complete plan raises a ValueError."""
        names, tensors = parse_json(text)
        return cls(names, **tensors)

    def __repr__(self) -> str:
        rows, steps = self.ops.shape
        lines = [f"Plan of {rows} rows, {steps} steps" + ("" if self._is_plain() else f", out {self.out.tolist()[:8]}")]
        lines += [f"  {i}: image {self.source[i]}{self._describe(i)}" for i in range(min(rows, 8))]
        return "\n".join(lines + (["  …"] if rows > 8 else []))

    def _ops_by(self, names: tuple[str, ...]) -> Tensor:
        """Return the ops as indices into another list of names, which contains all names of this plan."""
        # Op -1 reads the last entry.
        renamed = torch.tensor([*(names.index(name) for name in self.names), -1], dtype=torch.int16)
        return renamed[self.ops.long()]

    def _is_plain(self) -> bool:
        return torch.equal(self.out, torch.arange(len(self.ops)))

    def _describe(self, row: int) -> str:
        text = ""
        for t, op in enumerate(self.ops[row].tolist()):
            if op < 0:
                continue
            text += f", {self.names[op]}"
            if level := self.levels[row, t].item():
                text += f" {level:.3g}"
            if any(place := self.places[row, t].tolist()):
                text += f" at ({', '.join(f'{x:.2f}' for x in place)})"
            if (partner := self.partners[row, t].item()) >= 0:
                text += f" with row {partner}"
        return text
