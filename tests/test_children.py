"""A child process ends when its parent ends, even if the child still imports modules."""

import os
import signal
import subprocess
import sys

import pytest

SLOW = """
import os, time
(lambda path: open(path, "w").close())(os.environ["IMPORTING"])
time.sleep(3600)  # an import that does not end
def task():
    pass
"""
PARENT = """
import os, sys, time
from outspan.children import get_context
import importlib

class Late:
    def __reduce__(self):
        return importlib.import_module, ("slow",)

if __name__ == "__main__":
    process = get_context(sys.argv[1]).Process(target=print, args=(Late(),))
    process.start()
    print("started", flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_that_still_imports_ends_with_its_parent(method, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "parent.py").write_text(PARENT)
    importing = tmp_path / "importing"
    environment = os.environ | {"IMPORTING": str(importing), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(tmp_path / "parent.py"), method]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "started\n"
    while not importing.exists():
        assert parent.poll() is None
    parent.send_signal(signal.SIGKILL)
    # The output ends when all processes that inherited it have ended, including the child. The time limit detects a hang.
    assert parent.communicate(timeout=600) == ("", None)
