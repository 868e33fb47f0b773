"""Read and write single image files."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from outspan.data.decode import GREY, Pixels, convert, opened, to_tensor
from outspan.files import expand_home, write_whole
from outspan.shapes import Images


def example_image() -> Images:
    """Return the included photograph, [1, 3, 224, 224] bytes.

    Chelsea the cat by Stefan van der Walt, CC0; cropped and reduced from scikit-image's copy.
    """
    with files("outspan.data").joinpath("cat.png").open("rb") as file:
        array = np.array(Image.open(file))
    return torch.from_numpy(array.transpose(2, 0, 1).copy()).unsqueeze(0)


def read_image(path: str | Path) -> Images:
    """Read an image file as [1, C, H, W] bytes: C is 1 for grey files and 3 (RGB) for all others.

    The EXIF orientation is applied. Transparent pixels are composed over white.
    """
    with opened(expand_home(path)) as file:
        return to_tensor(convert(file, Pixels(1 if file.mode in GREY else 3))).unsqueeze(0)


def write_image(images: Images, path: str | Path) -> None:
    """Write the first image of a batch. The suffix of the file name is its format: .png, .jpg, .webp, …"""
    path = expand_home(path)
    Image.init()
    file_format = Image.EXTENSION.get(path.suffix.lower())
    if file_format not in Image.SAVE:
        raise ValueError(f"{path}: unknown image format {path.suffix!r}; use .png, .jpg, .webp, …")
    array = images[0].permute(1, 2, 0).cpu().numpy()
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    write_whole(path, lambda partial: picture.save(partial, format=file_format))
