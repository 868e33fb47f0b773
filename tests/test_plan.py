"""Plans: built by name, printed, stored, indexed, joined, and refused."""

import json
from contextlib import suppress

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import make_images, seeds
from outspan import TRANSFORMS, Plan, apply, rng, uniform


def draw_plan(seed: int, *, images: int = 4, candidates: int = 2, depth: int = 3) -> Plan:
    propose = uniform(depth, transforms=tuple(TRANSFORMS), probability=0.7)
    return propose(images, rng=rng.generator(seed, "plan"), candidates=candidates)


def same(a: Plan, b: Plan) -> bool:
    fields = ("ops", "levels", "places", "partners", "source", "out")
    return a.names == b.names and all(torch.equal(getattr(a, name), getattr(b, name)) for name in fields)


def test_of_reads_names_levels_places_and_partners():
    plan = Plan.of(
        [["mixup", "cutout"], ["invert"]],
        levels=[[0.25, 0.5], [0]],
        places=[[[0, 0, 0, 0], [0.25, 0.75, 0, 0]], [[0, 0, 0, 0]]],
        partners=[[1, -1], [-1]],
    )
    assert plan.names == ("mixup", "cutout", "invert")
    assert plan.ops.tolist() == [[0, 1], [2, -1]]
    assert plan.levels.tolist() == [[0.25, 0.5], [0, 0]]
    assert plan.partners.tolist() == [[1, -1], [-1, -1]]
    assert len(plan) == 2


def test_a_plan_prints_its_steps():
    plan = Plan.of(
        [["mixup", "cutout"], []],
        levels=[[0.25, 0.5], []],
        places=[[[0] * 4, [0.25, 0.75, 0, 0]], []],
        partners=[[1, -1], []],
        out=[0],
    )
    assert str(plan).splitlines() == [
        "Plan of 2 rows, 2 steps, out [0]",
        "  0: image 0, mixup 0.25 with row 1, cutout 0.5 at (0.25, 0.75, 0.00, 0.00)",
        "  1: image 1",
    ]
    assert str(draw_plan(0, images=9)).endswith("…")


@given(seed=seeds, images=st.integers(0, 4), depth=st.integers(0, 3))
def test_json_keeps_every_bit(seed, images, depth):
    plan = draw_plan(seed, images=images, depth=depth)
    again = Plan.from_json(plan.to_json())
    assert same(again, plan) or not plan.ops.numel()
    pixels = make_images(seed, images, 3, 5, 7)
    assert torch.equal(apply(pixels, again), apply(pixels, plan))


@given(seed=seeds, rows=st.lists(st.integers(-8, 7), max_size=6))
def test_indexing_a_plan_indexes_its_result(seed, rows):
    plan, pixels = draw_plan(seed), make_images(seed, 4, 3, 8, 9)
    assert torch.equal(apply(pixels, plan[rows]), apply(pixels, plan)[rows])
    assert torch.equal(apply(pixels, plan[1:5][[3, 0]]), apply(pixels, plan)[1:5][[3, 0]])


def test_indexing_accepts_numbers_slices_and_masks():
    plan, pixels = draw_plan(3), make_images(3, 4, 3, 8, 9)
    whole = apply(pixels, plan)
    mask = torch.arange(8) % 3 == 0
    assert torch.equal(apply(pixels, plan[5]), whole[5:6])
    assert torch.equal(apply(pixels, plan[2:7:2]), whole[2:7:2])
    assert torch.equal(apply(pixels, plan[mask]), whole[mask])
    with pytest.raises(IndexError):
        plan[8]


def test_indexing_keeps_only_needed_rows():
    ring = Plan.of([["invert", "mixup"]] * 5, levels=[[0, 0.5]] * 5, partners=[[-1, (i + 1) % 5] for i in range(5)])
    one = ring[0]
    assert one.source.tolist() == [0, 1]  # the partner's own partner is not needed: it mixes at the same step
    assert one.ops.tolist() == [[0, 1], [0, -1]]


