"""Data sets: bytes [N, C, H, W] and class numbers, read from the files their authors publish, or embedded."""

from importlib.resources import files

import numpy as np
import torch
from PIL import Image

from outspan.shapes import Images


def example_image() -> Images:
    """Return the embedded photograph, [1, 3, 224, 224] bytes.

    Chelsea the cat by Stefan van der Walt, CC0; cropped and reduced from scikit-image's copy.
    """
    with files("outspan.data").joinpath("cat.png").open("rb") as file:
        array = np.array(Image.open(file))
    return torch.from_numpy(array.transpose(2, 0, 1).copy()).unsqueeze(0)
