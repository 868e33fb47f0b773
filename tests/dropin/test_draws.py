"""Where the drop-in transforms take their random numbers from: torch's generator, a local one, or a seed and the step."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import outspan
from outspan import dropin, rng

IMAGE = torch.from_numpy(rng.generator(0, "noise").integers(0, 256, (3, 16, 16), dtype=np.uint8))
IMAGES = IMAGE.expand(8, -1, -1, -1)


class Same(Dataset):
    """The same image in every row, with the transform in the worker."""

    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 12

    def __getitem__(self, row):
        return self.transform(IMAGE)


def epochs(transform, workers: int, seed: int) -> list[torch.Tensor]:
    """Return the images of two epochs of a loader that is built after seeding torch."""
    torch.manual_seed(seed)
    options = {"num_workers": workers, "multiprocessing_context": "fork", "generator": torch.Generator().manual_seed(seed)}
    loader = DataLoader(Same(transform), batch_size=3, **options)
    return [torch.cat(list(loader)) for _ in range(2)]


def different(images: torch.Tensor) -> int:
    return len({row.numpy().tobytes() for row in images})


def test_by_default_draws_follow_torchs_generator():
    transform = dropin.TrivialAugmentWide()
    torch.manual_seed(3)
    first, second = transform(IMAGES), transform(IMAGES)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(transform(IMAGES), first)
    assert torch.equal(transform(IMAGES), second)


def test_a_local_generator_leaves_torchs_alone():
    state = torch.get_rng_state()
    transforms = [dropin.TrivialAugmentWide(generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(transforms[0](IMAGES), transforms[1](IMAGES))
    assert not torch.equal(transforms[0](IMAGES), transforms[0](IMAGES))
    assert torch.equal(torch.get_rng_state(), state)


def test_with_a_seed_draws_depend_on_the_step_only():
    state = torch.get_rng_state()
    transform = dropin.RandAugment(seed=1)
    first = transform(IMAGES, step=7)
    transform(IMAGES, step=8)
    assert torch.equal(transform(IMAGES, step=7), first)
    assert torch.equal(dropin.RandAugment(seed=1)(IMAGES, step=7), first)
    assert not torch.equal(dropin.RandAugment(seed=2)(IMAGES, step=7), first)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(
        ValueError, match=r"step is missing: with a seed pass the number of the batch, transform\(images, step=step\)"
    ):
        transform(IMAGES)
    with pytest.raises(ValueError, match=r"step needs a seed: write RandAugment\(seed=0\)"):
        dropin.RandAugment()(IMAGES, step=0)
    with pytest.raises(ValueError, match="step must be at least 0, got -1"):
        transform(IMAGES, step=-1)


@pytest.mark.parametrize("source", [None, "generator"])
def test_workers_and_epochs_of_a_loader_have_different_draws(source):
    def build():
        return dropin.TrivialAugmentWide(generator=None if source is None else torch.Generator().manual_seed(0))

    first, second = epochs(build(), 2, seed=0)
    assert different(torch.cat([first, second])) > 15  # of 24 images; a few draws are equal by chance
    again = epochs(build(), 2, seed=0)
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])
    assert not torch.equal(first, epochs(build(), 2, seed=1)[0])


@pytest.mark.parametrize(
    ("transform", "options"),
    [
        (dropin.AugMix(seed=4), {"step": 2}),
        (dropin.AutoAugment(generator=torch.Generator().manual_seed(3)), {}),
        (dropin.Augment(outspan.natural(), generator=torch.Generator().manual_seed(3)), {}),
    ],
)
def test_a_pickled_transform_continues_with_the_same_draws(transform, options):
    transform(IMAGES, **options)
    data = pickle.dumps(transform)
    first, second = transform(IMAGES, **options), transform(IMAGES, **options)
    assert b"Tensor" not in data  # tensors are sent to workers through shared memory, which fails for some
    copy = pickle.loads(data)  # noqa: S301
    assert torch.equal(copy(IMAGES, **options), first)
    assert torch.equal(copy(IMAGES, **options), second)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_workers_that_are_not_forked_have_the_same_draws(start):
    def first_epoch(workers: int, **options) -> torch.Tensor:
        transform = dropin.TrivialAugmentWide(generator=torch.Generator().manual_seed(0))
        generator = torch.Generator().manual_seed(0)
        return torch.cat([*DataLoader(Same(transform), 3, num_workers=workers, generator=generator, **options)])

    forked = first_epoch(1, multiprocessing_context="fork")
    assert torch.equal(first_epoch(1, multiprocessing_context=start), forked)
