"""Checkpoints of a tiny run: changed bytes, and changed metadata and tensors with a valid digest."""

import contextlib
import json
import shutil
import tempfile
import zlib
from functools import lru_cache
from pathlib import Path

import safetensors.torch
import torch

from fuzz.contract import attempt
from fuzz.mutate import Draw, mutate, mutate_json, pick
from outspan.config import Recipe
from outspan.training import Stopped, checkpoint
from outspan.training.train import train
from outspan.training.trained import load as load_model

RECIPE = Recipe(model="mlp-2", policy="none", epochs=2, batch=50, fraction=0.06)


@lru_cache(maxsize=1)
def _base() -> bytes:
    """Return the checkpoint of a run that was stopped in the middle."""
    folder = Path(tempfile.mkdtemp())
    with contextlib.suppress(Stopped):
        train(RECIPE, out=folder, on_step=lambda progress: True)
    data = max(folder.glob("step-*.safetensors")).read_bytes()
    shutil.rmtree(folder)
    meta = {**_meta(data), "seconds": 1.0}  # a constant: the time of a run varies
    return _file(safetensors.torch.load(data), json.dumps(meta))


def _meta(data: bytes) -> dict:
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["meta"])


def _file(tensors: dict[str, torch.Tensor], text: str) -> bytes:
    """Return a checkpoint with a valid digest. Its header is sorted; the order of safetensors is random."""
    data = safetensors.torch.save(tensors, {"meta": text, "digest": checkpoint._digest(tensors, text)})
    size = int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8 : 8 + size]), sort_keys=True).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def make(draw: Draw) -> bytes:
    """Return a damaged checkpoint, or a valid one with unusual content."""
    base = _base()
    if draw.random() < 0.3:
        return mutate(base, draw)
    meta, tensors = _meta(base), safetensors.torch.load(base)
    if draw.random() < 0.3:
        _change_tensors(tensors, draw)
    else:
        for _ in range(int(draw.integers(1, 3))):
            meta = mutate_json(meta, draw)
    text = json.dumps(meta)
    if draw.random() < 0.1:
        text = mutate(text.encode(), draw, limit=2).decode(errors="replace")
    return _file(tensors, text)


def _change_tensors(tensors: dict[str, torch.Tensor], draw: Draw) -> None:
    name = pick(draw, sorted(tensors))
    tensor = tensors.pop(name)
    how = int(draw.integers(6))
    if how == 1:
        tensors[name + pick(draw, ("", ".x", "\0", "\n" * 3, "x" * 3000))] = tensor
    elif how == 2:
        tensors[name] = tensor.to(pick(draw, (torch.float64, torch.int8, torch.bool, torch.bfloat16))).contiguous()
    elif how == 3:
        tensors[name] = torch.zeros(pick(draw, ((), (0,), (1,), (3, 0, 2), (7, 7))))
    elif how == 4:
        tensors[name] = torch.full_like(tensor, pick(draw, (float("nan"), float("inf"), 1e38)))
    elif how == 5:
        tensors.clear()


def check(data: bytes, folder: Path) -> None:
    """Read a checkpoint, load its model, and resume from it."""
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    path = out / "step-000000003.safetensors"
    path.write_bytes(data)
    attempt(checkpoint.read, path)
    attempt(checkpoint.load, out)
    attempt(load_model, out)
    if zlib.crc32(data) % 4 == 0:  # slower
        attempt(train, RECIPE, out=out)
