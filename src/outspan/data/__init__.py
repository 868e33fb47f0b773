"""Data sets: bytes [N, C, H, W] and class numbers, read from the files their authors publish, or included."""

from outspan.data.image import example_image as example_image
from outspan.data.image import read_image as read_image
from outspan.data.image import write_image as write_image

__all__ = ["example_image", "read_image", "write_image"]
