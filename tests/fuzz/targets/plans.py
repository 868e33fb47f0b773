"""Plans: read from JSON, built by name, changed in place, joined, indexed, extended, and applied with the reference."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fuzz.contract import attempt, expect
from fuzz.mutate import Draw, mutate, mutate_json, pick
from outspan import TRANSFORMS, Plan, apply, mix_labels, rng, uniform

FIELDS = ("ops", "levels", "places", "partners", "source", "out")
VALUES = (
    -(2**63),
    -(2**31),
    -300,
    -2,
    -1,
    0,
    1,
    2,
    3,
    300,
    2**31,
    2**63 - 1,
    0.5,
    1.0,
    1.5,
    -1.5,
    1e-45,
    1e38,
    float("nan"),
    float("inf"),
)


def draw_plan(draw: Draw, images: int) -> Plan:
    """Return a valid plan for a number of images. Some of its levels are at the ends of their range."""
    depth, candidates = int(draw.integers(0, 4)), int(draw.integers(1, 3))
    propose = uniform(depth, transforms=tuple(TRANSFORMS), probability=0.8)
    plan = propose(images, rng=rng.generator(int(draw.integers(2**31)), "plan"), candidates=candidates)
    for row, step in torch.nonzero(plan.ops >= 0).tolist():
        low, high = TRANSFORMS[plan.names[int(plan.ops[row, step])]].levels
        how = draw.random()
        if how < 0.4:
            plan.levels[row, step] = pick(draw, (low, high, 0.0, high / 3, 1e-45, 0.99999994 * high))
        if how < 0.3:
            plan.places[row, step] = torch.tensor([pick(draw, (0.0, 0.5, 0.99999994, 1e-45)) for _ in range(4)])
    return plan


def make(draw: Draw) -> bytes:
    """Return a program in JSON: a list of steps, each a name and its arguments."""
    images = int(draw.integers(1, 4))
    program: list[Any] = [["json", draw_plan(draw, images).to_json()]]
    if draw.random() < 0.3:
        text = program[0][1]
        changed = (
            json.dumps(mutate_json(json.loads(text), draw))
            if draw.random() < 0.7
            else mutate(text.encode(), draw).decode(errors="replace")
        )
        program = [["json", changed]]
    for _ in range(int(draw.integers(0, 4))):
        program.append(pick(draw, (_of, _index, _then, _change))(draw))
    program.append(["apply", images, int(draw.integers(1, 3)) * 2 - 1, *draw.integers(1, 9, 2).tolist()])
    return json.dumps(program).encode()


def _of(draw: Draw) -> list[Any]:
    steps = [
        [pick(draw, [*TRANSFORMS, "rotat", ""]) for _ in range(int(draw.integers(0, 3)))]
        for _ in range(int(draw.integers(0, 4)))
    ]
    numbers = [[pick(draw, VALUES) for _ in row] for row in steps]
    partners = [[pick(draw, [v for v in VALUES if isinstance(v, int)] + [0, 1, 2] * 9) for _ in row] for row in steps]
    return ["of", steps, numbers if draw.random() < 0.7 else None, partners if draw.random() < 0.7 else None]


def _index(draw: Draw) -> list[Any]:
    return ["index", pick(draw, ([], [0], [-1], [0, 0, 0], [2, 1], [5], [2**40]))]


def _then(draw: Draw) -> list[Any]:
    return [pick(draw, ("then", "cat")), draw_plan(draw, int(draw.integers(1, 4))).to_json()]


def _change(draw: Draw) -> list[Any]:
    return ["change", pick(draw, FIELDS), int(draw.integers(0, 20)), pick(draw, VALUES)]


def change(plan: Plan, name: str, at: int, value: float) -> None:
    """Write one number of a plan in place, without any check."""
    tensor = getattr(plan, name)
    if tensor.numel():
        flat = tensor.view(-1)
        if tensor.is_floating_point():
            flat[at % tensor.numel()] = float(value)
        elif value == value and abs(value) != float("inf"):
            flat[at % tensor.numel()] = max(torch.iinfo(tensor.dtype).min, min(torch.iinfo(tensor.dtype).max, int(value)))


def check(data: bytes, folder: Path) -> None:
    """Run a program; a plan that is refused ends it."""
    plan = None
    for name, *arguments in json.loads(data):
        plan = attempt(_STEPS[name], plan, *arguments)
        if plan is None:
            return


def _apply(plan: Plan, images: int, channels: int, height: int, width: int) -> None:
    pixels = (
        torch.arange(images * channels * height * width).remainder(256).to(torch.uint8).view(images, channels, height, width)
    )
    repr(plan) if _is_whole(plan) else None
    done = attempt(apply, pixels, plan, backend="reference")
    if done is not None:
        expect(done.shape == (len(plan), channels, height, width), "as many images come out as the plan says")
        again = Plan.from_json(plan.to_json())
        expect(torch.equal(apply(pixels, again, backend="reference"), done), "a plan written and read gives other bytes")
        for row in range(min(len(plan), 2)):
            expect(torch.equal(apply(pixels, plan[row], backend="reference")[0], done[row]), "a row alone gives other bytes")
    labels = attempt(mix_labels, torch.arange(images), plan, images, (height, width))
    if labels is not None and done is not None:
        expect(bool((labels.sum(1) - 1).abs().max() < 1e-5) if len(labels) else True, "labels do not add up to 1")


def _is_whole(plan: Plan) -> bool:
    return attempt(lambda: plan.check() or True) is not None


def _of_names(_: Plan, steps: list, levels: list | None, partners: list | None) -> Plan:
    return Plan.of(steps, levels=levels, partners=partners)


def _at(plan: Plan, rows: list[int]) -> Plan | None:
    try:
        return plan[rows]
    except IndexError:  # as for any sequence
        expect(any(not -len(plan) <= row < len(plan) for row in rows), "a valid index is refused")
        return None


def _changed(plan: Plan, name: str, at: int, value: float) -> Plan:
    change(plan, name, at, value)
    return plan


_STEPS: dict[str, Callable[..., Plan | None]] = {
    "json": lambda plan, text: Plan.from_json(text),
    "of": _of_names,
    "index": _at,
    "then": lambda plan, text: plan.then(Plan.from_json(text)),
    "cat": lambda plan, text: Plan.cat([plan, Plan.from_json(text)]),
    "change": _changed,
    "apply": _apply,
}
