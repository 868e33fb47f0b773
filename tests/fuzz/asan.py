"""Build the compiled kernel with AddressSanitizer and UndefinedBehaviorSanitizer, separately from the installed one."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "asan"
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1"


def build() -> Path:
    """Return the path of the instrumented kernel; it is rebuilt if a source file is newer."""
    sources = [ROOT / "CMakeLists.txt", *(ROOT / "src/outspan/transforms/kernels/cpu").glob("*.[ch]*")]
    kernels = sorted((BUILD / "site").glob("outspan/transforms/kernels/cpu/_cpu*.so"))
    if not kernels or kernels[0].stat().st_mtime < max(source.stat().st_mtime for source in sources):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(BUILD / "site")]
        command += ["--config-settings", f"build-dir={BUILD / 'cmake'}"]
        command += ["--config-settings", f"cmake.define.CMAKE_CXX_FLAGS={FLAGS}", "--config-settings", "install.strip=false"]
        subprocess.run([*command, str(ROOT)], check=True)
        kernels = sorted((BUILD / "site").glob("outspan/transforms/kernels/cpu/_cpu*.so"))
    if not kernels:
        raise SystemExit("the kernel could not be built with AddressSanitizer: a C++ compiler with libasan is needed")
    kernels[0].touch()
    return kernels[0]


def environment() -> dict[str, str]:
    """Return the environment of a process that loads the instrumented kernel."""
    libraries = []
    for library in ("libasan.so", "libubsan.so"):
        command = [os.environ.get("CXX", "g++"), f"-print-file-name={library}"]
        path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        if not os.path.isabs(path):
            raise SystemExit(f"the compiler has no {library}: install it, or omit the target kernel")
        libraries.append(path)
    options = "detect_leaks=0:allocator_may_return_null=1:abort_on_error=1"
    return {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1"}
