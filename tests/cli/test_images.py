"""The commands for single images, compared with Pillow, and their errors."""

import json

import numpy as np
import pytest
from PIL import Image

from made import pixels
from outspan import TRANSFORMS, Plan
from outspan.data import example_image
from outspan.transforms.table import ALL
from pillow import apply_with_pillow


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "cat.png"
    Image.fromarray(example_image()[0].permute(1, 2, 0).numpy()).save(path)
    return path


def test_transforms_lists_the_table(run):
    out = run("transforms")
    assert all(name in out for name in ALL)
    entries = json.loads(run("transforms", "--json"))
    assert [entry["name"] for entry in entries] == list(ALL)
    assert [entry["name"] for entry in entries if entry["of"] == "images"] == list(TRANSFORMS)
    rotate = next(entry for entry in entries if entry["name"] == "rotate")
    assert rotate["unit"] == "degrees"
    assert rotate["at_level_1"] == 30
    assert rotate["levels"] == [-4.5, 4.5]


def test_apply_writes_the_same_pixels_as_pillow(picture, tmp_path, run):
    out = tmp_path / "out.png"
    run("apply", picture, "-o", out, "--ops", "rotate:0.5, invert")
    plan = Plan.of([["rotate", "invert"]], levels=[[0.5, 0]])
    assert np.array_equal(pixels(out), apply_with_pillow(example_image(), plan)[0].permute(1, 2, 0).numpy())
    assert {path.name for path in tmp_path.iterdir()} == {"cat.png", "out.png"}


def test_apply_mixes_with_a_partner(picture, tmp_path, run):
    other, out = tmp_path / "grey.png", tmp_path / "out.png"
    Image.fromarray(np.full((224, 224), 100, dtype=np.uint8)).save(other)
    run("apply", picture, "-o", out, "--ops", "mixup:0.5", "--partner", other)
    expected = Image.blend(Image.fromarray(pixels(picture)), Image.new("RGB", (224, 224), (100, 100, 100)), 0.5)
    assert np.array_equal(pixels(out), np.asarray(expected))


def test_apply_keeps_grey_images_grey(tmp_path, run):
    path, out = tmp_path / "grey.png", tmp_path / "out.png"
    Image.fromarray(np.arange(100, dtype=np.uint8).reshape(10, 10)).save(path)
    run("apply", path, "-o", out, "--ops", "invert")
    assert np.array_equal(pixels(out), 255 - pixels(path))


def test_gallery_writes_an_image(picture, tmp_path, run):
    for arguments in ((), (picture,)):
        out = tmp_path / "gallery.png"
        assert str(out) in run("gallery", *arguments, "-o", out)
        assert pixels(out).shape[:2] == (1350, 2400)


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ("rotat:0.5", "did you mean 'rotate'"),
        ("rotate", "'rotate' needs a level, e.g. rotate:0.5"),
        ("rotate:fast", "level of 'rotate' must be a number, got 'fast'"),
        ("rotate:9", "level of 'rotate' must lie in [-4.5, 4.5], got 9"),
        ("rotate:nan", "got nan"),
        ("cutout:-0.5", "level of 'cutout' must lie in [0, 1], got -0.5"),
        ("invert:1", "'invert' takes no level, got '1'"),
        ("mixup:0.5", "'mixup' mixes two images: pass the second with --partner"),
        ("", "empty transform name in ''"),
        ("invert,", "empty transform name in 'invert,'"),
    ],
)
def test_invalid_ops_are_refused(ops, message, picture, tmp_path, run):
    out = tmp_path / "out.png"
    assert message in run("apply", picture, "-o", out, "--ops", ops, code=2)
    assert not out.exists()


def test_files_that_cannot_be_read_or_written_are_refused(picture, tmp_path, run):
    out = tmp_path / "out.png"
    whole = picture.read_bytes()
    (tmp_path / "short.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("not an image")
    (tmp_path / "empty.png").write_bytes(b"")
    for name, message in (
        ("short.png", "cannot be read as an image"),
        ("text.png", "cannot be read as an image"),
        ("empty.png", "cannot be read as an image"),
        ("none.png", "no such file"),
        (".", "is a folder"),
    ):
        for command in (("apply", tmp_path / name, "-o", out, "--ops", "invert"), ("gallery", tmp_path / name, "-o", out)):
            assert message in run(*command, code=2)
            assert not out.exists()
    assert "unknown image format '.xyz'" in run("apply", picture, "-o", tmp_path / "a.xyz", "--ops", "invert", code=2)
    assert "cannot be written" in run("apply", picture, "-o", tmp_path / "no" / "a.png", "--ops", "invert", code=2)
    other = tmp_path / "other.png"
    Image.new("RGB", (3, 4)).save(other)
    command = ("apply", picture, "-o", out, "--ops", "mixup:0.5", "--partner", other)
    assert "must have the image's height and width [224, 224], got [4, 3]" in run(*command, code=2)