@given(seed=seeds)
def test_joining_plans_joins_their_results(seed):
    pixels = make_images(seed, 4, 3, 8, 9)
    plans = [draw_plan(seed), draw_plan(seed + 1, depth=1)[[2, 0]], Plan.of([["invert"]], source=[3])]
    expected = torch.cat([apply(pixels, plan) for plan in plans])
    assert torch.equal(apply(pixels, Plan.cat(plans)), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ops": torch.zeros(2, dtype=torch.int16)}, r"ops must have shape \[rows, steps\]"),
        ({"ops": torch.zeros((2, 1), dtype=torch.int64)}, "ops must be torch.int16"),
        ({"ops": torch.full((2, 1), 3, dtype=torch.int16)}, r"ops must lie in \[-1, 0\], got 3 to 3"),
        ({"levels": torch.zeros((2, 2))}, r"levels must have shape \[2, 1\], got \[2, 2\]"),
        ({"partners": torch.full((2, 1), 2)}, r"partners must lie in \[-1, 1\], got 2 to 2"),
        ({"partners": torch.full((2, 1), -2)}, "partners must lie in"),
        ({"source": torch.tensor([0, -1])}, "source must not be negative"),
        ({"source": torch.tensor([0])}, "source must have shape"),
        ({"out": torch.tensor([2])}, r"out must lie in \[0, 1\]"),
    ],
)
def test_inconsistent_plans_are_refused(change, message, unchecked):
    plan = Plan.of([["invert"], ["invert"]])
    fields = {name: getattr(plan, name) for name in ("ops", "levels", "places", "partners", "source", "out")}
    with pytest.raises(ValueError, match=message):
        Plan(plan.names, **{**fields, **change})


def test_levels_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"levels must have one entry per step, \[2, 0\], got \[1, 0\]"):
        Plan.of([["invert", "blur"], []], levels=[[0.0], []])
    with pytest.raises(ValueError, match="at least one plan"):
        Plan.cat([])


GOOD = json.loads(Plan.of([["rotate"]], levels=[[0.5]]).to_json())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        json.dumps({**GOOD, "more": 1}),
        json.dumps({**GOOD, "names": "rotate"}),
        json.dumps({**GOOD, "names": [1]}),
        json.dumps({**GOOD, "ops": "rotate"}),
        json.dumps({**GOOD, "ops": [[70000]]}),
        json.dumps({**GOOD, "ops": []}),
        json.dumps({**GOOD, "levels": [[0.5], [1]]}),
        json.dumps({**GOOD, "levels": [[0.5], 1]}),
        json.dumps({**GOOD, "source": 0}),
        json.dumps({**GOOD, "source": None}),
        json.dumps({**GOOD, "places": {}}),
        json.dumps({**GOOD, "out": [5]}),
    ],
)
def test_invalid_json_raises_a_value_error(text, unchecked):
    with pytest.raises(ValueError):  # noqa: PT011
        Plan.from_json(text)


@given(
    st.recursive(st.none() | st.integers() | st.floats() | st.text(max_size=3), lambda s: st.lists(s, max_size=3), max_leaves=6)
)
def test_json_with_any_field_gives_a_plan_or_a_value_error(value):
    jaxtyping.config.update("jaxtyping_disable", True)  # a fixture would not run again for every example
    try:
        for field in GOOD:
            with suppress(ValueError):
                Plan.from_json(json.dumps({**GOOD, field: value}))
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_indexing_accepts_numpy_arrays_and_lists_of_booleans():
    plan, pixels = draw_plan(3), make_images(3, 4, 3, 8, 9)
    whole, mask = apply(pixels, plan), np.arange(8) % 3 == 1
    for rows in (mask, mask.tolist(), torch.from_numpy(mask)):
        assert torch.equal(apply(pixels, plan[rows]), whole[torch.from_numpy(mask)])
    for row in (2, np.int64(2), torch.tensor(2)):
        assert torch.equal(apply(pixels, plan[row]), whole[2:3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Plan.of(["rotate"]), "steps must be one list of names per row, got 'rotate'"),
        (lambda: Plan.of([[("rotate", 0.5)]]), r"steps must be names, got \('rotate', 0.5\): pass levels in `levels`"),
        (lambda: Plan.of([["rotate"]], levels=[0.5]), r"levels must be one list per row, with one entry per step, got \[0.5\]"),
        (lambda: Plan.of([["cutout"]], places=[[[0.5, 0.5]]]), r"a place must be 4 numbers, got \[0.5, 0.5\]"),
        (lambda: Plan.of([["cutout"]], places=[[0.5]]), "a place must be 4 numbers"),
        (lambda: Plan.of([["mixup"]], partners=[[0.7]]), "a partner must be a row number, got 0.7"),
        (lambda: Plan.from_json("[" * 200_000), "nested too deeply"),
        (lambda: Plan.from_json(json.dumps({**GOOD, "ops": [[0.9]]})), "ops must be .*whole numbers only"),
    ],
)
def test_common_mistakes_are_refused(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()
