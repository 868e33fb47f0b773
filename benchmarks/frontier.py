"""Write docs/frontier.png, the accuracy of policies against the training time, from results/safety.json.

python benchmarks/frontier.py
"""

import json
import statistics

from machine import ROOT
from safety import RESULT

from outspan.figures.compare import frontiers_figure

POLICIES = ("none", "random", "randaugment", "auto")
SETTINGS = ("photos, 500 images", "photos, 5,000 images", "photos, all images")


def main() -> None:
    """Read, draw and write."""
    rows = json.loads(RESULT.read_text())["rows"]
    panels = {}
    for setting in SETTINGS:
        panels[setting] = {
            policy: points([row for row in rows if (row["setting"], row["policy"]) == (setting, policy)]) for policy in POLICIES
        }
    frontiers_figure(panels).savefig(ROOT / "docs" / "frontier.png", dpi=100)


def points(rows: list[dict[str, float]]) -> list[tuple[float, float, float]]:
    """Return each budget in seconds, and the mean and standard deviation of the test accuracy over seeds.

    A budget is a number of steps times the time of a step, which was measured for all policies in turns.
    """
    result = []
    for budget in sorted({row["budget"] for row in rows}):
        tests = [row["test"] for row in rows if row["budget"] == budget]
        result.append((budget, statistics.fmean(tests), statistics.stdev(tests)))
    return result


if __name__ == "__main__":
    main()
