"""Checkpoints are complete or absent, and any damage is detected."""

import errno
import os
from typing import Any

import pytest
import torch

from outspan.training import checkpoint

TENSORS = {
    "model.weight": torch.arange(12, dtype=torch.float32).view(3, 4),
    "model.count": torch.tensor(7),
    "empty": torch.zeros(0, 3),
    "momentum.weight": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
}
DATA = {"train": 10_000, "shape": [1, 28, 28], "classes": ["0", "1"], "mean": [0.1], "std": [0.3]}
META = {"recipe": {"data": "digits"}, "data": DATA, "setting": {}, "seconds": 1.5, "losses": 0.1 + 0.2, "chosen": {}}
META |= {"metrics": []}


def at_step(step: int) -> dict[str, Any]:
    """Return the metadata of a step."""
    return {**META, "step": step}


def same(stored: checkpoint.Checkpoint, step: int) -> bool:
    tensors, meta = stored
    assert meta == at_step(step)
    return tensors.keys() == TENSORS.keys() and all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_a_loaded_checkpoint_is_bit_identical(tmp_path):
    assert checkpoint.load(tmp_path) is None
    checkpoint.save(tmp_path, TENSORS, at_step(3))
    assert same(checkpoint.load(tmp_path), 3)


def test_the_newest_is_loaded_and_two_are_kept(tmp_path):
    for step in (1, 2, 10):
        checkpoint.save(tmp_path, TENSORS, at_step(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000002.safetensors", "step-000000010.safetensors"]
    assert same(checkpoint.load(tmp_path), 10)


def test_a_file_cut_at_any_byte_is_skipped_for_the_older_one(tmp_path):
    checkpoint.save(tmp_path, TENSORS, at_step(1))
    path = checkpoint.save(tmp_path, TENSORS, at_step(2))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert checkpoint.load(tmp_path)[1]["step"] == 1
    path.write_bytes(whole + b"\0")
    assert checkpoint.load(tmp_path)[1]["step"] == 1
    path.write_bytes(whole)
    assert checkpoint.load(tmp_path)[1]["step"] == 2


def test_a_damaged_newest_one_is_skipped_and_only_damaged_ones_are_refused(tmp_path):
    for step in (18, 20):
        checkpoint.save(tmp_path, TENSORS, at_step(step)).write_bytes(b"damaged")
    with pytest.raises(ValueError, match="no complete checkpoint, step-000000020"):
        checkpoint.load(tmp_path)
    checkpoint.save(tmp_path, TENSORS, at_step(10))
    assert same(checkpoint.load(tmp_path), 10)


@pytest.mark.parametrize("bits", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_every_flipped_bit_is_detected(bits, tmp_path):
    """One bit of every byte, another one in the next; or all of them."""
    path = checkpoint.save(tmp_path, TENSORS, at_step(1))
    whole = path.read_bytes()
    for position in range(len(whole)):
        for bit in range(position % 8, position % 8 + bits):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit % 8
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"checkpoint|digest"):
                checkpoint.read(path)


def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, TENSORS, at_step(1))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"step-000000002\.safetensors: cannot be written \(No space left on device\)"):
        checkpoint.save(tmp_path, TENSORS, at_step(2))
    assert same(checkpoint.load(tmp_path), 1)
    assert not list(tmp_path.glob("*.partial"))


def test_tied_weights_are_saved_twice(tmp_path):
    weight = torch.arange(6.0)
    checkpoint.save(tmp_path, {"model.a": weight, "model.b": weight, "model.c": weight[3:]}, at_step(1))
    tensors = checkpoint.load(tmp_path)[0]
    assert torch.equal(tensors["model.a"], weight)
    assert torch.equal(tensors["model.b"], weight)
    assert torch.equal(tensors["model.c"], weight[3:])


def test_a_checkpoint_without_read_permission_is_not_skipped(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, TENSORS, at_step(1))
    newest = checkpoint.save(tmp_path, TENSORS, at_step(2))
    unmocked = open

    def refuse(path, *arguments):
        if path == newest:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return unmocked(path, *arguments)

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(PermissionError, match="step-000000002"):
        checkpoint.load(tmp_path)
