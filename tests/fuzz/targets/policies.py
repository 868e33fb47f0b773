"""Policy files of Fast AutoAugment and PBA."""

import json
from pathlib import Path

from fuzz.contract import attempt
from fuzz.mutate import Draw, mutate, mutate_json, pick
from outspan import Plan, rng
from outspan.policies.files import FAST_AUTOAUGMENT_LEVELS, PBA_LEVELS, fast_autoaugment, pba
from outspan.transforms.apply import check_plan


def make(draw: Draw) -> bytes:
    """Return a policy file in one of three formats, mostly damaged."""
    data = pick(draw, (_pairs, _code, _log))(draw)
    return data if draw.random() < 0.1 else mutate(data, draw)


def _list(draw: Draw) -> list:
    def operation() -> list:
        return [pick(draw, [*FAST_AUTOAUGMENT_LEVELS]), round(draw.random(), 2), round(draw.random(), 2)]

    pairs = [[operation(), operation()] for _ in range(int(draw.integers(1, 6)))]
    return mutate_json(pairs, draw) if draw.random() < 0.3 else pairs


def _pairs(draw: Draw) -> bytes:
    return json.dumps(_list(draw)).encode()


def _code(draw: Draw) -> bytes:
    names = ["p"]
    lines = [f"    p = {_list(draw)}"]
    for i in range(int(draw.integers(0, 40))):
        names.append(f"p{i}")
        lines.append(f"    p{i} = {pick(draw, names[:-1])} + {pick(draw, names[:-1])}")
    return "\n".join(["import os", "def fa_reduced():", *lines, f"    return {names[-1]}", ""]).encode()


def _log(draw: Draw) -> bytes:
    lines = []
    for epoch in sorted(draw.integers(0, 200, int(draw.integers(1, 4))).tolist()):
        policy = draw.integers(0, 11, 4 * len(PBA_LEVELS)).tolist()
        line = ["3", "3", epoch, epoch, policy, {"hp_policy": policy} if draw.random() < 0.3 else policy]
        lines.append(repr(mutate_json(line, draw) if draw.random() < 0.2 else line))
    return "\n".join(lines).encode()


def check(data: bytes, folder: Path) -> None:
    """Read a file in both formats, and draw plans from the result."""
    path = folder / "policy.py"
    path.write_bytes(data)
    for name in ("", "#fa_reduced"):
        _draw(attempt(fast_autoaugment, f"{path}{name}"))
    schedule = attempt(pba, str(path), searched=200, epochs=3, epoch_steps=7)
    for step in (0, 5, 10**9):
        _draw(None if schedule is None else schedule.at(step))


def _draw(proposal: object) -> None:
    if proposal is not None:
        plan: Plan = proposal(3, rng=rng.generator(0), candidates=2)  # type: ignore[operator]
        check_plan(plan, 3)  # a policy draws valid plans
