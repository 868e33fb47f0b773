"""Single image files: they are read as they were written."""

import pytest
import torch
from PIL import Image

import outspan
from conftest import make_images


@pytest.mark.parametrize("channels", [1, 3])
def test_a_written_image_is_read_unchanged(channels, tmp_path):
    image = make_images(0, 1, channels, 5, 7)
    outspan.write_image(image, tmp_path / "a.png")
    assert torch.equal(outspan.read_image(str(tmp_path / "a.png")), image)


def test_grey_stays_grey_and_all_others_become_rgb(tmp_path):
    for mode, channels in (("1", 1), ("L", 1), ("LA", 1), ("P", 3), ("RGBA", 3)):
        path = tmp_path / f"{mode}.png"
        Image.new(mode, (4, 3)).save(path)
        assert outspan.read_image(path).shape == (1, channels, 3, 4)


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a\.xyz: unknown image format '\.xyz'; use \.png"):
        outspan.write_image(make_images(0, 1, 3, 2, 2), tmp_path / "a.xyz")
    assert not list(tmp_path.iterdir())
