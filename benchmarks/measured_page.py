"""Write docs/measured.md from the available result files: our measurements next to the paper's.

    python benchmarks/measured_page.py

`benchmarks/mnist_measure.py` calls it after every part.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from machine import ROOT

SCORES = ("accuracy", "error", "instability")


def page(results: Path) -> str:
    """Return the page, with one section for each available result."""
    sections = {
        "mnist-transforms": _transforms,
        "mnist-compositions": _compositions,
        "mnist-compositions-additive": _compositions,
        "mnist-core": _core,
        "mnist-mixup": _mixup,
        "cifar10-mixup": _mixup,
    }
    lines = [
        "# The paper's measurements, repeated",
        "",
        "This page compares our measurements with those of [arXiv:2005.00695](https://arxiv.org/abs/2005.00695) (Section 4,",
        "Appendices B and D). All values are in %. [Measuring](measure.md) explains the scores. `benchmarks/mnist_measure.py`",
        "writes this page from the result files given below.",
    ]
    for name, section in sections.items():
        path = results / f"{name}.json"
        if path.exists():
            result = json.loads(path.read_text())
            lines += ["", *section(name, result), "", _setting(name, result)]
    return "\n".join(lines) + "\n"


def _setting(name: str, result: dict[str, Any]) -> str:
    settings, machine = result["settings"], result["machine"]
    where = machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores"
    what = f"Setting: {settings['data']}, {settings['model']}, {settings['epochs']} epochs, batch size {settings['batch']}"
    return f"{what}, {len(result['seeds'])} seeds, {result['samples']:,} test images; {where}; `results/{name}.json`."


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    header = list(header)
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"


def _transforms(name: str, result: dict[str, Any]) -> list[str]:
    rows = []
    for transform, entry in sorted(result["entries"].items(), key=lambda item: item[1]["error"]["value"]):
        theirs = result["paper_percent"][transform]
        cells = [_percent(value) for key in SCORES for value in (100 * entry[key]["value"], theirs.get(key))]
        rows.append([f"**{transform}**" if transform == "baseline" else transform, *cells])
    agreement = result["agreement"]
    ranks = ", ".join(f"{key} {agreement[f'spearman_{key}']:+.2f}" for key in SCORES)
    other = [transform for transform, same in agreement["on_the_papers_side_of_the_baseline"].items() if not same]
    ours, paper = result["corrected_by_rotate"]["ours"], result["corrected_by_rotate"]["paper_percent"]
    changes = {
        transform: entry["first_3_seeds"]["error"] / entry["error"]["value"] - 1
        for transform, entry in result["entries"].items()
        if "first_3_seeds" in entry and entry["error"]["value"]
    }
    header = ["", *(f"{key}, {whose}" for key in SCORES for whose in ("ours", "paper"))]
    lines = ["## Transforms on MNIST", "", *_table(header, rows), "", f"![error against instability]({name}.png)", ""]
    lines += [f"- Spearman correlation of our scores and the paper's over the 20 transforms: {ranks}."]
    lines += [f"- The accuracy of the baseline minus the paper's: {agreement['baseline_accuracy_minus_papers']:+.2f} points."]
    exceptions = f", except for {', '.join(other)}" if other else ""
    lines += [
        "- In the paper the error is lower than the baseline's for rotate, crop, cutout, shears and translations, and higher "
        f"for invert and the flips. This is also true here{exceptions}."
    ]
    corrected, broken = ours["corrected"], ours["broken"]
    lines += [
        f"- Rotate corrects {corrected['count']} images. The models without rotate have an accuracy of "
        f"{_rate(corrected['baseline_accuracy'])} on them. It breaks {broken['count']} images. The models with rotate have an "
        f"accuracy of {_rate(broken['accuracy'])} on them. In the paper it corrects {paper['corrected']} images "
        f"({paper['baseline_accuracy']} %) and breaks {paper['broken']} ({paper['accuracy_on_broken']} %)."
    ]
    if changes:
        worst = max(changes, key=lambda transform: abs(changes[transform]))
        largest = f"{100 * abs(changes[worst]):.0f} % ({worst})"
        lines += [
            f"- The error with three seeds differs from the error with all seeds by at most {largest}. In the paper: 16 %."
        ]
    return lines


def _rate(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _compositions(name: str, result: dict[str, Any]) -> list[str]:
    names = list(result["transforms"])
    pairs = {(pair["first"], pair["second"]): pair for pair in result["pairs"]}
    rows = []
    for first in names:
        cells = []
        for second in names:
            pair = pairs.get((first, second))
            text = "" if pair is None else f"{100 * pair['error']:.2f}"
            cells.append(f"**{text}**" if pair is not None and pair["edge"] else text)
        rows.append([first, f"{100 * result['transforms'][first]['error']:.2f}", *cells])
    way = "additive (average of both images)" if result["composition"] == "additive" else "one after the other"
    lines = [
        f"## Pairs of transforms, {way}",
        "",
        "The table shows the error. Rows are the first transform, columns are the second. The error of the baseline is "
        f"{100 * result['baseline']['error']:.2f}.",
        "",
    ]
    lines += [*_table(["first", "alone", *names], rows), "", f"![graph of the edges]({name}.png)", ""]
    arrows = ", ".join(f"{first} → {second}" for first, second in result["edges"]) or "none"
    paper = "In the paper, rotate, random_crop and cutout each help another transform, and the translations help no other."
    return [*lines, f"Edges (bold: the second lowers the error of the first by more than 10 %): {arrows}.", "", paper]


def _core(name: str, result: dict[str, Any]) -> list[str]:
    rows = [[" + ".join(entry["transforms"]) or "none", f"{100 * entry['error']:.2f}"] for entry in result["path"]]
    chosen = f"The core set is the shortest set within 10 % of the lowest error: **{' + '.join(result['core']) or 'none'}**."
    return ["## Core set", "", *_table(["transforms, added one at a time", "error"], rows), "", chosen]


def _mixup(name: str, result: dict[str, Any]) -> list[str]:
    rows = []
    for run, entry in result["scores"].items():
        theirs = result["paper_percent"][run]
        rows.append([run.replace("_", "-"), *(_percent(value) for key in SCORES for value in (100 * entry[key], theirs[key]))])
    header = ["", *(f"{key}, {whose}" for key in SCORES for whose in ("ours", "paper"))]
    curve = [
        [f"{100 * entry['share']:g} %", f"{100 * entry['instability']:.2f}", f"{100 * entry['error']:.2f}"]
        for entry in result["same_class"]
    ]
    data = {"mnist-mixup": "MNIST", "cifar10-mixup": "CIFAR-10"}[name]
    chosen, baseline = result["weight_decay"]["chosen"], result["settings"]["weight_decay"]
    decay = f"The weight decay is {chosen:g}, and {baseline:g} for the baseline. The baseline is trained again in each study."
    lines = [f"## Mixup on {data}", "", decay, "", *_table(header, rows), ""]
    lines += [
        *_table(["fraction of partners of the same class", "instability", "error"], curve),
        "",
        f"![mixup]({name}.png)",
        "",
    ]
    for entry in result["margins"]["corrected"]:
        margin = "n/a" if entry["mean_margin"] is None else f"{entry['mean_margin']:.2f}"
        what = f"corrects {entry['count']} images (mean margin of the baseline on them: {margin}) and breaks {entry['broken']}"
        lines += [f"- With {100 * entry['share']:g} % same-class partners, mixup {what}."]
    wrong = result["margins"]["mean_margin_of_wrong"]
    return [*lines, f"- The mean margin of the baseline on all images that it gets wrong is {_percent(wrong)}."]


def main() -> None:
    """Write the page."""
    (ROOT / "docs/measured.md").write_text(page(ROOT / "results"))


if __name__ == "__main__":
    main()
