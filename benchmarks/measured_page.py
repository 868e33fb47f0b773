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
            found = json.loads(path.read_text())
            lines += ["", *section(name, found), "", _about(name, found)]
    return "\n".join(lines) + "\n"


def _about(name: str, found: dict[str, Any]) -> str:
    settings, machine = found["settings"], found["machine"]
    where = machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores"
    what = f"Setting: {settings['data']}, {settings['model']}, {settings['epochs']} epochs, batch size {settings['batch']}"
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
    header = ["", *(f"{key}, {whose}" for key in SCORES for whose in ("ours", "paper"))]
    lines = ["## Transforms on MNIST", "", *_table(header, rows), "", f"![error against instability]({name}.png)", ""]
    lines += [f"- Spearman correlation of our scores and the paper's over the 20 transforms: {ranks}."]
    lines += [f"- The accuracy of the baseline minus the paper's: {agreement['baseline_accuracy_minus_papers']:+.2f} points."]
    sides = "each of these" if not other else f"each of these except {', '.join(other)}"
    lines += [
        "- In the paper the error is lower than the baseline's for rotate, crop, cutout, shears and translations, and higher "
        f"for invert and the flips. Here {sides} is on the same side of the baseline."
    ]
    corrected, broken = ours["corrected"], ours["broken"]
    lines += [
        f"- Rotate corrects {corrected['count']} images. The accuracy of the baseline's models on them is "
        f"{_share(corrected['baseline_accuracy'])}. It breaks {broken['count']} images. The accuracy of its own models on "
        f"them is {_share(broken['accuracy'])}. In the paper it corrects {paper['corrected']} images "
        f"({paper['baseline_accuracy']} %) and breaks {paper['broken']} ({paper['accuracy_on_broken']} %)."
    ]
    if few:
        worst = max(few, key=lambda kind: abs(few[kind]))
        most = f"{100 * abs(few[worst]):.0f} % ({worst})"
        lines += [f"- The error with three seeds differs from the error with all seeds by at most {most}. In the paper: 16 %."]
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
    way = "additive (even blend)" if found["composition"] == "additive" else "one after the other"
    lines = [
        f"## Pairs of transforms, {way}",
        "",
        "The table shows the error. Rows are the first transform, columns are the second. The error of the baseline is "
        f"{100 * found['baseline']['error']:.2f}.",
        "",
    ]
    lines += [*_table(["first", "alone", *names], rows), "", f"![graph of the edges]({name}.png)", ""]
    arrows = ", ".join(f"{first} → {second}" for first, second in found["edges"]) or "none"
    edges = f"Edges (bold: the second lowers the error of the first by more than 10 %): {arrows}."
    return [*lines, f"{edges} In the paper: {found['paper']}."]


def _core(name: str, found: dict[str, Any]) -> list[str]:
    rows = [[" + ".join(entry["transforms"]) or "none", f"{100 * entry['error']:.2f}"] for entry in found["path"]]
    chosen = f"The core set is the shortest set within 10 % of the lowest error: **{' + '.join(found['core']) or 'none'}**."
    return ["## Core set", "", *_table(["transforms, added one at a time", "error"], rows), "", chosen]


def _mixup(name: str, found: dict[str, Any]) -> list[str]:
    rows = []
    for run, entry in found["scores"].items():
        theirs = found["paper_percent"][run]
        rows.append([run.replace("_", "-"), *(_percent(value) for key in SCORES for value in (100 * entry[key], theirs[key]))])
    header = ["", *(f"{key}, {whose}" for key in SCORES for whose in ("ours", "paper"))]
    curve = [
        [f"{100 * entry['share']:g} %", f"{100 * entry['instability']:.2f}", f"{100 * entry['error']:.2f}"]
        for entry in found["same_class"]
    ]
    data = {"mnist-mixup": "MNIST", "cifar10-mixup": "CIFAR-10"}[name]
    chosen, own = found["weight_decay"]["chosen"], found["settings"]["weight_decay"]
    decay = f"The weight decay is {chosen:g}, and {own:g} for the baseline. The baseline is trained again in each study."
    lines = [f"## Mixup on {data}", "", decay, "", *_table(header, rows), ""]
    lines += [
        *_table(["fraction of partners of the same class", "instability", "error"], curve),
        "",
        f"![mixup]({name}.png)",
        "",
    ]
    for entry in found["margins"]["corrected"]:
        margin = "n/a" if entry["mean_margin"] is None else f"{entry['mean_margin']:.2f}"
        what = f"corrects {entry['count']} images (mean margin of the baseline on them: {margin}) and breaks {entry['broken']}"
        lines += [f"- With {100 * entry['share']:g} % same-class partners, mixup {what}."]
    wrong = found["margins"]["mean_margin_of_wrong"]
    return [*lines, f"- The mean margin of the baseline on all images that it gets wrong is {_percent(wrong)}."]


def main() -> None:
    """Write the page."""
    (ROOT / "docs/measured.md").write_text(page(ROOT / "results"))


if __name__ == "__main__":
    main()
