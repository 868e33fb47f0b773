"""Data sets of images and texts: readers of published files, folders and tables, and the splits that batches come from."""

from outspan.data.image import example_image as example_image
from outspan.data.image import read_image as read_image
from outspan.data.image import write_image as write_image

__all__ = ["example_image", "read_image", "write_image"]
