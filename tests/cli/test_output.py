"""Nothing that comes from outside reaches the terminal as a control character."""

import numpy as np
import pytest
from PIL import Image

from outspan.cli.output import printable

HOSTILE = "cat\x1b]0;owned\x07\x9b31m\u202e\r\naccuracy 100.00 %"


def controls(text: str) -> set[str]:
    return {character for character in text if not character.isprintable()} - {"\n"}


def test_every_control_character_is_escaped_and_the_rest_is_left_alone():
    everything = "".join(map(chr, range(0x3000)))
    assert not controls(printable(everything))
    assert "\n" not in printable(everything)
    assert printable("naïve 猫 …") == "naïve 猫 …"
    assert printable(b"\xff.png".decode(errors="surrogateescape")) == "\\udcff.png"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An image folder of two classes with hostile names."""
    root, draw = tmp_path_factory.mktemp("images"), np.random.Generator(np.random.Philox(0))
    for split, name in ((split, name) for split in ("train", "test") for name in (HOSTILE, "dog")):
        (root / split / name).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(root / split / name / f"{i}.png")
    return root


def test_hostile_names_do_not_reach_the_terminal(folder, tmp_path, run):
    options = ["--model", "convnet", "--policy", "none", "--set", "size=8", "--set", "epochs=1", "-o", tmp_path / HOSTILE]
    said = run("train", "--data", folder, *options)
    said += run("evaluate", tmp_path / HOSTILE)
    said += run("predict", tmp_path / HOSTILE, folder / "test", "--top", 2)
    damaged = folder / "train" / HOSTILE / "damaged\x1b[2J.png"
    damaged.write_bytes(b"not an image")
    said += run("train", "--data", folder, *options[:-1], tmp_path / "other", code=2)
    said += run("predict", tmp_path / HOSTILE, damaged, code=2)
    damaged.unlink()
    assert "cat\\x1b]0;owned" in said
    assert not controls(said)
    assert not any(line.startswith("accuracy 100") for line in said.splitlines())
