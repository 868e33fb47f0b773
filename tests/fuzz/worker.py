"""Run the cases of one target until the time is over. If this process dies, the runner starts a new one."""

import argparse
import faulthandler
import hashlib
import json
import os
import resource
import sys
import tempfile
import time
import traceback
import zlib
from itertools import count
from pathlib import Path
from types import ModuleType

import numpy as np

from fuzz.contract import Broken, check_message

HANG = 60  # seconds per case
MEMORY = 2 << 30  # bytes that a case may need in addition to the process
_MAX_SAVED = 20  # inputs per run


def generator(seed: int, target: str, case: int) -> np.random.Generator:
    """Return the generator of a case. It depends only on the seed, the target and the number of the case."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, zlib.crc32(target.encode()), case])))


def run_case(target: ModuleType, data: bytes, folder: Path) -> None:
    """Run one input; anything except a result or a short ValueError is an exception."""
    try:
        target.check(data, folder)
    except ValueError as error:
        check_message(error)


def peak_memory() -> int:
    """Return the peak memory of this process in bytes."""
    if sys.platform.startswith("linux"):  # not ru_maxrss, which includes the parent process
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


def save(crashers: Path, name: str, data: bytes) -> Path:
    """Write an input that broke the contract, under a hash of its content."""
    folder = crashers / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path


def _place(error: BaseException) -> str:
    """Return the exception and where it was raised, to distinguish defects."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "outspan" in frame.filename] or frames
    message = str(error)[:60] if isinstance(error, Broken) else ""
    return f"{type(error).__name__} {ours[-1].filename}:{ours[-1].lineno} {message}"


def work(name: str, seed: int, first: int, end: float, cases: int, state: Path, crashers: Path) -> None:
    """Run the cases of a target from number `first` on. The progress is in `state`, in case this process dies."""
    from fuzz.targets import TARGETS

    target = TARGETS[name]
    seen: set[str] = set()
    tracebacks = 0
    with tempfile.TemporaryDirectory() as folder, open(state / "progress", "wb", buffering=0) as progress:
        for case in count(first):
            if time.time() >= end or case >= cases:
                break
            data = target.make(generator(seed, name, case))
            (state / "input").write_bytes(data)
            progress.seek(0)
            progress.write(json.dumps({"case": case, "tracebacks": tracebacks}).ljust(80).encode())
            faulthandler.dump_traceback_later(HANG, exit=True)
            try:
                run_case(target, data, Path(folder))
            except Exception as error:  # a traceback: what the fuzzer searches for
                tracebacks += 1
                if (place := _place(error)) not in seen and len(seen) < _MAX_SAVED:
                    seen.add(place)
                    print(f"{name}, case {case}: {save(crashers, name, data)}\n{traceback.format_exc(limit=-6)}", flush=True)
            finally:
                faulthandler.cancel_dump_traceback_later()
            if case == first:
                needed = peak_memory()
            elif peak_memory() - needed > MEMORY:
                print(f"{name}, case {case}: more than {MEMORY >> 20} MiB: {save(crashers, name, data)}", flush=True)
                os._exit(99)
        else:  # pragma: no cover
            case = first
        (state / "done").write_text(json.dumps({"cases": case, "tracebacks": tracebacks}))


def main() -> None:
    """Read the arguments of the runner."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    for option in ("seed", "first", "cases"):
        parser.add_argument(f"--{option}", type=int, required=True)
    parser.add_argument("--end", type=float, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--crashers", type=Path, required=True)
    parser.add_argument("--kernel", type=Path)
    options = parser.parse_args()
    if options.kernel is not None:
        use_kernel(options.kernel)
    else:
        # A memory limit to protect the machine. AddressSanitizer reserves terabytes, so it has none.
        pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform.startswith("linux") else 0
        room = pages * resource.getpagesize() + (16 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    faulthandler.enable()
    work(options.name, options.seed, options.first, options.end, options.cases, options.state, options.crashers)


def use_kernel(path: Path) -> None:
    """Use another build of the compiled kernel instead of the installed one."""
    from importlib.machinery import ExtensionFileLoader
    from importlib.util import module_from_spec, spec_from_file_location

    name = "outspan.transforms.kernels.cpu._cpu"
    spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module


if __name__ == "__main__":
    main()
