"""Kill commands at random times, restart them at once, and compare their results.

    python tests/kill/drill.py                                    # every scenario, a few runs each
    python tests/kill/drill.py --scenarios train,folder --runs 35 --result results/reliability.json

A run passes if after several kills its results are bit-identical to those of a run without kills, no restart is refused, there
is no traceback, and 5 seconds after a kill all processes of the killed command have ended.

Importing torch takes seconds, so this process imports everything once, computes nothing, and forks a child per command.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import multiprocessing
import multiprocessing.util
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # bits are promised for the same number of threads
ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

# Processes that a command spawns import this module, too. Those that only read images must not become slower.
PATCHES = "OUTSPAN_DRILL_PATCHES"  # set for commands whose processes train
if __name__ != "__mp_main__" or PATCHES in os.environ:
    import numpy as np
    import safetensors.torch
    import torch
    from machine import machine
    from PIL import Image

    import outspan.cli
    from outspan import rng
    from outspan.data.sets import load
    from outspan.text.segments import sentences
    from outspan.training import checkpoint, ensemble, train
    from outspan.transforms.table import TEXT_TRANSFORMS
    from reviews import GOOD, make_reviews, write_model, write_wordnet
    from trained_runs import make_pairs

    # Save after every step.
    train.train.__kwdefaults__["save_every"] = 0.0
    ensemble.train_ensemble.__kwdefaults__["save_every"] = 0.0

_fsync = os.fsync


def _slow_fsync(handle: int) -> None:
    """Sync as slowly as a busy disk, so that many kills land inside a save."""
    time.sleep(0.02)
    _fsync(handle)


os.fsync = _slow_fsync

SMALL = ("--set", "epochs=3", "--set", "batch=32")
Arguments = list[str]


def digits(root: Path) -> Path:
    """Write a few of the included digits."""
    path, data = root / "digits.npz", load("digits")
    arrays = {"train_images": data.train.images[:128], "train_labels": data.train.labels[:128]}
    arrays |= {"test_images": data.test.images[:40], "test_labels": data.test.labels[:40]}
    np.savez(path, **{name: tensor.numpy() for name, tensor in arrays.items()})
    return path


def pairs(root: Path) -> Path:
    """Write images with several labels: the digits that they show."""
    path, data = root / "pairs.npz", make_pairs(128, 40)
    arrays = {
        "x_train": data.train.images,
        "y_train": data.train.labels,
        "x_test": data.test.images,
        "y_test": data.test.labels,
    }
    np.savez(path, **{name: tensor.numpy() for name, tensor in arrays.items()})
    return path


def weighted_digits(root: Path) -> Path:
    """Write digits, and a weight of each."""
    path = root / "weighted.npz"
    with np.load(digits(root)) as arrays:
        np.savez(path, train_weights=np.random.Generator(np.random.Philox(0)).random(len(arrays["train_labels"])), **arrays)
    return path


def images(root: Path) -> Path:
    """Write an image folder that is large enough for worker processes."""
    draw = np.random.Generator(np.random.Philox(0))
    for split, name, count in ((s, n, c) for s, c in (("train", 150), ("test", 10)) for n in ("a", "b")):
        folder = root / "images" / split / name
        folder.mkdir(parents=True)
        for i in range(count):
            Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return root / "images"


def every_operation(root: Path) -> Arguments:
    """Write a made WordNet and a cache, and return the options for all operations on texts, two per candidate."""
    write_wordnet(root / "wordnet")
    parts = [part for text, _ in make_reviews(40) for part in sentences(text)]
    words = [[list(GOOD) for _ in part.split()] for part in parts]
    backs = [" ".join(reversed(part.split())) for part in parts]
    rows: list[dict[str, Any]] = [{"engine": "apertium", "pair": "eng-spa"}]
    rows += [{"text": part, "back": back} for part, back in zip(parts, backs, strict=True)]
    rows += [
        {"engine": "masked", "pair": "made"},
        *({"text": part, "back": back} for part, back in zip(parts, words, strict=True)),
    ]
    (root / "cache.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"transforms": ",".join(TEXT_TRANSFORMS), "depth": "2", "wordnet": str(root / "wordnet")}
    options["cache"] = str(root / "cache.jsonl")
    return [part for key, value in options.items() for part in ("--set", f"{key}={value}")]


def texts(root: Path, *, lowercase: bool = True) -> Arguments:
    """Write reviews and a tiny BERT, and return the options for them. A child process writes it: tokenizers start threads."""
    for split, count, seed in (("train", 40, 0), ("test", 20, 1)):
        rows = [json.dumps({"text": text, "label": label}) for text, label in make_reviews(count, seed)]
        (root / "reviews").mkdir(exist_ok=True)
        (root / "reviews" / f"{split}.jsonl").write_text("\n".join(rows) + "\n")
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a progress bar
        write_model(root / "bert", lowercase=lowercase)
        os._exit(0)
    os.waitpid(child, 0)
    return ["--data", str(root / "reviews"), "--model", str(root / "bert"), "--set", "length=48"]


def grid(root: Path) -> Arguments:
    """Write a recipe with two learning rates."""
    path = root / "grid.toml"
    path.write_text(f'data = "{digits(root)}"\nmodel = "mlp"\npolicy = "random"\nlr = [0.05, 0.1]\nvalidation = 30\n')
    return [str(path), *SMALL]


def on_digits(*arguments: str) -> Callable[[Path], Arguments]:
    """Return a function that writes digits and returns the arguments of a command."""
    return lambda root: [arguments[0], "--data", str(digits(root)), *arguments[1:], *SMALL]


COMPARE = ("compare", "--model", "mlp", "--policies", "none,random", "--seeds", "2")
STUDY = ("--transforms", "rotate,invert", "--seeds", "2")
SCENARIOS: Mapping[str, Callable[[Path], Arguments]] = {
    "train": on_digits("train", "--model", "convnet", "--policy", "uncertain", "--set", "defaults=cifar"),
    "auto": lambda root: [
        *("train", "--data", str(digits(root)), "--model", "mlp", "--policy", "auto"),
        *("--set", "epochs=24", "--set", "batch=32"),
        *("--set", "finish=0.2", "--set", "ema=0.9", "--set", "strength=0.8", "--set", "skip=0.4"),
        *("--set", "by_confidence=0.5", "--set", "label_smoothing=0.1"),
    ],
    "early stopping": lambda root: [
        *("train", "--data", str(digits(root)), "--model", "wide_resnet-10-1", "--policy", "random"),
        *("--set", "epochs=12", "--set", "batch=32", "--set", "validation=30", "--set", "patience=2", "--set", "ema=0.5"),
        *("--set", "freeze=all but head", "--set", "unfreeze=2", "--set", "layer_decay=0.7", "--set", "precision=bf16"),
    ],
    "balanced sampling": lambda root: [
        *("train", "--data", str(digits(root)), "--model", "mlp", "--policy", "auto", "--set", "sampling=balanced"),
        *("--set", "epochs=12", "--set", "batch=32", "--set", "validation=30", "--set", "patience=3"),
    ],
    "multi-label": lambda root: [
        *("train", "--data", str(pairs(root)), "--model", "mlp", "--policy", "auto", "--set", "class_weights=balanced"),
        *("--set", "epochs=12", "--set", "batch=32", "--set", "validation=30", "--set", "patience=3"),
    ],
    "fold with sample weights": lambda root: [
        *("train", "--data", str(weighted_digits(root)), "--model", "mlp", "--policy", "uncertain"),
        *("--set", "epochs=12", "--set", "batch=32", "--set", "folds=3", "--set", "fold=1", "--set", "class_weights=balanced"),
    ],
    "folder": lambda root: [
        *("train", "--data", str(images(root)), "--model", "convnet", "--policy", "random"),
        *("--set", "size=8", "--set", "epochs=2", "--set", "batch=50", "--set", "crop=resized"),
    ],
    "text": lambda root: ["train", *texts(root), "--policy", "uncertain", "--set", "epochs=2", "--set", "batch=10"],
    "text operations": lambda root: [
        *("train", *texts(root, lowercase=False), "--policy", "uncertain"),
        *(*every_operation(root), "--set", "epochs=2", "--set", "batch=10"),
    ],
    "compare": on_digits(*COMPARE),
    "compare --jobs 2": on_digits(*COMPARE, "--jobs", "2"),
    "grid": lambda root: ["grid", *grid(root)],
    "measure": on_digits("measure", "--model", "mlp", *STUDY),
    "measure convnet": on_digits("measure", "--model", "convnet", *STUDY),
    "compose": on_digits("compose", "--model", "mlp", *STUDY),
}
KILLS = ("parent", "group", "child", "terminate")


def launch(arguments: Arguments, log: Path, method: str | None = None) -> int:
    """Start a command as the leader of its own session and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    if "--jobs" in arguments:
        os.environ[PATCHES] = "1"
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    torch.set_num_threads(1)
    sys.argv = ["outspan", *arguments]
    if method:
        multiprocessing.set_start_method(method)
    code = 1
    try:
        outspan.cli.main()
    except SystemExit as exited:
        code = int(exited.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    multiprocessing.util._exit_function()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def session(leader: int) -> list[int]:
    """Return the running processes of a session, without its leader."""
    members = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != leader:
            try:
                state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:  # it has ended
                continue
            if int(its_session) == leader and state != "Z":
                members.append(int(folder.name))
    return members


class Failed(Exception):
    """A run that does not pass."""


class Drill:
    """The folder of a drill, its counts, and the killed sessions that may still have running processes."""

    def __init__(self, root: Path, draw: np.random.Generator, patience: float) -> None:
        self.root, self.draw, self.patience = root, draw, patience
        self.killed: list[tuple[int, float]] = []
        self.kills = self.inside_a_save = self.checked = 0

    def wait(self, pid: int, log: Path, limit: float = 300.0) -> int:
        """Return the exit code of a command, negative for a signal. Raise `Failed` for a hang or a traceback."""
        end = time.monotonic() + limit
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() > end:
                os.killpg(pid, signal.SIGKILL)
                raise Failed(f"it hangs:\n{log.read_text()}")
            time.sleep(0.002)
        text = log.read_text(errors="replace")
        if "Traceback" in text:
            raise Failed(f"a traceback:\n{text}")
        return os.waitstatus_to_exitcode(status)

    def finish(self, arguments: Arguments, log: Path, method: str | None = None) -> float:
        """Run a command to its end and return its seconds."""
        began = time.monotonic()
        code = self.wait(launch(arguments, log, method), log)
        if code:
            raise Failed(f"exit code {code}:\n{log.read_text()}")
        return time.monotonic() - began

    def kill(self, arguments: Arguments, log: Path, way: str, delay: float) -> bool:
        """Start a command, kill it after a delay, and return whether it was still running."""
        pid = launch(arguments, log)
        time.sleep(delay)
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        children = session(pid) if way == "child" else []
        try:
            if way == "group":
                os.killpg(pid, signal.SIGKILL)
            elif way == "terminate":
                os.kill(pid, signal.SIGTERM)
            elif children:
                os.kill(int(self.draw.choice(children)), signal.SIGKILL)  # the command must end by itself
            else:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.wait(pid, log)
        self.kills += 1
        self.killed.append((pid, time.monotonic()))
        self.inside_a_save += any(self.root.rglob(".*.partial"))
        self.check_orphans()
        return True

    def check_orphans(self, *, all: bool = False) -> None:
        """Raise `Failed` if a process still runs `patience` seconds after its session was killed. With `all`, wait for this."""
        while self.killed:
            pid, since = self.killed[0]
            if left := session(pid):
                if time.monotonic() - since >= self.patience:
                    raise Failed(f"{len(left)} processes are left {self.patience:g} s after a kill")
                if not all:
                    return
                time.sleep(0.05)
                continue
            self.killed.pop(0)
            self.checked += 1


def content(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield everything in a result folder that must be identical."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            continue  # compared below, by folder
        if path.is_dir() and checkpoint.has_checkpoints(path):
            yield name, state(path)
        elif path.suffix in (".npy", ".jsonl", ".toml"):
            yield name, path.read_bytes().replace(str(folder).encode(), b"")
        elif path.suffix == ".json":
            yield name, re.sub(r'"seconds": [0-9.e-]+', "", path.read_text())
    if checkpoint.has_checkpoints(folder):
        yield ".", state(folder)
    if (folder / checkpoint.BEST_FILE).exists():
        yield checkpoint.BEST_FILE, in_bytes(checkpoint.read(folder / checkpoint.BEST_FILE))


def state(folder: Path) -> tuple[bytes, str]:
    """Return a checkpoint's tensors and metadata, without the training time."""
    loaded = checkpoint.load(folder)
    assert loaded is not None
    return in_bytes(loaded)


def in_bytes(loaded: checkpoint.Checkpoint) -> tuple[bytes, str]:
    """Return what a checkpoint contains, without the training time."""
    return safetensors.torch.save(loaded[0]), json.dumps({**loaded[1], "seconds": 0}, sort_keys=True)


def in_child(function: Callable[[], bool]) -> bool:
    """Call a function in a forked child. The parent must not compute, because its children are forked."""
    pid = os.fork()
    if not pid:
        os._exit(0 if function() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def run_scenario(name: str, runs: int, kills: int, seed: int, patience: float) -> dict[str, Any]:
    """Kill each run several times and return the counts. The first failure ends the scenario."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        arguments, log = SCENARIOS[name](root), root / "log"
        drill = Drill(root, np.random.Generator(np.random.Philox(seed)), patience)
        whole = min(drill.finish([*arguments, "-o", str(root / f"whole{i}")], log) for i in range(2))
        for run in range(runs):
            out = root / f"run{run}"
            for _ in range(kills):
                way = str(drill.draw.choice(KILLS))
                if not drill.kill([*arguments, "-o", str(out)], log, way, float(drill.draw.uniform(0.0, whole))):
                    break  # it has ended already
            drill.finish([*arguments, "-o", str(out)], log)
            if not in_child(lambda out=out: dict(content(out)) == dict(content(root / "whole0"))):
                raise Failed(f"run {run} of {name} differs from a run that was never killed")
        drill.check_orphans(all=True)
        counts = {"runs": runs, "identical": runs, "kills": drill.kills}
        return counts | {"inside_a_save": drill.inside_a_save, "sessions_without_orphans": drill.checked}


def run_supervisor(tries: int, method: str, seed: int, patience: float) -> dict[str, Any]:
    """Kill the parent alone while its workers start, and restart it at once: the new process must never be refused."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        drill, log = Drill(root, np.random.Generator(np.random.Philox(seed)), patience), root / "log"
        arguments = [*SCENARIOS["folder"](root), "-o", str(root / "run"), "--set", "epochs=100000"]
        spread = {"fork": 0.05, "forkserver": 3.0, "spawn": 3.0}[method]  # how long workers take to start
        for _ in range(tries):
            pid = launch(arguments, log, method)
            while not session(pid):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    raise Failed(f"a restart ended before its workers started:\n{log.read_text()}")
                time.sleep(0.001)
            time.sleep(float(drill.draw.uniform(0.0, spread)))
            os.kill(pid, signal.SIGKILL)
            drill.wait(pid, root / "log")
            drill.killed.append((pid, time.monotonic()))
            drill.check_orphans()
        drill.check_orphans(all=True)
        return {"tries": tries, "restarted": tries, "sessions_without_orphans": drill.checked}


def sabotaged(way: str) -> None:
    """Break something that the drill must detect."""
    if way == "save":  # overwrite the only file, slowly

        def save(folder: Path, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, Any]) -> Path:
            text = json.dumps(meta)
            cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            data = safetensors.torch.save(cpu, {"meta": text, "digest": checkpoint._digest(cpu, text)})
            path = folder / "step-000000001.safetensors"
            with open(path, "wb") as file:
                for i in range(0, len(data), 4096):
                    file.write(data[i : i + 4096])
                    file.flush()
                    time.sleep(0.01)  # so that most kills are inside a save, on any machine
            return path

        checkpoint.save = save
    else:  # draws that depend on earlier draws
        stream = np.random.Generator(np.random.Philox(1))
        rng.generator = lambda *_: stream


def run_drills(drills: Mapping[tuple[str, str], Callable[[], dict[str, Any]]], path: Path | None) -> int:
    """Run drills by part and name, print the counts of each, and add them to a result file. Return the exit code."""
    for (part, name), drill in drills.items():
        try:
            counts = drill()
        except Failed as failure:
            print(f"failed: {failure}", flush=True)
            return 1
        print(f"{part}, {name}: {counts}", flush=True)
        if path:
            result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
            result.setdefault(part, {})[name] = counts | {"machine": machine()}
            path.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def preload(scenarios: str) -> None:
    """Import modules before the commands are forked: an optimizer alone takes 3 s at its first step."""
    for name in (
        "matplotlib.figure",
        "rich.progress",
        "rich.table",
        "torch._dynamo",
        *["transformers"] * ("text" in scenarios),
    ):
        importlib.import_module(name)


def main() -> int:
    """Run the drill, print a table, and add it to a result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="comma-separated names; empty for no runs")
    parser.add_argument("--runs", type=int, default=3, help="runs per scenario")
    parser.add_argument("--kills", type=int, default=3, help="kills per run")
    parser.add_argument("--supervisor", default="", help="restarts by start method, e.g. fork=100,spawn=20")
    parser.add_argument("--sabotage", choices=["save", "stream"], help="break something that the drill must detect")
    parser.add_argument("--patience", type=float, default=5.0, help="seconds after a kill in which its processes must end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--result", type=Path, help="JSON file to add the counts to")
    options = parser.parse_args()
    faulthandler.enable()
    preload(options.scenarios)
    if options.sabotage:
        sabotaged(options.sabotage)
    drills: dict[tuple[str, str], Callable[[], dict[str, Any]]] = {}
    for name in filter(None, options.scenarios.split(",")):
        drills["kill", name] = partial(run_scenario, name, options.runs, options.kills, options.seed, options.patience)
    for method, tries in (part.split("=") for part in filter(None, options.supervisor.split(","))):
        drills["supervisor", method] = partial(run_supervisor, int(tries), method, options.seed, options.patience)
    return run_drills(drills, options.result)


if __name__ == "__main__":
    sys.exit(main())
