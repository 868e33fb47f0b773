"""The paper's tables and figures (arXiv:2005.00695) as data: what it printed, what of it is here, and its cells as runs."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from outspan.config import Recipe, first_line, read_recipe, scaled, unknown, with_values
from outspan.data.fetch import SOURCES
from outspan.data.sets import IMAGENET, missing_files, root
from outspan.policies.files import fast_autoaugment, pba
from outspan.report.compare import spread
from outspan.train import checkpoint
from outspan.train.loop import train
from outspan.train.workers import Watch
from outspan.transforms.table import TRANSFORMS

HOME = Path(__file__).parents[3]  # of a clone: recipes and results are beside the package, not in it
# A row of the paper's comparisons: the recipe in recipes/paper that is its Algorithm 1.
ROWS: Mapping[str, str] = MappingProxyType(
    {
        "cifar10/wrn-28-10": "cifar10-wrn-28-10",
        "cifar10/shake-shake": "cifar10-shake-shake-26-2x96d",
        "cifar10/pyramidnet": "cifar10-pyramidnet-272-200",
        "cifar100/wrn-28-10": "cifar100-wrn-28-10",
        "svhn/wrn-28-10": "svhn-wrn-28-10",
        "imagenet/resnet-50": "imagenet-resnet-50",
    }
)
# What a method changes in a row's recipe; "uncertain" is the recipe. "ta" and "random" are not in the paper.
METHODS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "baseline": {"policy": "baseline", "defaults": "none"},
        "aa": {"policy": "autoaugment"},
        "fast-aa": {"policy": "fastautoaugment"},
        "pba": {"policy": "pba"},
        "ra": {"policy": "randaugment"},
        "ta": {"policy": "trivialaugment"},
        "adv-aa": {"policy": "adversarial"},
        "random": {"policy": "random"},
        "uncertain": {},
    }
)
# What follows the published policies: their papers crop, flip and cut out on CIFAR, and do not mix.
_AFTER = MappingProxyType({"svhn": "svhn", IMAGENET: "flip"})
# RandAugment's number of transforms and magnitude by row (arXiv:1909.13719, Appendix A.2).
_RANDAUGMENT = MappingProxyType(
    {
        "cifar10/wrn-28-10": (3, 5.0),
        "cifar10/shake-shake": (3, 9.0),
        "cifar10/pyramidnet": (3, 7.0),
        "cifar100/wrn-28-10": (2, 14.0),
        "svhn/wrn-28-10": (3, 9.0),
        "imagenet/resnet-50": (2, 9.0),
    }
)
_PBA_EPOCHS = MappingProxyType({"svhn": 160})  # of the search that found a published schedule; of the others 200
FILES = MappingProxyType(
    {
        "fast-aa": "FastAutoAugment/archive.py of github.com/kakaobrain/fast-autoaugment, with #fa_reduced_cifar10 or another",
        "pba": "schedules/rcifar10_16_wrn.txt or another of github.com/arcelien/pba",
    }
)


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
            "python benchmarks/cost.py",
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


def recipe_of(item: Item, row: str, method: str, *, file: str = "") -> Recipe:
    """Return the recipe of a cell: the row's, changed as the method asks; `file` is of a published policy."""
    if row not in item.cells:
        raise unknown("row", row, item.cells)
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    recipe = read_recipe(recipes() / f"{ROWS[row]}.toml")
    if method == "uncertain":
        return with_values(recipe, dict(item.changes))
    values = dict(METHODS[method])
    if method not in ("baseline", "random"):
        values["defaults"] = _AFTER.get(recipe.data, "cifar-cutout")
    if method == "ra":
        values["depth"], values["magnitude"] = _RANDAUGMENT[row]
    if method == "pba":
        values["policy_epochs"] = _PBA_EPOCHS.get(recipe.data, recipe.policy_epochs)
    if method in FILES:
        if not file:
            raise ValueError(f"{method} {_needs_file(method)}")
        values["policy_file"] = file
    made = with_values(recipe, values)
    if method == "fast-aa":
        fast_autoaugment(file)  # a wrong file is refused before anything is trained
    if method == "pba":
        pba(file, searched=made.policy_epochs, epochs=made.epochs, epoch_steps=1)
    return made


def _needs_file(method: str) -> str:
    return f"needs --policy-file {method}=FILE: {FILES[method]}"


