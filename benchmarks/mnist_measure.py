"""Repeat the measurements of the paper (arXiv:2005.00695, Section 4, Appendices B and D) and compare the numbers.

    python benchmarks/mnist_measure.py table compose core blend mixup --out runs/measured --jobs 8     # MNIST, an MLP, 9 seeds
    python benchmarks/mnist_measure.py cifar --out runs/measured --jobs 3                              # a WRN-28-2, 3 seeds

Each part resumes where it stopped, and `--minutes` stops cleanly. The parts write results/mnist-transforms.json,
mnist-compositions.json, mnist-compositions-additive.json, mnist-core.json, mnist-mixup.json and cifar10-mixup.json, their
figures and the page docs/measured.md. For a quick test use `--data digits --set epochs=2 --seeds 2`, and other folders for
`--results` and `--figures`.
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import ROOT, machine
from measured_page import page

from outspan.config import Recipe, build_recipe, read_changes
from outspan.measurement.compose import build_graph, composition_name, compositions
from outspan.measurement.core import search
from outspan.measurement.effects import summarize
from outspan.measurement.mixup import FRACTIONS, mixup_baseline, mixup_recipes, summarize_mixup, tune
from outspan.measurement.recipes import BASELINE, baseline_recipe, chain, single_transforms
from outspan.measurement.study import Study
from outspan.theory.ranking import spearman
from outspan.training import Progress, Stopped

FIVE = ("rotate", "random_crop", "cutout", "translate_x", "translate_y")
PAIRS = (("rotate", "random_crop"), ("translate_x", "translate_y"))
BELOW = (
    "rotate",
    "random_crop",
    "cutout",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)  # transforms with a lower error than the baseline
ABOVE = ("invert", "horizontal_flip", "vertical_flip")
SCORES = ("accuracy", "error", "instability")
# The numbers of the paper, in %.
PAPER_PAIRS = {"rotate+random_crop": {"accuracy": 98.72, "error": 0.86}, "translate_x+translate_y": {"accuracy": 98.0}}
PAPER_CORRECTED = {"corrected": 57, "baseline_accuracy": 19.5, "broken": 18, "accuracy_on_broken": 29.63}
PAPER_GRAPH = "rotate, random_crop and cutout each help some other; the translations help none of the rest"
RUNS = ("baseline", "l2", "same_class", "mixup")
PAPER_MIXUP = {
    "mnist": dict(zip(RUNS, ((98.07, 1.52, 0.95), (98.31, 1.50, 0.67), (98.15, 1.78, 0.61), (98.21, 1.58, 0.70)), strict=True)),
    "cifar10": dict(
        zip(RUNS, ((87.33, 9.61, 7.97), (91.23, 6.55, 5.50), (91.59, 6.55, 4.96), (92.44, 5.71, 4.75)), strict=True)
    ),
}


def main() -> None:
    """Train the missing runs of the requested parts, print them and write their results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["table", "compose", "core", "blend", "mixup", "cifar"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs")
    parser.add_argument("--seeds", type=int, help="default: 9, and 3 for cifar")
    parser.add_argument("--data", help="another data set, for a quick test")
    parser.add_argument("--set", dest="changes", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9)
    options = parser.parse_args()
    run = _Run(options)
    try:
        for part in options.parts:
            getattr(run, part)()
            (options.figures / "measured.md").write_text(page(options.results))
    except Stopped as stopped:
        raise SystemExit(str(stopped)) from None


class _Run:
    """The parts of the measurement."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.end = options, time.monotonic() + 60 * options.minutes
        self.device = "cuda" if torch.cuda.is_available() else "cpu"

    def table(self) -> None:
        """Measure 20 transforms and two compositions, and compare with the paper's table."""
        paper = json.loads((ROOT / "results/paper-mnist-transforms.json").read_text())
        study, began = self._study(), time.perf_counter()
        recipes = single_transforms(study.baseline, paper["error"])
        study.run(recipes)  # without the pairs: plans of equal depth are drawn together
        recipes |= {composition_name(pair): chain(study.baseline, pair) for pair in PAIRS}
        measured = summarize(study.run(recipes))
        result: Any = measured.as_dict()
        entries = {BASELINE: result.pop(BASELINE), **result.pop("transforms")}
        for entry in entries.values():
            entry.pop("by_class")
        ours = {name: {key: 100 * entry[key]["value"] for key in SCORES} for name, entry in entries.items()}
        theirs = {name: {key: paper[key][name] for key in SCORES} for name in paper["error"]}
        theirs |= {BASELINE: paper["baseline"], **PAPER_PAIRS}
        print(f"{'':26}" + "".join(f"{key:>22}" for key in SCORES) + "    ours, paper's; %")
        for name in sorted(ours, key=lambda name: ours[name]["error"]):
            cells = [f"{ours[name][key]:.2f}, {theirs[name].get(key, float('nan')):.2f}" for key in SCORES]
            print(f"{name:26}" + "".join(f"{cell:>22}" for cell in cells))
        agreement = _agreement(ours, paper)
        print(json.dumps(agreement, indent=2))
        rotate = entries["rotate"]
        corrected = {"ours": {"corrected": rotate["corrected"], "broken": rotate["broken"]}, "paper_percent": PAPER_CORRECTED}
        extra = {"agreement": agreement, "corrected_by_rotate": corrected, "paper_percent": theirs, "entries": entries}
        self._write("mnist-transforms", result | extra, began)
        self._draw("mnist-transforms", measured.figure())

    def compose(self) -> None:
        """Measure every ordered pair of five transforms."""
        self._compose("mnist-compositions", additive=False)

    def blend(self) -> None:
        """Measure the blend of every pair of the five."""
        self._compose("mnist-compositions-additive", additive=True)

    def _compose(self, name: str, *, additive: bool) -> None:
        study, began = self._study(), time.perf_counter()
        measured = study.run(compositions(study.baseline, FIVE, additive=additive))
        graph = build_graph(measured, FIVE, additive=additive)
        result: Any = graph.as_dict()
        for pair in result["pairs"]:
            mark = "→" if pair["edge"] else " "
            cut = f"{100 * pair['error']:5.2f} %, cut by {100 * pair['cut']:+.0f} %"
            print(f"{pair['first']:12} {mark} {pair['second']:12} {cut}")
        self._write(name, result | {"paper": PAPER_GRAPH}, began)
        self._draw(name, graph.figure())

    def core(self) -> None:
        """Find the core of the five."""
        study, began = self._study(), time.perf_counter()
        result: Any = search(study, FIVE).as_dict()
        for entry in result["path"]:
            print(f"{100 * entry['error']:5.2f} %  {' + '.join(entry['transforms']) or 'none'}")
        print(f"core: {' + '.join(result['core']) or 'none'}")
        self._write("mnist-core", result, began)

    def mixup(self) -> None:
        """Study mixup on MNIST with tuned weight decay."""
        self._mixup("mnist", self._recipe("paper/mnist-mlp"), [1e-4, 3e-4, 1e-3, 3e-3], FRACTIONS, 9)

    def cifar(self) -> None:
        """Study mixup on CIFAR-10. The baseline has no weight decay, the others that of the paper."""
        recipe = self._recipe("cifar10-wrn-28-2-baseline", "weight_decay=0", "epochs=30")
        self._mixup("cifar10", recipe, [5e-4], (0.0, 0.5, 1.0), 3)

    def _mixup(self, name: str, recipe: Recipe, decays: list[float], fractions: tuple[float, ...], seeds: int) -> None:
        study, began = self._open(mixup_baseline(recipe), f"{name}-mixup", seeds), time.perf_counter()
        tuning = tune(study, decays)
        measured = study.run(mixup_recipes(study.baseline, tuning.weight_decay, fractions))
        mixup = summarize_mixup(measured, tuning, fractions)
        result: Any = mixup.as_dict()
        paper = {run: dict(zip(SCORES, values, strict=True)) for run, values in PAPER_MIXUP[name].items()}
        for run, entry in result["scores"].items():
            ours = ", ".join(f"{100 * entry[key]:.2f}" for key in SCORES)
            print(f"{run:12} {ours}   paper: {', '.join(f'{value:.2f}' for value in paper[run].values())}")
        for entry in result["same_class"]:
            scores = f"instability {100 * entry['instability']:.2f}, error {100 * entry['error']:.2f}"
            print(f"same class {100 * entry['share']:3.0f} %: {scores}")
        for entry in result["margins"]["corrected"]:
            margin = f"{entry['count']} images, the baseline's mean margin {entry['mean_margin']}"
            print(f"corrected at {100 * entry['share']:.0f} % same class: {margin}")
        self._write(f"{name}-mixup", result | {"paper_percent": paper}, began)
        self._draw(f"{name}-mixup", mixup.figure())

    def _recipe(self, name: str, *changes: str) -> Recipe:
        others = [f"data={self.options.data}"] if self.options.data else []
        return build_recipe(ROOT / f"recipes/{name}.toml", read_changes([*changes, *others, *self.options.changes]))

    def _study(self) -> Study:
        return self._open(baseline_recipe(self._recipe("paper/mnist-mlp"), 0.5), "mnist", 9)

    def _open(self, baseline: Recipe, name: str, seeds: int) -> Study:
        options = {"device": self.device, "jobs": self.options.jobs, "watch": self._watch}
        return Study(baseline, seeds=range(self.options.seeds or seeds), out=self.options.out / name, **options)

    @contextmanager
    def _watch(self, title: str) -> Iterator[Any]:
        began, printed = time.perf_counter(), [0.0]

        def on_step(progress: Progress) -> bool:
            now = time.perf_counter()
            if now - printed[0] >= 30 or progress.step == progress.steps:
                print(f"{title}: step {progress.step:.6g} of {progress.steps}, {now - began:.0f} s", flush=True)
                printed[0] = now
            return time.monotonic() > self.end

        yield on_step

    def _write(self, name: str, result: dict[str, Any], began: float) -> None:
        """Write a result with the seconds of this start, which are few if all runs were trained before."""
        path = self.options.results / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        provenance = {"machine": machine(), "seconds_of_this_start": round(time.perf_counter() - began, 1)}
        path.write_text(json.dumps(provenance | result, indent=2) + "\n")
        print(f"wrote {path}, {provenance['seconds_of_this_start']} s", flush=True)

    def _draw(self, name: str, figure: Any) -> None:
        self.options.figures.mkdir(parents=True, exist_ok=True)
        figure.savefig(self.options.figures / f"{name}.png")


def _agreement(ours: dict[str, dict[str, float]], paper: dict[str, Any]) -> dict[str, Any]:
    """Return how well our table agrees with the paper's: ranks, sides of the baseline, and the accuracy of the baseline."""
    names = sorted(paper["error"])
    result: dict[str, Any] = {
        f"spearman_{key}": spearman(
            np.array([ours[name][key] for name in names]), np.array([paper[key][name] for name in names])
        )
        for key in SCORES
    }
    base = ours[BASELINE]["error"]
    sides = {name: ours[name]["error"] < base for name in BELOW} | {name: ours[name]["error"] > base for name in ABOVE}
    result["baseline_accuracy_minus_papers"] = ours[BASELINE]["accuracy"] - paper["baseline"]["accuracy"]
    result["on_the_papers_side_of_the_baseline"] = sides
    met = result["spearman_error"] >= 0.7 and all(sides.values()) and abs(result["baseline_accuracy_minus_papers"]) <= 0.3
    return result | {"all_met": bool(met)}


if __name__ == "__main__":
    main()
