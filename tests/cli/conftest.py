"""Running the command line as a user does."""

import sys

import numpy as np
import pytest

from outspan.cli import main
from outspan.data.sets import load


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line and check its exit code; a refusal is one line and no traceback."""

    def call(*arguments: object, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["outspan", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        out, err = capsys.readouterr()
        assert exited.value.code == code, err
        first, _, rest = err.partition("\n")
        err = rest if " parameters; " in first else err  # what is about to be trained
        if code > 1:  # 1: it was done, and a part of it failed
            assert err.startswith("outspan: ")
            assert err.count("\n") == 1
            assert out == ""
        return err if code > 1 else out

    return call


@pytest.fixture
def few(tmp_path):
    """Return a file of few digits."""
    path, digits = tmp_path / "few.npz", load("digits")
    arrays = {"train_images": digits.train.images[:100], "train_labels": digits.train.labels[:100]}
    arrays |= {"test_images": digits.test.images[:60], "test_labels": digits.test.labels[:60]}
    np.savez(path, **{name: tensor.numpy() for name, tensor in arrays.items()})
    return path


@pytest.fixture
def tiny(tmp_path):
    """A data set of two classes that anything learns, as an .npz file."""
    labels = np.arange(60) % 2
    images = np.full((60, 8, 8), 20, dtype=np.uint8)
    images[labels == 1] = 220
    path = tmp_path / "tiny.npz"
    np.savez(path, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    return path
