"""Ranks on one GPU, started by `distributed.py --gpu`: one rank with NCCL, and two processes that share the GPU with gloo.

torchrun starts this file as a rank. All starts have a time limit, so that nothing hangs.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TOLERANCE = 1e-5  # of the loss, relative
KEYS = {"data": "digits", "model": "convnet", "policy": "auto", "ema": 0.99, "epochs": 4, "batch": 128}
SHARED = {"data": "digits", "model": "mlp", "policy": "random", "transforms": "geometric", "fraction": 0.1, "batch": 36}
SHARED |= {"steps": 100}  # no BatchNorm, no mixing
STOP = 70  # of 160 steps


class Failed(Exception):
    """A part that did not end, or did not give the right result."""


def torchrun(processes: int, arguments: Sequence[str], limit: float) -> None:
    """Start ranks on this machine and wait for them. A failure or a time limit raises `Failed` with the end of their output."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-port", str(port)]
    run_limited([*command, *arguments], limit)


def run_limited(command: Sequence[str], limit: float) -> str:
    """Return the output of a command. A failure or a time limit raises `Failed` with the end of the output."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            text, problem = process.communicate(timeout=limit)[0], f"exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, problem = process.communicate()[0], f"no end after {limit:.0f} s"
    if process.returncode:
        raise Failed(f"{problem}: {' '.join(command[-3:])[:300]}\n{text[-3000:]}")
    return text


def run_rank(out: Path, options: dict[str, Any], limit: float, processes: int = 1) -> dict[str, Any]:
    """Train in ranks, and return what rank 0 reports. `options` are those of `train_rank`."""
    torchrun(processes, [__file__, json.dumps({"out": str(out), **options})], limit)
    return json.loads((out / "report.json").read_text())


def check_one_rank(root: Path, limit: float, *, device: str) -> dict[str, Any]:
    """Train with NCCL in one rank; stop another such run and resume it with the command `outspan train`. Compare both."""
    keys: dict[str, Any] = {**KEYS, "device": device, "compile": device == "cuda", "deterministic": True}
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        whole = pool.submit(run_rank, root / "whole", {**keys, "own_group": True}, limit)
        run_rank(root / "run", {**keys, "own_group": True, "stop_at": STOP}, limit)
        has_command = find_spec("typer") is not None and find_spec("rich") is not None
        left = limit - (time.monotonic() - began)
        if has_command:
            changes = [argument for key, value in KEYS.items() for argument in ("--set", f"{key}={value}")]
            flags = ["--deterministic", *(["--compile"] if keys["compile"] else [])]
            torchrun(1, ["-m", "outspan", "train", *changes, *flags, "-o", str(root / "run")], left)
        resumed = run_rank(root / "run", keys, left)  # reads the finished run, or ends it
    expected = whole.result()
    if resumed["steps"] != expected["steps"] or not expected["accuracy"] > 0.5:
        raise Failed(f"the resumed run ended with {resumed}, the other one with {expected}")
    return {
        "backend": expected["backend"],
        "resumed_by": "torchrun -m outspan train" if has_command else "outspan.train: typer or rich is not installed",
        "accuracy": [expected["accuracy"], resumed["accuracy"]],
        "bit_identical": resumed["losses"] == expected["losses"],
    }


def check_shared_gpu(root: Path, limit: float, *, device: str) -> dict[str, Any]:
    """Compare the loss after 100 steps of two processes on one device with that of one process, in float32 without TF32."""
    options = {**SHARED, "device": device, "float32": True}
    with ThreadPoolExecutor(2) as pool:
        pair = pool.submit(run_rank, root / "two", options, limit, 2)
        one = run_rank(root / "one", options, limit)
        two = pair.result()
    differences = [abs(a / b - 1) for a, b in zip(two["losses"], one["losses"], strict=True)]
    if not max(differences) <= TOLERANCE or two["world"] != 2:
        raise Failed(f"losses per epoch {two['losses']} with two processes, {one['losses']} with one")
    return {"backend": two["backend"], "loss": one["losses"][-1], "largest_relative_difference": max(differences)}


def measure_overhead(root: Path, limit: float, *, device: str) -> dict[str, Any]:
    """Measure the cost of one rank in a process of its own, with `distributed.py`."""
    result = root / "overhead.json"
    arguments = ["--copies", "3", "--turns", "5"] if device == "cuda" else ["--copies", "1", "--model", "mlp"]
    script = str(Path(__file__).with_name("distributed.py"))
    run_limited([sys.executable, script, "--group", *arguments, "--result", str(result)], limit)
    return json.loads(result.read_text())[device][0]


def run_parts(limit: float, *, device: str) -> dict[str, Any]:
    """Run all parts and return their results by name. One that fails has the key "failed"."""
    results: dict[str, Any] = {}

    def run(name: str, part: Callable[..., dict[str, Any]]) -> None:
        began = time.monotonic()
        try:
            results[name] = part(root, end - time.monotonic(), device=device)
        except Failed as failure:
            results[name] = {"failed": str(failure)}
        results[name]["seconds"] = round(time.monotonic() - began, 1)

    with tempfile.TemporaryDirectory() as folder:
        root, end = Path(folder), time.monotonic() + limit
        run("overhead", measure_overhead)  # alone: it measures times
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, ("one rank", "shared gpu"), (check_one_rank, check_shared_gpu)))
    return results


def train_rank(out: str, *, own_group: bool = False, stop_at: int = 0, float32: bool = False, **options: Any) -> None:
    """Train as a rank; rank 0 writes a report. With `own_group` a single rank exchanges values, too, as several ranks do."""
    import torch
    import torch.distributed as dist

    from outspan.training import Stopped
    from outspan.training.train import train

    torch.set_num_threads(1)
    if own_group:
        dist.init_process_group("cpu:gloo,cuda:nccl" if options["device"] == "cuda" else "cpu:gloo")
    if float32:
        _use_float32()
    report: dict[str, Any] = {"world": int(os.environ["WORLD_SIZE"])}

    def on_begin(_: str) -> None:
        report["backend"] = str(dist.get_backend_config()) if dist.is_initialized() else "none"

    try:
        summary = train(out=out, on_begin=on_begin, on_step=lambda progress: progress.step == stop_at, **options)
        report |= {"steps": summary.steps, "accuracy": summary.accuracy}
        report["losses"] = [row["train_loss"] for row in summary.metrics]
    except Stopped:
        report["stopped"] = stop_at
    if os.environ["RANK"] == "0":
        (Path(out) / "report.json").write_text(json.dumps(report))
    if own_group:
        dist.destroy_process_group()


def _use_float32() -> None:
    """Train on a GPU in float32, which `outspan.train` does in bfloat16."""
    import torch

    from outspan.training import setup

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    autocast, make_preprocess = torch.autocast, setup.make_preprocess
    torch.autocast = lambda device, dtype=None, **rest: autocast(device, dtype, **rest | {"enabled": False})
    setup.make_preprocess = lambda noun, mean, std, *_, **__: make_preprocess(noun, mean, std)


if __name__ == "__main__":
    train_rank(**json.loads(sys.argv[1]))
