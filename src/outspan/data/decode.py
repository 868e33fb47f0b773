"""Image files decoded as RGB bytes of one size. Any problem with a file raises a ValueError that names it."""

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from outspan.data.members import ImageFile, Member
from outspan.files import check_regular
from outspan.messages import first_line
from outspan.shapes import UInt8
from outspan.transforms.filter import crop_box

_MAX_PIXELS = 64 * 1024 * 1024
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # other formats would start external programs
# What Pillow's decoders raise on damaged files.
_DECODING_ERRORS = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    MemoryError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    struct.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)


@contextmanager
def opened(path: ImageFile) -> Iterator[Image.Image]:
    """Open an image file from an untrusted source."""
    check_regular(path.parent if isinstance(path, Member) else path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # damaged metadata does not matter if the pixels can be read
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path.open() if isinstance(path, Member) else path, formats=_FORMATS) as file:
                if file.mode[0] in "IF":
                    raise ValueError(f"pixels of more than 8 bits, mode {file.mode!r}: convert it first")
                if file.width * file.height > _MAX_PIXELS:
                    raise ValueError(f"{file.width} x {file.height} pixels, at most {_MAX_PIXELS:,} are read")
                yield file
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: is a folder, not an image") from None
    except UnidentifiedImageError:  # the message of Pillow names an object for a member of a tar file
        raise ValueError(f"{path}: cannot be read as an image (damaged, or none of {', '.join(_FORMATS)})") from None
    except _DECODING_ERRORS as error:
        raise ValueError(f"{path}: cannot be read as an image ({first_line(error)})") from None


def center_box(width: int, height: int, to_width: int, to_height: int) -> tuple[float, float, float, float]:
    """Return the largest centered box with the target's aspect ratio: left, top, right, bottom."""
    scale = min(width / to_width, height / to_height)
    # In spite of rounding errors, the box must be inside the image.
    half_x, half_y = min(scale * to_width, width) / 2, min(scale * to_height, height) / 2
    return width / 2 - half_x, height / 2 - half_y, width / 2 + half_x, height / 2 + half_y


def read_fitted(path: ImageFile, height: int, width: int) -> UInt8[Tensor, "3 H W"]:
    """Return an image as RGB: the largest centered box with the aspect ratio of this size, resized."""
    with opened(path) as file:
        return _resized(file, center_box(file.width, file.height, width, height), height, width)


def read_cropped(path: ImageFile, size: int, place: list[float]) -> UInt8[Tensor, "3 H W"]:
    """Return an image as RGB: the box of a random resized crop at this place, resized."""
    with opened(path) as file:
        return _resized(file, crop_box(place, file.width, file.height), size, size)


def _resized(file: Image.Image, box: tuple[float, float, float, float], height: int, width: int) -> Tensor:
    array = np.asarray(file.convert("RGB").resize((width, height), Image.Resampling.BILINEAR, box))
    return torch.from_numpy(array.transpose(2, 0, 1).copy())
