"""The cells of the paper's tables as runs: the recipe of each, its training over seeds, and what is kept of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from outspan.comparison.statistics import mean_and_std
from outspan.config import Recipe, read_recipe, scaled, stored_recipe, with_values
from outspan.data.sets import IMAGENET
from outspan.messages import first_line, unknown
from outspan.policies.files import fast_autoaugment, pba
from outspan.reproduce.paper import Item, missing_data, recipes
from outspan.training import checkpoint
from outspan.training.loop import train
from outspan.training.pool import Watch

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
        mean, std = mean_and_std(self.accuracies)
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
        if found is None:
            continue
        recipe = stored_recipe(found[1]["recipe"])
        if len(found[1]["metrics"]) == recipe.epochs:
            runs[recipe.seed] = found[1]
    return runs
