"""Names from outside are printed without control characters."""

import numpy as np
import pytest
from PIL import Image

from outspan.cli.output import printable

HOSTILE = "cat\x1b]0;owned\x07\x9b31m\u202e\r\naccuracy 100.00 %"


def controls(text: str) -> set[str]:
    return {character for character in text if not character.isprintable()} - {"\n"}


def test_only_control_characters_are_escaped():
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


def test_hostile_names_are_escaped_in_all_output(folder, tmp_path, run):
    options = ["--model", "convnet", "--policy", "none", "--set", "size=8", "--set", "epochs=1", "-o", tmp_path / HOSTILE]
    output = run("train", "--data", folder, *options)
    output += run("evaluate", tmp_path / HOSTILE)
    output += run("predict", tmp_path / HOSTILE, folder / "test", "--top", 2)
    damaged = folder / "train" / HOSTILE / "damaged\x1b[2J.png"
    damaged.write_bytes(b"not an image")
    output += run("train", "--data", folder, *options[:-1], tmp_path / "other", code=2)
    output += run("predict", tmp_path / HOSTILE, damaged, code=2)
    damaged.unlink()
    assert "cat\\x1b]0;owned" in output
    assert not controls(output)
    assert not any(line.startswith("accuracy 100") for line in output.splitlines())
