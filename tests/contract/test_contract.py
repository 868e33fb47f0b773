"""The contract of every transform, on every backend. A new entry of the table is tested automatically."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import FAST, make_images, run_on, seeds, sizes
from outspan import PAPER_16, TRANSFORMS, Plan, apply, rng, uniform
from pillow import CALLS, apply_with_pillow


def one_step(name: str, levels: list[float], seed: int) -> Plan:
    rows = len(levels)
    draw = rng.generator(seed, "step")
    return Plan.of(
        [[name]] * rows,
        levels=[[level] for level in levels],
        places=draw.random((rows, 1, 4), dtype=np.float32).tolist(),
        partners=[[int(draw.integers(0, rows))] for _ in range(rows)],
    )


def level_strategy(name: str) -> st.SearchStrategy[float]:
    low, high = TRANSFORMS[name].levels
    marked = [k / 100 for k in range(-450, 451) if low <= k / 100 <= high] + [low, high, 1 / 3, 1e-8]
    return st.one_of(st.floats(low, high, width=32), st.sampled_from([level for level in marked if low <= level <= high]))


@pytest.mark.parametrize("name", TRANSFORMS)
@given(data=st.data(), size=sizes, channels=st.sampled_from([1, 3]), seed=seeds, backend=st.sampled_from(FAST))
def test_contract(name, data, size, channels, seed, backend):
    levels = data.draw(st.lists(level_strategy(name), max_size=4))
    images = make_images(seed, len(levels), channels, *size)
    before = images.clone()
    plan = one_step(name, levels, seed)
    fill = list(range(7, 7 + channels))

    out = run_on(backend, images, plan, fill=fill)

    assert out.shape == images.shape
    assert out.dtype == images.dtype
    assert out.device == images.device
    assert torch.equal(images, before)
    assert torch.equal(out, apply_with_pillow(images, plan, fill))
    if not TRANSFORMS[name].mixes:
        for i in range(len(images)):
            assert torch.equal(apply(images, plan[i], fill=fill), out[i : i + 1])
            assert torch.equal(
                apply(
                    images[i : i + 1],
                    Plan.of([[name]], levels=[[levels[i]]], places=plan.places[i : i + 1].tolist()),
                    fill=fill,
                ),
                out[i : i + 1],
            )


@pytest.mark.parametrize("name", [name for name, transform in TRANSFORMS.items() if transform.graded])
def test_level_0_is_the_identity(name, backend):
    images = make_images(1, 5, 3, 13, 17)
    plan = one_step(name, [0.0] * 5, 2)
    assert torch.equal(run_on(backend, images, plan), images)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", [name for name, transform in TRANSFORMS.items() if transform.graded])
def test_every_level_in_steps_of_a_hundredth_matches_pillow(name, channels, backend):
    low, high = (round(100 * level) for level in TRANSFORMS[name].levels)
    levels = [k / 100 for k in range(low, high + 1)]
    images = make_images(3, len(levels), channels, 32, 32)
    plan = one_step(name, levels, 4)
    assert torch.equal(run_on(backend, images, plan), apply_with_pillow(images, plan))


@given(
    size=sizes,
    channels=st.sampled_from([1, 3]),
    seed=seeds,
    backend=st.sampled_from(FAST),
    images=st.integers(1, 6),
    candidates=st.integers(1, 3),
    depth=st.integers(0, 6),
)
def test_compositions_match_pillow(size, channels, seed, backend, images, candidates, depth):
    """Chains of all transforms, including those that mix, with several rows per image."""
    pixels = make_images(seed, images, channels, *size)
    propose = uniform(depth, transforms=tuple(TRANSFORMS), probability=0.8)
    plan = propose(images, rng=rng.generator(seed, "plan"), candidates=candidates)
    out = run_on(backend, pixels, plan)
    assert torch.equal(out, apply_with_pillow(pixels, plan))


@given(seed=seeds, backend=st.sampled_from(FAST))
def test_chains_of_mixing_match_pillow(seed, backend):
    """Rows that mix at every step, with partners that mix too. In this case rows must wait for each other."""
    pixels = make_images(seed, 5, 3, 6, 11)
    propose = uniform(5, transforms=("mixup", "cutmix", "invert", "rotate"), probability=0.8, replacement=True)
    plan = propose(5, rng=rng.generator(seed, "plan"), candidates=3)
    chosen = rng.generator(seed, "rows").integers(0, 15, 8).tolist()
    expected = apply_with_pillow(pixels, plan)
    assert torch.equal(run_on(backend, pixels, plan), expected)
    assert torch.equal(run_on(backend, pixels, plan[chosen]), expected[chosen])


def test_the_pillow_reference_has_every_transform():
    assert set(CALLS) == set(TRANSFORMS)
    assert len(PAPER_16) == 16
    assert set(PAPER_16) <= set(TRANSFORMS)
