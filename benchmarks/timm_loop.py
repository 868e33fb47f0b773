"""Run the loop of timm in docs/loops.md before and after its change, and print both test accuracies.

    make .venv-bench/ready && .venv-bench/bin/python benchmarks/timm_loop.py

It is not part of the test suite, because timm needs torchvision.
"""

import os
import re
import runpy
import tempfile
from pathlib import Path

from transforms import declare_torchvision_operators

PAGE = (Path(__file__).parent.parent / "docs" / "loops.md").read_text()


def main() -> None:
    """Run both programs in an empty folder."""
    declare_torchvision_operators()
    [beginning] = re.findall(r"(?ms)^All programs on this page.*?^```python\n(.*?)^```$", PAGE)
    [diff] = re.findall(r"(?ms)^## timm$(?:(?!^## ).)*?^```diff\n(.*?)^```$", PAGE)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, sign in (("before", "-"), ("after", "+")):
            source = beginning + "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in (" ", sign))
            Path(f"{name}.py").write_text(source)
            print(f"{name}:", end=" ", flush=True)
            runpy.run_path(f"{name}.py", run_name="__main__")


if __name__ == "__main__":
    main()
