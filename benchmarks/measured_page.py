"""docs/measured.md from the result files that are there: our measurements and the paper's, side by side.

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
    """Return the page, a section for each result that is there."""
    sections = {
        "mnist-transforms": _transforms,
        "mnist-compositions": _compositions,
        "mnist-compositions-additive": _compositions,
        "mnist-core": _core,
        "mnist-mixup": _mixup,
        "cifar10-mixup": _mixup,
    }
    lines = [
        "# The paper's measurements, made again",
        "",
        "Ours beside those of [arXiv:2005.00695](https://arxiv.org/abs/2005.00695) (Section 4, Appendices B and D), in %. How",
        "to read them is in [Measuring](measure.md). `benchmarks/mnist_measure.py` writes this page from the files it names.",
    ]
    for name, section in sections.items():
        path = results / f"{name}.json"
        if path.exists():
            found = json.loads(path.read_text())
            lines += ["", *section(name, found), "", _about(name, found)]
    return "\n".join(lines) + "\n"


def _about(name: str, found: dict[str, Any]) -> str:
    settings, machine = found["settings"], found["machine"]
    where = machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores"
    what = f"{settings['data']}, {settings['model']}, {settings['epochs']} epochs, batches of {settings['batch']}"
    return f"{what}, {len(found['seeds'])} seeds, {found['samples']:,} test images; {where}; `results/{name}.json`."


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    header = list(header)
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"


def _transforms(name: str, found: dict[str, Any]) -> list[str]:
    rows = []
    for kind, entry in sorted(found["entries"].items(), key=lambda item: item[1]["error"]["value"]):
        theirs = found["paper_percent"][kind]
        cells = [_percent(value) for key in SCORES for value in (100 * entry[key]["value"], theirs.get(key))]
        rows.append([f"**{kind}**" if kind == "baseline" else kind, *cells])
    agreement = found["agreement"]
    ranks = ", ".join(f"{key} {agreement[f'spearman_{key}']:+.2f}" for key in SCORES)
    other = [kind for kind, same in agreement["on_the_papers_side_of_the_baseline"].items() if not same]
    ours, paper = found["corrected_by_rotate"]["ours"], found["corrected_by_rotate"]["paper_percent"]
    few = {
        kind: entry["first_3_seeds"]["error"] / entry["error"]["value"] - 1
        for kind, entry in found["entries"].items()
        if "first_3_seeds" in entry and entry["error"]["value"]
    }
    header = ["", *(f"{key}, {whose}" for key in SCORES for whose in ("ours", "paper's"))]
    lines = ["## Transforms on MNIST", "", *_table(header, rows), "", f"![error against instability]({name}.png)", ""]
    lines += [f"- Spearman of ours and the paper's over the 20 transforms: {ranks}."]
    lines += [f"- The baseline's accuracy is {agreement['baseline_accuracy_minus_papers']:+.2f} points from the paper's."]
    sides = "all are" if not other else f"all are but {', '.join(other)}"
    lines += [
        f"- On the paper's side of the baseline's error {sides}: rotate, crop, cutout, shears and translations below it, "
        "invert and the flips above."
    ]
    corrected, broken = ours["corrected"], ours["broken"]
    lines += [
        f"- Rotate corrects {corrected['count']} images, on which the baseline's models are right "
        f"{_share(corrected['baseline_accuracy'])} of the time, and breaks {broken['count']} (its own: "
        f"{_share(broken['accuracy'])}); the paper: {paper['corrected']} at {paper['baseline_accuracy']} %, "
        f"{paper['broken']} at {paper['accuracy_on_broken']} %."
    ]
    if few:
        worst = max(few, key=lambda kind: abs(few[kind]))
        lines += [f"- Three seeds estimate the error of all within {100 * abs(few[worst]):.0f} % ({worst}); the paper: 16 %."]
    return lines


def _share(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _compositions(name: str, found: dict[str, Any]) -> list[str]:
    names = list(found["transforms"])
    pairs = {(pair["first"], pair["second"]): pair for pair in found["pairs"]}
    rows = []
    for first in names:
        cells = []
        for second in names:
            pair = pairs.get((first, second))
            text = "" if pair is None else f"{100 * pair['error']:.2f}"
            cells.append(f"**{text}**" if pair is not None and pair["edge"] else text)
        rows.append([first, f"{100 * found['transforms'][first]['error']:.2f}", *cells])
    way = "blended evenly" if found["composition"] == "additive" else "one after the other"
    lines = [
        f"## Compositions of two, {way}",
        "",
        f"Error; rows: the first, columns: the second; the baseline's is {100 * found['baseline']['error']:.2f}.",
        "",
    ]
    lines += [*_table(["first", "alone", *names], rows), "", f"![which help which]({name}.png)", ""]
    arrows = ", ".join(f"{first} → {second}" for first, second in found["edges"]) or "none"
    return [*lines, f"Edges (a cut of the first's error by over 10 %, bold): {arrows}. The paper: {found['paper']}."]


def _core(name: str, found: dict[str, Any]) -> list[str]:
    rows = [[" + ".join(entry["transforms"]) or "none", f"{100 * entry['error']:.2f}"] for entry in found["path"]]
    chosen = f"The core, the shortest within 10 % of the best: **{' + '.join(found['core']) or 'none'}**."
    return ["## Core set", "", *_table(["added one at a time", "error"], rows), "", chosen]


def _mixup(name: str, found: dict[str, Any]) -> list[str]:
    rows = []
    for run, entry in found["scores"].items():
        theirs = found["paper_percent"][run]
        rows.append([run.replace("_", "-"), *(_percent(value) for key in SCORES for value in (100 * entry[key], theirs[key]))])
    header = ["", *(f"{key}, {whose}" for key in SCORES for whose in ("ours", "paper's"))]
    curve = [
        [f"{100 * entry['share']:g} %", f"{100 * entry['instability']:.2f}", f"{100 * entry['error']:.2f}"]
        for entry in found["same_class"]
    ]
    data = {"mnist-mixup": "MNIST", "cifar10-mixup": "CIFAR-10"}[name]
    chosen, own = found["weight_decay"]["chosen"], found["settings"]["weight_decay"]
    decay = f"Weight decay {chosen:g} in all but the baseline, which has {own:g}. The baseline is trained anew in each study."
    lines = [f"## Mixup on {data}", "", decay, "", *_table(header, rows), ""]
    lines += [*_table(["partners of the same class", "instability", "error"], curve), "", f"![mixup]({name}.png)", ""]
    for entry in found["margins"]["corrected"]:
        margin = "n/a" if entry["mean_margin"] is None else f"{entry['mean_margin']:.2f}"
        what = f"corrects {entry['count']} images (baseline's mean margin there {margin}), breaks {entry['broken']}"
        lines += [f"- With {100 * entry['share']:g} % same-class partners it {what}."]
    wrong = found["margins"]["mean_margin_of_wrong"]
    return [*lines, f"- The baseline's mean margin over all that it gets wrong is {_percent(wrong)}."]


def main() -> None:
    """Write the page."""
    (ROOT / "docs/measured.md").write_text(page(ROOT / "results"))


if __name__ == "__main__":
    main()