def recipes() -> Path:
    """Return the folder of the paper's recipes."""
    for folder in (HOME / "recipes" / "paper", Path("recipes/paper")):
        if folder.is_dir():
            return folder
    raise ValueError("recipes/paper: no such folder; reproduce runs in a clone of the repository")


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


@dataclass(frozen=True)
class Cell:
    """A cell of a table: the paper's number, and ours over seeds, or why there is none."""

    row: str
    method: str
    paper: str
    accuracies: tuple[float, ...] = ()
    why_not: str = ""
    failed: bool = False  # it was begun

    @property
    def said(self) -> str:
        """Ours in %, with its standard deviation where there are several."""
        if not self.accuracies:
            return "-"
        mean, std = spread(self.accuracies)
        return f"{100 * mean:.2f}" + (f" ± {100 * std:.2f}" if len(self.accuracies) > 1 else "")


def plan_cells(
    item: Item, rows: Sequence[str], methods: Sequence[str], files: Mapping[str, str]
) -> Iterator[tuple[Cell, Recipe | None]]:
    """Return every cell asked for with its recipe, or without one where data is not here; wrong names and files are refused."""
    for row in rows:
        for method in methods:
            paper = item.cells.get(row, {}).get(method, "-")
            if method in FILES and method not in files:
                recipe_of(item, row, "baseline")  # the row may be wrong, too
                yield Cell(row, method, paper, why_not=_needs_file(method)), None
                continue
            recipe = recipe_of(item, row, method, file=files.get(method, ""))
            why_not = missing_data(recipe.data)
            yield Cell(row, method, paper, why_not=f"needs {why_not}" if why_not else ""), None if why_not else recipe


def run_cells(
    cells: Sequence[tuple[Cell, Recipe | None]],
    *,
    seeds: int,
    scale: float,
    out: Path,
    device: str = "cpu",
    compile: bool = False,
    skip_bad: int = 0,
    watch: Watch,
) -> list[Cell]:
    """Train the cells that can be, over seeds 0, 1, …; what their folders hold already is gone on with, or taken as it is.

    A cell that fails says why, and the others are run.
    """
    found = []
    for cell, recipe in cells:
        if recipe is None:
            found.append(cell)
            continue
        small = scaled(recipe, scale)
        for seed in range(seeds):
            folder = out / cell.row / f"{cell.method}-{seed}"
            try:
                with watch(f"{cell.row} {cell.method}, seed {seed}") as on_step:
                    options = {"device": device, "compile": compile, "skip_bad": skip_bad, "on_step": on_step}
                    run = train(replace(small, seed=seed), out=folder, **options)
            except (ValueError, RuntimeError, OSError, MemoryError) as error:  # out of memory, a full disk
                cell = replace(cell, why_not=f"seed {seed}: {first_line(error)}", failed=True)
                break
            cell = replace(cell, accuracies=(*cell.accuracies, run.accuracy))
        found.append(cell)
    return found


def record(item: Item, cells: Sequence[Cell], folder: Path) -> list[dict[str, Any]]:
    """Return the cells that were asked for and all others that have finished runs in the folder, each with its recipe."""
    asked = {(cell.row, cell.method): cell.why_not for cell in cells}
    found = []
    for row, numbers in item.cells.items():
        for method in METHODS:
            runs = _finished(folder / row, method)
            if not runs and (row, method) not in asked:
                continue
            entry = {"row": row, "method": method, "paper": numbers.get(method, "-"), "seeds": sorted(runs)}
            entry["accuracies"] = [runs[seed]["metrics"][-1]["test_accuracy"] for seed in sorted(runs)]
            recipe = next(iter(runs.values()))["recipe"] if runs else {}
            entry["recipe"] = {key: value for key, value in recipe.items() if key != "seed"}
            found.append(entry | {"why_not": asked.get((row, method), "")})
    return found


def _finished(folder: Path, method: str) -> dict[int, dict[str, Any]]:
    """Return what the checkpoints of a cell's finished runs say, by seed."""
    runs = {}
    for path in folder.glob(f"{method}-[0-9]*"):
        try:
            found = checkpoint.load(path)
        except ValueError:  # damaged: training it says so
            continue
        if found is not None and len(found[1]["metrics"]) == found[1]["recipe"]["epochs"]:
            runs[found[1]["recipe"]["seed"]] = found[1]
    return runs
