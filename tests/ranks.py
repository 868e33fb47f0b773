"""Start several ranks on this machine, as torchrun does, but from a server that has imported torch already."""

import contextlib
import multiprocessing
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
MODULES = ["outspan.training.train", "outspan.cli", "torch._dynamo", "rich.progress", "ranks"]


def free_port() -> int:
    """Return a port that no process uses, and that the system gives to no connection before a rank listens on it."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as free:
            port = random.randrange(20_000, 32_000)  # noqa: S311  # connections get ports from 32,768 on
            free.bind(("127.0.0.1", port))
            return port


def start(functions: Sequence[Callable[[], Any]], **variables: str) -> list[tuple[Any, Any]]:
    """Start one rank per function. Return the process of each rank, and the connection that gets its result."""
    CONTEXT.set_forkserver_preload(MODULES)
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(len(functions)), **variables}
    common |= {"LOCAL_WORLD_SIZE": str(len(functions)), "OMP_NUM_THREADS": "1"}
    ranks = []
    for rank, function in enumerate(functions):
        ours, theirs = CONTEXT.Pipe(duplex=False)
        environment = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        process = CONTEXT.Process(target=_serve, args=(function, environment, theirs), daemon=True)
        process.start()
        theirs.close()
        ranks.append((process, ours))
    return ranks


def run(functions: Sequence[Callable[[], Any]], timeout: float = 120.0) -> list[Any]:
    """Return the result of each rank: what its function returns, or "Error: message". The time limit only detects hangs."""
    return [receive(*rank, timeout) for rank in start(functions)]


def receive(process: Any, pipe: Any, timeout: float = 120.0) -> Any:
    """Return the result of a rank; None if it has been killed."""
    if not pipe.poll(timeout):
        process.kill()
        raise AssertionError("a rank hangs")
    try:
        result = pipe.recv()
    except EOFError:
        result = None
    process.join(timeout)
    return result


def _serve(function: Callable[[], Any], environment: Mapping[str, str], pipe: Any) -> None:
    os.environ |= environment
    import torch

    torch.set_num_threads(1)
    try:
        pipe.send(function())
    except Exception as error:
        traceback.print_exc()
        pipe.send(f"{type(error).__name__}: {error}")


class Train:
    """Call `outspan.train` on the CPU. Picklable. `options` are its arguments."""

    def __init__(self, out: Path, **options: Any) -> None:
        self.out, self.options = out, options

    def __call__(self) -> Any:
        import outspan

        return outspan.train(out=self.out, device="cpu", **self.options)


class Apart(Train):
    """Train in a working directory of the rank, as on machines without a common file system."""

    def __call__(self) -> Any:
        folder = self.out / os.environ["RANK"]
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        self.out = Path("run")
        return super().__call__()


class Alone(Train):
    """Train in one rank with a process group of its own. It exchanges values as several ranks do."""

    def __call__(self) -> Any:
        import torch.distributed as dist

        dist.init_process_group("cpu:gloo")
        try:
            return super().__call__()
        finally:
            dist.destroy_process_group()


class Compiled(Train):
    """Train with `compile`, with a backend that needs no C++ compiler."""

    def __call__(self) -> Any:
        import torch

        compile = torch.compile
        torch.compile = lambda model: compile(model, backend="aot_eager")
        return super().__call__()


class Command:
    """Run the command line and return its exit code."""

    def __init__(self, log: Path, *arguments: object) -> None:
        self.log, self.arguments = log, [str(argument) for argument in arguments]

    def __call__(self) -> int:
        from outspan.cli import main

        out = os.open(f"{self.log}{os.environ['RANK']}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.argv = ["outspan", *self.arguments]
        try:
            main()
        except SystemExit as exited:
            return int(exited.code or 0)
        return 0


class Elsewhere(Command):
    """The same as the first rank of a machine."""

    def __call__(self) -> int:
        os.environ["LOCAL_RANK"] = "0"
        return super().__call__()


class StopAt:
    """An `on_step` that stops the run at a step, on one rank."""

    def __init__(self, step: int, rank: int, pause: float = 0.0) -> None:
        self.step, self.rank, self.pause = step, rank, pause

    def __call__(self, progress: Any) -> bool:
        time.sleep(self.pause)
        return progress.step == self.step and os.environ.get("RANK", "0") == str(self.rank)


class Slow:
    """Run a command that saves after every step and pauses in each, so that it does not end before it is killed."""

    def __init__(self, command: Command) -> None:
        self.command = command

    def __call__(self) -> int:
        from outspan.training import loop, train

        train.train.__kwdefaults__["save_every"] = 0.0
        loop.Progress = _paused(loop.Progress)
        return self.command()


def _paused(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        time.sleep(0.01)
        return function(*arguments)

    return call


class Broken(Train):
    """A run in which one rank fails at step 5: its loss is NaN, its disk is full, or its data cannot be read."""

    def __init__(self, failure: str, rank: int, out: Path, **options: Any) -> None:
        super().__init__(out, **options)
        self.failure, self.rank = failure, rank

    def __call__(self) -> Any:
        import torch

        from outspan.data.splits import InMemory
        from outspan.training import saving, step

        calls = 0

        def fail(original: Callable[..., Any], result: Callable[[], Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                value = original(*arguments, **options)
                return value if calls != 6 else result()

            return call

        def refuse(error: Exception) -> Any:
            raise error

        if os.environ["RANK"] == str(self.rank):
            if self.failure == "loss":
                original = step.read_logits
                factor = fail(lambda: 1.0, lambda: torch.nan)
                step.read_logits = lambda output: original(output) * factor()
            elif self.failure == "disk":
                full = OSError(28, "No space left on device")
                saving.checkpoint.save = fail(saving.checkpoint.save, lambda: refuse(full))
            else:
                take = InMemory.batches
                InMemory.batches = lambda *a: map(
                    fail(lambda batch: batch, lambda: refuse(ValueError("cannot read"))), take(*a)
                )
        return super().__call__()
