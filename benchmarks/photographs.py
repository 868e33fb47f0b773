"""A folder of photographs for benchmarks: random crops of the photograph in the package, as JPEG files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from outspan import rng
from outspan.data import example_image


def make(folder: Path, classes: int, per_class: int, size: tuple[int, int]) -> None:
    """Write CLASS/*.jpg with `per_class` images of (width, height) `size` per class. A class has its own brightness."""
    source = Image.fromarray(example_image()[0].permute(1, 2, 0).numpy())
    for label in range(classes):
        draw = rng.generator(0, "photographs", label)
        (folder / f"class{label:02}").mkdir(parents=True)
        for number in range(per_class):
            scale = draw.uniform(0.3, 1.0)
            box_size = np.array(source.size) * scale
            left, top = draw.uniform(0, 1, 2) * (np.array(source.size) - box_size)
            box = (left, top, left + box_size[0], top + box_size[1])
            image = source.resize(size, Image.Resampling.BICUBIC, box).point(
                lambda value, label=label: value * (label + 20) // 40
            )
            image.save(folder / f"class{label:02}" / f"{number}.jpg", quality=90)


def paths_and_labels(folder: Path) -> tuple[Sequence[Path], torch.Tensor]:
    """Return the files of a folder and their labels."""
    paths = sorted(folder.glob("*/*.jpg"))
    names = sorted({path.parent.name for path in paths})
    return paths, torch.tensor([names.index(path.parent.name) for path in paths])
