"""Image files: written by Pillow, then damaged."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fuzz.contract import attempt, expect
from fuzz.mutate import Draw, mutate, pick
from outspan.data.decode import read_cropped, read_fitted
from outspan.data.image import read_image

FORMATS = (
    ("PNG", ("1", "L", "LA", "P", "RGB", "RGBA"), ({}, {"optimize": True}, {"bits": 2})),
    ("JPEG", ("L", "RGB", "CMYK"), ({}, {"progressive": True}, {"quality": 5}, {"restart_marker_blocks": 1})),
    ("GIF", ("L", "P", "RGB"), ({}, {"interlace": 1}, {"save_all": True})),
    ("BMP", ("1", "L", "P", "RGB", "RGBA"), ({},)),
    ("TIFF", ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16", "F"),
     ({}, {"compression": "tiff_lzw"}, {"compression": "tiff_adobe_deflate"}, {"compression": "packbits"},
      {"compression": "jpeg"}, {"compression": "group4"}, {"big_tiff": True})),
    ("WEBP", ("RGB", "RGBA"), ({}, {"lossless": True}, {"save_all": True})),
    ("PPM", ("1", "L", "RGB"), ({},)),
)  # fmt: skip


def make(draw: Draw) -> bytes:
    """Return an image file of any supported format, damaged in nine of ten cases."""
    file_format, modes, options = pick(draw, FORMATS)
    width, height = (int(side) for side in draw.integers(1, 40, 2))
    noise = draw.integers(0, 256, (height, width, 3), dtype=np.uint8) // int(draw.integers(1, 255))
    mode = pick(draw, modes)
    image = Image.fromarray(noise)
    image = Image.fromarray(noise[:, :, 0].astype(np.uint16)) if mode == "I;16" else image.convert(mode)
    chosen = dict(pick(draw, options))
    if chosen.get("save_all"):
        chosen["append_images"] = [image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    file = io.BytesIO()
    try:
        image.save(file, file_format, **chosen)
    except (OSError, ValueError, KeyError):  # the mode does not support the compression
        file = io.BytesIO()
        image.convert("L").save(file, file_format)
    data = file.getvalue()
    if draw.random() < 0.1:
        return data
    data = mutate(data, draw)
    return repair_checksums(data) if file_format == "PNG" and draw.random() < 0.7 else data


def repair_checksums(data: bytes) -> bytes:
    """Return a PNG file with valid chunk checksums, so that the content of the chunks is read."""
    out, at = data[:8], 8
    while at + 12 <= len(data):
        size = struct.unpack_from(">I", data, at)[0]
        body = data[at + 4 : at + 8 + size]
        out += data[at : at + 4] + body + struct.pack(">I", zlib.crc32(body))
        at += 12 + size
    return out + data[at:]


def check(data: bytes, folder: Path) -> None:
    """Read a file with every reader."""
    path = folder / "image"
    path.write_bytes(data)
    fitted = attempt(read_fitted, path, 5, 8)
    expect(fitted is None or (fitted.shape == (3, 5, 8) and fitted.dtype == torch.uint8), "a fitted image has another shape")
    cropped = attempt(read_cropped, path, 6, [0.5, 0.25, 0.125, 0.75])
    expect(cropped is None or cropped.shape == (3, 6, 6), "a cropped image has another shape")
    whole = attempt(read_image, path)
    expect(whole is None or whole.ndim == 4, "a whole image has another shape")
