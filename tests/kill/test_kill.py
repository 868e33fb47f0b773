"""Killed at random instants, also inside a save, a run ends with the same bytes; and the test can tell if it did not."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from outspan.train import checkpoint

RUN = """
import sys, time
from pathlib import Path
import torch
from outspan.config import Recipe
from outspan.data.sets import Data, load
from outspan.data.splits import Split
from outspan.train import checkpoint, loop
torch.set_num_threads(1)
digits = load("digits")
data = Data("digits", Split(digits.train.images[:256], digits.train.labels[:256]),
            Split(digits.test.images[:50], digits.test.labels[:50]), digits.classes)
recipe = Recipe(data="digits", model="convnet", policy="uncertain", epochs=4, batch=32, defaults="cifar")
mode = sys.argv[2]
if mode == "in place":                      # a save that writes over the only file, slowly
    def save(folder, step, tensors, meta):
        import json, safetensors.torch
        text = json.dumps({**meta, "step": step}, sort_keys=True)
        cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        whole = safetensors.torch.save(cpu, {"meta": text, "digest": checkpoint._digest(cpu, text)})
        print("saving", flush=True)
        with open(folder / "step-000000001.safetensors", "wb") as file:
            for i in range(0, len(whole), 4096):
                file.write(whole[i:i + 4096]); file.flush(); time.sleep(0.002)
    checkpoint.save = save
elif mode == "streamed":                    # randomness that depends on what was drawn before
    import numpy as np
    stream = np.random.Generator(np.random.Philox(1))
    loop.rng.generator = lambda *address: stream
import os
class Slow:                                 # slow enough that kills land inside; of checkpoints alone
    def __getattr__(self, name):
        return getattr(os, name)
    def fsync(self, handle):
        print("saving", flush=True); time.sleep(0.03); os.fsync(handle); print("saved", flush=True)
checkpoint.os = Slow()
print("start", flush=True)
loop.train(recipe, out=Path(sys.argv[1]), data=data, save_every=0.0)
print("done", flush=True)
"""


def start(folder, mode):
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", RUN, str(folder), mode], stdout=subprocess.PIPE, text=True)


def finish(folder, mode="slow") -> None:
    process = start(folder, mode)
    out = process.communicate(timeout=300)[0]
    assert process.returncode == 0
    assert out.endswith("done\n")


def kill_once(folder, mode, saves: int, delay: float) -> tuple[bool, bool]:
    """Kill a run `delay` after it began its n-th write; return whether it was still running, and whether inside a save."""
    process = start(folder, mode)
    assert process.stdout is not None
    said = []
    while said.count("saving") < saves and (line := process.stdout.readline()):
        said.append(line.strip())
    time.sleep(delay)
    running = process.poll() is None
    process.send_signal(signal.SIGKILL)
    said += process.communicate()[0].split()
    return running, said.count("saving") > said.count("saved")


def result(folder) -> tuple[dict, dict]:
    found = checkpoint.load(folder)
    assert found is not None
    return found[0], {key: value for key, value in found[1].items() if key != "seconds"}


def is_same(one, other) -> bool:
    return one[1] == other[1] and one[0].keys() == other[0].keys() and all(torch.equal(one[0][k], other[0][k]) for k in one[0])


@pytest.mark.parametrize(("runs", "inside_saves"), [(4, 5), pytest.param(10, 10, marks=pytest.mark.slow)])
def test_killed_at_random_instants_it_ends_the_same(runs, inside_saves, tmp_path):
    finish(tmp_path / "whole")
    expected = result(tmp_path / "whole")
    draw = np.random.Generator(np.random.Philox(3))
    kills = inside = 0
    for run in range(runs):
        folder = tmp_path / str(run)
        for _ in range(5):
            running, saving = kill_once(folder, "slow", int(draw.integers(1, 4)), float(draw.uniform(0.0, 0.12)))
            kills += running
            inside += saving
        finish(folder)
        assert is_same(result(folder), expected)
        for file in ("metrics.jsonl", "compositions.jsonl"):
            assert (folder / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    print(f"{kills} kills, {inside} inside a save")
    assert kills >= 0.9 * 5 * runs  # one may find its run over
    assert inside >= inside_saves


def test_a_save_in_place_would_be_seen(tmp_path):
    """The guard: overwriting the only checkpoint loses it to a kill inside the save."""
    lost = 0
    for run in range(4):
        folder = tmp_path / str(run)
        kill_once(folder, "in place", 2, 0.02)
        try:
            checkpoint.load(folder)
        except ValueError:
            lost += 1
    assert lost


def test_streamed_randomness_would_be_seen(tmp_path):
    """The guard: draws that depend on earlier draws come out otherwise after a restart."""
    finish(tmp_path / "whole", "streamed")
    running, _ = kill_once(tmp_path / "parts", "streamed", 5, 0.05)
    assert running
    assert checkpoint.load(tmp_path / "parts")
    finish(tmp_path / "parts", "streamed")
    assert not is_same(result(tmp_path / "whole"), result(tmp_path / "parts"))
