"""Write docs/which-policy.md from results/safety.json.

python benchmarks/which_policy.py
"""

import json
import statistics
from collections.abc import Sequence

from machine import ROOT
from safety import RESULT, Cell, find_cells
from safety_settings import SETTINGS

PAGE = ROOT / "docs" / "which-policy.md"


def page(cells: Sequence[Cell]) -> str:
    """Return the page."""
    against_none = [cell.interval("none") for cell in cells]
    above = sum(low > 0 for _, low, _ in against_none)
    below = sum(high < 0 for _, _, high in against_none)
    mean_none = statistics.fmean(difference for difference, _, _ in against_none)
    mean_best = statistics.fmean(cell.difference for cell in cells)
    leads = sum(cell.difference > 2 * cell.error for cell in cells)
    trails = sum(cell.difference < -max(0.3, 2 * cell.error) for cell in cells)
    uncertain = [
        statistics.fmean(cell.tests[cell.best]) - max(map(statistics.fmean, of))
        for cell in cells
        if (of := [values for policy, values in cell.tests.items() if policy.startswith("uncertain")])
    ]
    lines = [
        "# Which policy should I use?",
        "",
        "**Start with `auto`, the default.** It has no settings, costs about as much as random transforms, tries crop and",
        "flip, and augments less where the training losses show that augmentation harms. Then compare on your own data, for",
        "the same time: `outspan compare --equal time`.",
        "",
        f"We compared policies in {len(cells)} cases: a data set, a model and a training time on one CPU core, with 3 seeds,",
        "equal time and the same `finish` for all. *Best plain* is the best of none, crop and flip, random, RandAugment,",
        "TrivialAugment, and the transforms of `auto` at a fixed strength, chosen for each case by validation accuracy.",
        "",
        f"- Against no augmentation, `auto` gains {mean_none:+.1f} points on average. It is significantly better in {above} of",
        f"  {len(cells)} cases and significantly worse in {below} (95 %).",
        f"- Against the best plain policy of each case, the mean difference is {mean_best:+.2f} points. `auto` leads by more",
        f"  than two standard errors in {leads} cases. It trails by more than two standard errors and 0.3 points in {trails}.",
        f"- `uncertain` (Algorithm 1) trails the best plain policy by {min(uncertain):.1f} to {max(uncertain):.1f} points:",
        "  its scoring costs time. At equal *epochs* it gains about 0.5 points on CIFAR-10 ([training](training.md)).",
        "",
        "| case | epochs | none | best plain | `auto` | `auto` - best plain, 95 % interval |",
        "|---|---:|---:|---:|---:|---:|",
        *map(_row, cells),
        "",
        "In runs of up to 5 epochs `auto` starts without augmentation. With all photos it does exactly what none does, in",
        "1 % fewer steps, so the differences there are noise.",
        "The cases were also used to design `auto`, and their models are small. With a WRN-28-2, all of CIFAR-10 and 60",
        "epochs, hard samples gain 0.5 points on random transforms in the same time (5 seeds), and `auto` gains 0.4 (2 seeds).",
        "With 111 epochs they are level. With 5,000 images and 800 epochs, `auto` is 0.4 points above random transforms",
        "([research log](research.md)).",
        "",
        "| if you | use |",
        "|---|---|",
        "| do not know which transforms suit your data | `auto` |",
        '| have photos | `auto`; with `defaults = "flip"` or `"cifar-cutout"` (crop, flip, cutout) if you know that they fit |',
        "| have many wrong labels | `auto` with `skip = 0`: then hard samples do not come more often |",
        "| train for up to 5 epochs | `auto`: it starts without augmentation |",
        "| know that rotation or position decides the class | `auto` with the other `transforms`: it cannot see this harm |",
        "| reproduce the paper | `uncertain` |",
        "| want published settings | `randaugment`, `trivialaugment`, `autoaugment`, ... ([policies](policies.md)) |",
        "",
        "Accuracies are test accuracies in %, mean of 3 seeds. `benchmarks/which_policy.py` writes this page from",
        "`results/safety.json`, which `benchmarks/safety.py` measures.",
    ]
    return "\n".join(lines) + "\n"


def _row(cell: Cell) -> str:
    difference, low, high = cell.interval(cell.best)
    none, best, auto = (statistics.fmean(cell.tests[policy]) for policy in ("none", cell.best, "auto"))
    interval = f"{difference:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"| {cell.name} | {cell.epochs:.0f} | {none:.1f} | {cell.best} {best:.1f} | {auto:.1f} | {interval} |"


def read_cells() -> list[Cell]:
    """Return the cells of the result file."""
    return list(find_cells(json.loads(RESULT.read_text()), list(SETTINGS)))


if __name__ == "__main__":
    PAGE.write_text(page(read_cells()), encoding="utf-8")
