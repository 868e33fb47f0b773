"""The additions in CONTRIBUTING need the number of edits that it states, and they work."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EDITS = {"a transform": 3, "a policy": 2, "a model": 2, "a data set": 2, "an operation on texts": 2, "a command": 2}
USES = """
import sys

import torch

from outspan import Plan, apply, train
from outspan.cli import main
from outspan.data.sets import load
from outspan.text import Documents, encode, load_tokenizer
from outspan.text import apply as apply_to_text
from pillow import apply_with_pillow

images = load("digits").test.images[:8]
plan = Plan.of([["darken"]] * 8, levels=[[i / 8] for i in range(8)])
assert torch.equal(apply(images, plan), apply_with_pillow(images, plan))
assert not torch.equal(apply(images, plan), images)

summary = train(data="stripes", model="linear", policy="gentle", depth=1, epochs=3, batch=8, lr=0.01, out=sys.argv[1])
assert summary.accuracy == 1.0

split = encode(Documents(["great film .", "dull film ."], torch.tensor([1, 0])), load_tokenizer(sys.argv[2]), length=8)
passages, _ = next(split.batches([torch.arange(2)], torch.device("cpu")))
first, second = apply_to_text(passages, Plan.of([["repeat_first"], ["repeat_first"]], levels=[[1.0], [0.0]]))
assert first[1] == first[2]
assert second[1] != second[2]

sys.argv[1:] = ["count"]
main()
"""


def additions() -> dict[str, list[tuple[str, str, str]]]:
    """Return the edits of each addition: the file, the table (or nothing, for code), and the text."""
    _, *sections = re.split(r"(?m)^## Add (.+): (\d) edits$", PAGE)
    result = {}
    for name, count, text in zip(sections[::3], sections[1::3], sections[2::3], strict=True):
        blocks = re.findall(r"(?ms)^( *)```python\n *# (\S+\.py)(?:, in (\w+))?\n(.*?)^\1```$", text.split("\n## ")[0])
        result[name] = [(file, table, re.sub(f"(?m)^{indent}", "", code)) for indent, file, table, code in blocks]
        assert len(result[name]) == int(count), name
    return result


def edit(path: Path, table: str, code: str) -> None:
    """Make an edit: append code to a module, or insert a line into a literal, and its imports before the others."""
    text = path.read_text(encoding="utf-8") if path.exists() else '"""New."""\n'
    if not table:
        path.write_text(f"{text}\n\n{code}", encoding="utf-8")
        return
    imports = [line for line in code.splitlines() if line.startswith("from ")]
    (line,) = [line for line in code.splitlines() if line not in imports]
    start = text.index("{", text.index("=", re.search(rf"(?m)^{table}\b", text).start())) + 1
    if nested := re.match(r'\s*"images": \{', text[start:]):  # a table by the type of data
        start += nested.end()
    text = f"{text[:start]}\n        {line}{text[start:]}"
    first = re.search(r"(?m)^(from|import) ", text).start()
    path.write_text(text[:first] + "".join(f"{line}\n" for line in imports) + text[first:], encoding="utf-8")


def test_each_addition_needs_the_stated_number_of_edits():
    assert {name: len(edits) for name, edits in additions().items()} == EDITS


@pytest.mark.slow
def test_the_additions_work(tmp_path, tiny_model):
    shutil.copytree(ROOT / "src" / "outspan", tmp_path / "src" / "outspan", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "pillow.py", tmp_path / "tests" / "pillow.py")
    for edits in additions().values():
        for file, table, code in edits:
            edit(tmp_path / file, table, code)
    # The editable install redirects imports of the package: start without site's .pth files, with the same search path.
    path = [str(tmp_path / "src"), str(tmp_path / "tests"), *(entry for entry in sys.path if entry.endswith("site-packages"))]
    start = f"import sys; sys.path[:0] = {path!r}; sys.argv[0] = 'additions'\n"
    labels = np.arange(64) % 2
    images = np.repeat(200 * labels.astype(np.uint8), 64).reshape(-1, 8, 8)
    arrays = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    np.savez(tmp_path / "stripes.npz", **arrays)
    command = [sys.executable, "-S", "-c", start + USES, tmp_path / "run", tiny_model]
    environment = os.environ | {"OUTSPAN_DATA": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    from outspan.transforms.table import TRANSFORMS

    assert done.stdout.splitlines()[-1] == str(len(TRANSFORMS) + 1)
