"""Splits of files give the same images as splits in memory, with and without workers."""

import numpy as np
import pytest
import torch
from PIL import Image

from outspan.data.readers import read_fitted
from outspan.data.splits import Files, Split

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """300 small images of mixed sizes."""
    root = tmp_path_factory.mktemp("files")
    draw = np.random.Generator(np.random.Philox(5))
    paths = []
    for i in range(300):
        paths.append(root / f"{i}.png")
        Image.fromarray(draw.integers(0, 256, (9 + i % 4, 8 + i % 3, 3), dtype=np.uint8)).save(paths[-1])
    return Files(paths, torch.arange(300) % 7, 8, workers=2)


@pytest.fixture(scope="module")
def memory(files):
    return Split(torch.stack([read_fitted(path, 8, 8) for path in files.paths]), files.labels)


def test_batches_are_those_of_memory(files, memory):
    rows = torch.randperm(300, generator=torch.Generator().manual_seed(1)).split(64)  # enough for workers
    for one, other in zip(files.batches(rows, CPU), memory.batches(rows, CPU), strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


def test_statistics_and_parts_are_those_of_memory(files, memory):
    assert files.statistics() == memory.statistics()
    rows = torch.tensor([5, 1, 200])
    ((images, labels),) = files.take(rows).batches([torch.arange(3)], CPU)
    assert torch.equal(images, memory.take(rows).images)
    assert torch.equal(labels, memory.take(rows).labels)
    assert files.shape == memory.shape


def test_reading_leaves_the_generator_alone(files):
    before = torch.get_rng_state()
    list(files.batches([torch.arange(4)], CPU))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_file_is_named_in_one_line(workers, files, tmp_path):
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(b"no image")
    mixed = Files([*files.paths, damaged], torch.zeros(301, dtype=torch.int64), 8, workers=workers)
    with pytest.raises(ValueError, match=r"damaged\.png: cannot be read as an image") as raised:
        list(mixed.batches(torch.arange(301).split(50), CPU))
    assert "\n" not in str(raised.value)
