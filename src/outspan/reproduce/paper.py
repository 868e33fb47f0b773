"""The paper's tables and figures (arXiv:2005.00695) as data: what it printed, and what of it is here."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from outspan.data.fetch import SOURCES
from outspan.data.sets import IMAGENET, missing_files, root
from outspan.files import HOME
from outspan.messages import unknown
from outspan.transforms.table import TRANSFORMS


@dataclass(frozen=True)
class Item:
    """A table or figure: what it shows, how to make it here, what it needs, and where results of it would lie."""

    title: str
    command: str
    data: tuple[str, ...] = ()
    results: tuple[str, ...] = ()  # patterns of files in results/
    page: str = ""  # where they stand beside the paper's numbers
    cells: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # the paper's numbers, row by row, method by method
    changes: Mapping[str, Any] = field(default_factory=dict)  # to the recipes of "uncertain"


_MNIST = "outspan measure recipes/paper/mnist-mlp.toml"
# The paper's 20: all that keep the label, without the resized crop.
_TWENTY = ",".join(name for name, own in TRANSFORMS.items() if not own.mixes and name not in ("identity", "resized_crop"))
_COLUMNS = ("baseline", "aa", "fast-aa", "pba", "ra", "adv-aa", "uncertain")
_TABLE_3 = {
    "cifar10/wrn-28-10": ("96.13", "97.32", "97.30", "97.42", "97.30", "98.10", "97.89 ± 0.03"),
    "cifar10/shake-shake": ("97.14", "98.01", "98.00", "97.97", "98.00", "98.15", "98.27 ± 0.05"),
    "cifar10/pyramidnet": ("97.33", "98.52", "98.30", "98.54", "98.50", "98.64", "98.66 ± 0.02"),
    "cifar100/wrn-28-10": ("81.20", "82.91", "82.70", "83.27", "83.30", "84.51", "84.54 ± 0.09"),
    "svhn/wrn-28-10": ("96.9", "98.1", "-", "-", "98.3", "-", "98.3 ± 0.03"),
    "imagenet/resnet-50": ("76.31", "77.63", "77.60", "-", "77.60", "79.40", "79.14"),
}
# Numbered as LaTeX numbers them: two tables of Section 5.3 stand in a figure and are Figures 4 and 5.
PAPER: Mapping[str, Item] = MappingProxyType(
    {
        "table-1": Item("the theory's results, by example", "outspan theory verify"),
        "table-2": Item(
            "error and instability of cutout, crop and rotation",
            f"{_MNIST} --transforms cutout,random_crop,rotate --seeds 9 -o runs/table-2",
            ("mnist",),
            ("mnist-transforms*.json",),
            "docs/measured.md",
        ),
        "table-3": Item(
            "test accuracy of seven methods on four data sets",
            "outspan reproduce table-3 --rows cifar10/wrn-28-10 --methods baseline,ra,uncertain --seeds 4",
            ("cifar10", "cifar100", "svhn", IMAGENET),
            ("table-3*.json",),
            cells={row: dict(zip(_COLUMNS, numbers, strict=True)) for row, numbers in _TABLE_3.items()},
        ),
        "table-4": Item(
            "error and instability of 20 transforms",
            f"{_MNIST} --transforms {_TWENTY} --seeds 9 -o runs/mnist",
            ("mnist",),
            ("mnist-transforms*.json",),
            "docs/measured.md",
        ),
        "table-5": Item(
            "three seeds beside nine (in the file of Table 4, as first_3_seeds)",
            f"{_MNIST} --transforms {_TWENTY} --seeds 9 -o runs/mnist",
            ("mnist",),
            ("mnist-transforms*.json",),
            "docs/measured.md",
        ),
        "table-6": Item(
            "settings of every model: recipes/paper/*.toml",
            "outspan train recipes/paper/mnist-mlp.toml -o runs/mnist-mlp",
            ("mnist",),
        ),
        "table-7": Item(
            "mixup beside weight decay and same-class mixup",
            "outspan mixup recipes/paper/mnist-mlp.toml --seeds 9 -o runs/mixup",
            ("mnist", "cifar10"),
            ("mnist-mixup.json", "cifar10-mixup*.json"),
            "docs/measured.md",
        ),
        "figure-1": Item(
            "which compositions are chosen over training",
            "outspan train recipes/paper/cifar10-pyramidnet-272-200.toml -o runs/figure-1"
            " && outspan compositions runs/figure-1 -o chosen.png",
            ("cifar10",),
            ("cifar10-pyramidnet*-compositions.json", "cifar10-wrn-28-10-compositions.json"),
            "docs/training.md",
        ),
        "figure-2": Item(
            "instability by the share of same-class mixup",
            "outspan mixup recipes/paper/mnist-mlp.toml --seeds 9 -o runs/mixup",
            ("mnist",),
            ("mnist-mixup.json",),
            "docs/measured.md",
        ),
        "figure-3": Item(
            "which of five transforms help one another",
            "outspan compose recipes/paper/mnist-mlp.toml --seeds 9 -o runs/mnist",
            ("mnist",),
            ("mnist-compos*.json",),
            "docs/measured.md",
        ),
        "figure-4": Item(
            "four of eight candidates kept (the text says: a table)",
            "outspan reproduce figure-4 --rows cifar10/wrn-28-10 --methods uncertain --seeds 4",
            ("cifar10", "cifar100"),
            ("figure-4*.json",),
            cells={
                "cifar10/wrn-28-10": {"adv-aa": "98.10 ± 0.15", "uncertain": "98.16 ± 0.05"},
                "cifar100/wrn-28-10": {"adv-aa": "84.51 ± 0.18", "uncertain": "85.02 ± 0.18"},
            },
            changes={"candidates": 8, "keep": 4},
        ),
        "figure-5": Item(
            "cost of training over RandAugment (the text says: a table): Adv. AA 8, theirs about 1.5",
            "python benchmarks/cost.py --out results/cost.json",
            (),
            ("cost.json",),
            "docs/reproduce.md",
        ),
        "figure-6": Item(
            "margins of the images that mixup corrects",
            "outspan mixup --data cifar10 --model wide_resnet-28-10 --l2 5e-4 --seeds 9 -o runs/margins",
            ("cifar10",),
            ("cifar10-mixup*.json",),
            "docs/measured.md",
        ),
        "imdb": Item(
            "text, told in Section 5: BERT-large 95.96 % with Algorithm 1, 95.22 % without",
            "outspan text backtranslate imdb -o imdb-backtranslated.jsonl"
            " && outspan train recipes/paper/imdb-bert-large.toml -o runs/imdb",
            ("imdb",),
            ("imdb-bert-large*.json", "imdb-minilm.json"),
            "docs/text.md",
        ),
    }
)


def find_item(name: str) -> Item:
    """Return a table or figure by name."""
    if name not in PAPER:
        raise unknown("table or figure", name, PAPER)
    return PAPER[name]


def missing_data(name: str) -> str | None:
    """Say which files of a data set are not here and where they come from; None where they are."""
    absent = missing_files(name)
    if not absent:
        return None
    if name == IMAGENET:
        return f"{' and '.join(map(str, absent))} (ILSVRC 2012, image-net.org, for who registers)"
    folder = root() / SOURCES[name][0]
    begun = folder.is_dir() and any(folder.iterdir())  # what is there is never fetched over
    first, how = (absent[0], f"remove {folder}, then ") if begun else (folder, "")
    return f"{first} ({how}outspan data fetch {name}, from {SOURCES[name][1][0].url})"


def measured(item: Item) -> dict[Path, dict[str, Any]]:
    """Return the files in results/ that hold it, all or in part, and what is in them."""
    found = {}
    for path in (path for pattern in item.results for path in sorted((HOME / "results").glob(pattern))):
        try:
            holds = json.loads(path.read_text())
            if not item.cells or _cells(holds):
                found[path] = holds
            _setting(holds)  # what cannot be told is none of ours
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{path}: not a result that outspan writes; take it out of results/") from None
    return found


def status(item: Item) -> str:
    """Say of a table or figure: measured here, all or in part, with the files; runnable; or which data it needs."""
    if holds := measured(item):
        wanted = {(row, method) for row, numbers in item.cells.items() for method in numbers if numbers[method] != "-"}
        left = wanted - {cell for found in holds.values() for cell in _cells(found)}
        every = all(any(path.match(pattern) for path in holds) for pattern in item.results)
        part = "" if every and not left else "in part: "
        said = f"measured here: {part}{', '.join(f'results/{path.name}{_setting(found)}' for path, found in holds.items())}"
        return said + (f"; beside the paper's numbers in {item.page}" if item.page else "")
    absent = {name: said for name in item.data if (said := missing_data(name)) is not None}
    if item.data and len(absent) == len(item.data):
        return f"needs data that is not here: {'; '.join(absent.values())}"
    part = f" (not here: {', '.join(absent)})" if absent else ""
    return f"runnable{part}: {item.command}"


def _cells(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the cells that a result of `reproduce` holds at full scale."""
    return [(cell["row"], cell["method"]) for cell in found.get("cells", ()) if cell["accuracies"] and found["scale"] == 1]


def _setting(found: Mapping[str, Any]) -> str:
    """Say how a file's numbers were made: a measure's or a recipe's model and epochs, or which cells of a table it holds."""
    if "settings" in found:
        return f" ({found['settings']['model']}, {found['settings']['epochs']} epochs, {len(found['seeds'])} seeds)"
    if "recipe" in found:
        return f" ({found['recipe']['model']}, {found['recipe']['epochs']} epochs)"
    return f" ({', '.join(' '.join(cell) for cell in _cells(found))})" if "cells" in found else ""


def recipes() -> Path:
    """Return the folder of the paper's recipes."""
    folder = HOME / "recipes" / "paper"
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; install outspan again, or run it in a clone of the repository")
    return folder


def commit() -> str:
    """Return the commit of the clone that runs, "" where there is none; a copy without its history is told, in $COMMIT."""
    if told := os.environ.get("COMMIT"):
        return told
    if not (HOME / ".git").exists():  # git would look for another's further up
        return ""
    try:
        asked = ["git", "rev-parse", "HEAD"]
        return subprocess.run(asked, capture_output=True, text=True, cwd=HOME).stdout.strip()  # noqa: S603, a fixed command
    except OSError:  # no git
        return ""
