"""Image files decoded as bytes of one size, grey or RGB. Any problem with a file raises a ValueError that names it."""

import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from PIL import ExifTags, Image, ImageColor, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile
from torch import Tensor

from outspan.data.members import ImageFile, Member
from outspan.files import check_regular
from outspan.messages import first_line
from outspan.shapes import UInt8
from outspan.transforms.filter import crop_box

FindBox = Callable[[int, int], tuple[float, float, float, float]]  # from width and height: left, top, right, bottom

_MAX_PIXELS = 64 * 1024 * 1024
_FILTER = Image.Resampling.BILINEAR
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # other formats would start external programs
_DEEP = {"I;16", "I;16L", "I;16B", "I;16N", "I"}  # 16 bits per pixel; "I" also has other numbers
GREY = {"1", "L", "LA", *_DEEP}
# By the EXIF orientation, from 2 to 8. All others, also those that are not defined, change nothing.
_TURNS = dict(
    enumerate(
        (
            Image.Transpose.FLIP_LEFT_RIGHT,
            Image.Transpose.ROTATE_180,
            Image.Transpose.FLIP_TOP_BOTTOM,
            Image.Transpose.TRANSPOSE,
            Image.Transpose.ROTATE_270,
            Image.Transpose.TRANSVERSE,
            Image.Transpose.ROTATE_90,
        ),
        2,
    )
)
_QUARTER_TURNS = {Image.Transpose.TRANSPOSE, Image.Transpose.ROTATE_270, Image.Transpose.TRANSVERSE, Image.Transpose.ROTATE_90}
_SPARE = 2  # decoded pixels for each one that is needed, per side, below which a JPEG file is not decoded at a smaller size
DECODING = 3  # a new number for every change of the pixels that a file gives; runs of another number are not resumed
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
                if file.mode == "F" or (file.mode == "I" and file.format != "PPM"):
                    raise ValueError(f"pixels of 32 bits, mode {file.mode!r}: convert it to 8 or 16 bits")
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


@dataclass(frozen=True)
class Pixels:
    """Which pixels a file gives: 1 channel (grey) or 3 (RGB), and the colour behind transparent pixels."""

    channels: int = 3
    background: str = "white"

    @property
    def mode(self) -> str:
        """Pillow's name of these pixels."""
        return "L" if self.channels == 1 else "RGB"


RGB = Pixels()


def is_grey(path: ImageFile) -> bool:
    """Return whether an image file has no colours, by its header."""
    with opened(path) as file:
        return file.mode in GREY


def convert(file: Image.Image, pixels: Pixels) -> Image.Image:
    """Return an image upright, as its EXIF orientation says, and as 8-bit grey or RGB.

    Transparent pixels are composed over the background. Of pixels with 16 bits the upper 8 are kept.
    """
    file.load()  # a TIFF file is turned by Pillow, which then removes its orientation
    turn, image = _turn(file), file
    if file.mode in _DEEP:
        image = Image.fromarray((np.asarray(file) >> 8).astype(np.uint8))
    elif file.has_transparency_data:
        canvas = Image.new("RGBA", file.size, ImageColor.getrgb(pixels.background))
        image = Image.alpha_composite(canvas, file.convert("RGBA"))
    image = image if image.mode == pixels.mode else image.convert(pixels.mode)
    return image if turn is None else image.transpose(turn)


def _turn(file: Image.Image) -> Image.Transpose | None:
    """Return what turns an image upright."""
    with suppress(*_DECODING_ERRORS):  # damaged metadata does not matter if the pixels can be read
        return _TURNS.get(file.getexif().get(ExifTags.Base.Orientation, 1))  # 1: upright
    return None


def read_fitted(path: ImageFile, height: int, width: int, pixels: Pixels = RGB) -> UInt8[Tensor, "C H W"]:
    """Return an image: the largest centered box with the aspect ratio of this size, resized."""
    return _read(path, partial(center_box, to_width=width, to_height=height), height, width, pixels)


def read_cropped(path: ImageFile, size: int, place: list[float], pixels: Pixels = RGB) -> UInt8[Tensor, "C H W"]:
    """Return an image: the box of a random resized crop at this place, resized."""
    return _read(path, partial(crop_box, place), size, size, pixels)


def _read(path: ImageFile, find_box: FindBox, height: int, width: int, pixels: Pixels) -> UInt8[Tensor, "C H W"]:
    with opened(path) as file:
        _shrink(file, find_box, height, width)
        return to_tensor(_resize(file, find_box, height, width, pixels))


def _resize(file: Image.Image, find_box: FindBox, height: int, width: int, pixels: Pixels) -> Image.Image:
    image = convert(file, pixels)
    return image.resize((width, height), _FILTER, find_box(*image.size))


def _shrink(file: Image.Image, find_box: FindBox, height: int, width: int) -> None:
    """Have a JPEG file decoded at 1/2, 1/4 or 1/8 of its size, if the box still has twice the pixels that are needed per side.

    Pillow's `thumbnail` does the same. The pixels hardly differ, and a photograph of a phone is decoded in half of the time.
    """
    if isinstance(file, JpegImageFile):
        is_turned = _turn(file) in _QUARTER_TURNS
        left, top, right, bottom = find_box(file.height, file.width) if is_turned else find_box(file.width, file.height)
        spare = min((right - left) / width, (bottom - top) / height) / _SPARE
        if spare >= 2:
            file.draft(None, (round(file.width / spare), round(file.height / spare)))


def fit(file: Image.Image, height: int, width: int, pixels: Pixels = RGB) -> Image.Image:
    """Return the largest centered box with the aspect ratio of this size, resized."""
    return _resize(file, partial(center_box, to_width=width, to_height=height), height, width, pixels)


def to_tensor(image: Image.Image) -> UInt8[Tensor, "C H W"]:
    """Return a copy of the pixels of a grey or RGB image."""
    array = np.array(image)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())
