"""Files to classify: listed in folders, read, and refused by name."""

import pytest
from PIL import Image

from outspan.config import Recipe
from outspan.data.inputs import list_files, read_files


def test_images_are_listed_and_read_for_the_shape_of_a_model(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("b.png", "a.png", "deep/c.jpg"):
        Image.new("RGB", (9, 7), "white").save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("none")
    paths = list_files([tmp_path, tmp_path / "b.png"], "images")
    assert [path.name for path in paths] == ["a.png", "b.png", "c.jpg", "b.png"]
    (tmp_path / "a.png").write_bytes(b"torn")
    for channels in (1, 3):
        errors = []
        readable, split = read_files(paths, "images", (channels, 5, 6), Recipe(), errors.append)
        assert [(place.file.name, place.row) for place in readable] == [("b.png", 0), ("c.jpg", 0), ("b.png", 0)]
        assert split.images.shape == (3, channels, 5, 6)
        assert "a.png" in str(errors[0])
    assert read_files(paths[:1], "images", (3, 5, 6), Recipe(), errors.append) == ([], None)


def test_invalid_inputs_are_refused(tmp_path):
    for noun, suffix in (("texts", ".txt"), ("images", ".bmp")):
        with pytest.raises(ValueError, match=rf"no supported files in this folder, expected .*{suffix}"):
            list_files([tmp_path], noun)
