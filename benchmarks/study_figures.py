"""Draw the figures of docs/measured.md and docs/theory-rank.png again from results/*.json, without training.

python benchmarks/study_figures.py
"""

import json
from typing import Any

from machine import ROOT

from outspan.figures.measure import Arrow, Estimate, Point, graph_figure, measure_figure, mixup_figure
from outspan.figures.theory import rank_figure
from outspan.theory.ranking import Ranked, Ranking

VERDICTS = {"not told apart": "no significant difference"}  # the name in the files


def main() -> None:
    """Read, draw and write."""
    figures = {"mnist-transforms": transforms("mnist-transforms"), "theory-rank": ranking("theory-rank-mnist")}
    figures |= {name: compositions(name) for name in ("mnist-compositions", "mnist-compositions-additive")}
    figures |= {name: mixup(name) for name in ("mnist-mixup", "cifar10-mixup")}
    for name, figure in figures.items():
        figure.savefig(ROOT / "docs" / f"{name}.png")


def transforms(name: str) -> Any:
    """Return the error against the instability of each transform."""
    stored = read(name)
    points = {}
    for key, one in stored["entries"].items():
        verdict = one.get("difference", {}).get("verdict", "")
        x, y = one["instability"], one["error"]
        points[key] = Point(x["value"], y["value"], x["interval"], y["interval"], VERDICTS.get(verdict, verdict))
    baseline = points.pop("baseline")
    return measure_figure(baseline, points, f"{test_set(stored)}, 95 % intervals over {stored['kind']}")


def compositions(name: str) -> Any:
    """Return the graph of compositions."""
    stored = read(name)
    edges = [pair for pair in stored["pairs"] if pair["edge"]]
    arrows = [Arrow(one["first"], one["second"], one["cut"], one["difference"]["interval"][1] < 0) for one in edges]
    order = "blending B into A" if stored["composition"] == "additive" else "B after A"
    title = f"A → B: {order} reduces the error of A alone (in the box) by more than 10 %"
    title += f"\n{test_set(stored)}; dashed: not significant (95 % interval)"
    return graph_figure({name: one["error"] for name, one in stored["transforms"].items()}, arrows, title)


def mixup(name: str) -> Any:
    """Return the instability and the margins of a study of mixup."""
    stored = read(name)
    scores, margins = stored["scores"], stored["margins"]
    curve = [Estimate(one["share"], one["instability"], one["instability_interval"]) for one in stored["same_class"]]
    levels = {"baseline": scores["baseline"]["instability"], "weight decay": scores["l2"]["instability"]}
    corrected = {f"{100 * one['share']:.12g} % same class": one["histogram"] for one in margins["corrected"]}
    return mixup_figure(curve, levels, margins["right"], margins["wrong"], corrected)


def ranking(name: str) -> Any:
    """Return the predicted gain of each transform against its measured error."""
    stored = dict(read(name)["ranking"])
    rows = tuple(Ranked(**row) for row in stored.pop("rows"))
    return rank_figure(Ranking(rows=rows, **stored))


def test_set(stored: dict[str, Any]) -> str:
    """Return the number of seeds and the size of the test split, for titles."""
    return f"{len(stored['seeds'])} seeds, {stored['samples']:,} test {stored['kind']}"


def read(name: str) -> dict[str, Any]:
    """Return a result."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


if __name__ == "__main__":
    main()
