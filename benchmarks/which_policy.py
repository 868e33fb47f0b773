"""Write docs/which-policy.md from results/safety.json, results/safety-unseen.json and results/strengths.json.

python benchmarks/which_policy.py
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from machine import ROOT
from safety import ALL_SETTINGS, RESULT, UNSEEN_RESULT, Cell, find_cells
from strengths_table import Variants, best_plain, gains, other_cells

PAGE = ROOT / "docs" / "which-policy.md"


def page(cells: Sequence[Cell]) -> str:
    """Return the page, from the cells of the safety table."""
    uncertain = [
        statistics.fmean(cell.tests[cell.best]) - max(map(statistics.fmean, of))
        for cell in cells
        if (of := [values for policy, values in cell.tests.items() if policy.startswith("uncertain")])
    ]
    trails = [f"{cell.name} ({cell.difference:+.1f})" for cell in cells if cell.trails]
    lines = [
        "# Which policy should I use?",
        "",
        "**Start with `auto`, the default.** It has no settings, costs about as much as random transforms, tries crop and",
        "flip, and augments less where the training losses show that augmentation harms. Then compare on your own data, for",
        "the same time: `outspan compare --equal time`.",
        "",
        f"**It can lose.** It clearly trails the best plain policy of the case in {len(trails)} of {len(cells)} cases:",
        f"{'; '.join(trails) or 'none'}.",
        "It is also not always better on [data that were not used to design it](#data-that-were-not-used-to-design-auto).",
        "",
        "| if you | use |",
        "|---|---|",
        "| do not know which transforms suit your data | `auto` |",
        '| have photos | `auto`; with `defaults = "flip"` or `"cifar-cutout"` (crop, flip, cutout) if you know that they fit |',
        "| have many wrong labels | `auto` with `skip = 0`: then hard samples do not come more often |",
        "| train for up to 3 epochs | `auto`: it starts without augmentation |",
        "| know that rotation or position decides the class | `auto` with the other `transforms`: it cannot see this harm |",
        "| reproduce the paper | `uncertain` |",
        "| want published settings | `randaugment`, `trivialaugment`, `autoaugment`, ... ([policies](policies.md)) |",
        "",
        f"We compared policies in {len(cells)} cases: a data set, a model and a training time on one CPU core, with 3 seeds,",
        "equal time and the same `finish` for all. *Best plain* is the best of none, crop and flip, random, RandAugment,",
        "TrivialAugment, and the transforms of `auto` at a fixed strength, chosen for each case by validation accuracy.",
        "",
        *_summary(cells),
        f"- `uncertain` (Algorithm 1) trails the best plain policy by {min(uncertain):.1f} to {max(uncertain):.1f} points:",
        "  its scoring costs time. At equal *epochs* it gains about 0.5 points on CIFAR-10 ([training](training.md)).",
        "",
        *_table(cells),
        "",
        "In runs of up to 2.8 epochs `auto` starts without augmentation. With all photos it does exactly what none does, in",
        "fewer steps, so the differences there are noise.",
        "The cases were also used to design `auto`, and their models are small. With a WRN-28-2, all of CIFAR-10 and 60",
        "epochs, hard samples gain 0.5 points on random transforms in the same time (5 seeds), and `auto` gains 0.4 (2 seeds).",
        "With 111 epochs they are level. With 5,000 images and 800 epochs, `auto` is 0.4 points above random transforms",
        "([research log](research.md)).",
        "",
        *_unseen(),
        "",
        "Accuracies are test accuracies in %, mean of 3 seeds. `benchmarks/which_policy.py` writes this page from",
        "`results/safety.json` and `results/safety-unseen.json`, which `benchmarks/safety.py` measures, and from",
        "`results/strengths.json`, which `benchmarks/strengths.py` measures.",
    ]
    return "\n".join(lines) + "\n"


def _unseen() -> list[str]:
    cells = other_cells()
    to_best = {key: statistics.fmean(gains(cell, "auto", best_plain(cell))) for key, cell in cells.items()}
    to_none = {key: statistics.fmean(gains(cell, "auto", "none")) for key, cell in cells.items()}
    mean_best, mean_none = statistics.fmean(to_best.values()), statistics.fmean(to_none.values())
    error = statistics.stdev(to_best.values()) / len(cells) ** 0.5
    rows = [
        f"| {name} | {_mean(cell, 'auto'):.1f} | {_mean(cell, 'none'):.1f} "
        f"| {best_plain(cell)} {_mean(cell, best_plain(cell)):.1f} | {to_best[name, epochs]:+.1f} | {epochs} |"
        for (name, epochs), cell in cells.items()
    ]
    return [
        "## Data that were not used to design `auto`",
        "",
        f"Most cases above were also used to design `auto`. So we measured {len(cells)} cases with other data once: icons,",
        "spectrograms, textures, numbers of dots, and digits of 8 pixels, with a convnet or an MLP and 6 to 200 epochs. They",
        "have equal *steps*, not equal time, and 2 seeds. `auto` was not changed afterwards.",
        "",
        f"- Against no augmentation, `auto` gains {mean_none:+.1f} points on average. It is more than a point worse in",
        f"  {sum(value < -1 for value in to_none.values())} cases (worst: {min(to_none.values()):+.1f}).",
        f"- Against the best plain policy of each case, the mean difference is {mean_best:+.2f} ± {error:.2f} (standard error",
        f"  over cases). It is more than a point worse in {sum(value < -1 for value in to_best.values())} cases.",
        "",
        "| case | `auto` | none | best plain | `auto` - best plain | epochs |",
        "|---|---:|---:|---:|---:|---:|",
        *rows,
    ]


def _mean(cell: Variants, variant: str) -> float:
    return 100 * statistics.fmean(row["test"] for row in cell[variant].values())


def _summary(cells: Sequence[Cell]) -> list[str]:
    against_none = [cell.interval("none") for cell in cells]
    above = sum(low > 0 for _, low, _ in against_none)
    below = sum(high < 0 for _, _, high in against_none)
    mean_none = statistics.fmean(difference for difference, _, _ in against_none)
    mean_best = statistics.fmean(cell.difference for cell in cells)
    leads = sum(cell.difference > 2 * cell.error for cell in cells)
    trails = sum(cell.trails for cell in cells)
    return [
        f"- Against no augmentation, `auto` gains {mean_none:+.1f} points on average. It is significantly better in {above} of",
        f"  {len(cells)} cases and significantly worse in {below} (95 %).",
        f"- Against the best plain policy of each case, the mean difference is {mean_best:+.2f} points. `auto` leads by more",
        f"  than two standard errors in {leads} cases. It trails by more than two standard errors and 0.3 points in {trails}.",
    ]


def _table(cells: Sequence[Cell]) -> list[str]:
    head = "| case | `auto` | none | best plain | `auto` - best plain, 95 % interval | epochs |"
    return [head, "|---|---:|---:|---:|---:|---:|", *map(_row, cells)]


def _row(cell: Cell) -> str:
    difference, low, high = cell.interval(cell.best)
    none, best, auto = (statistics.fmean(cell.tests[policy]) for policy in ("none", cell.best, "auto"))
    interval = f"{difference:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"| {cell.name} | {auto:.1f} | {none:.1f} | {cell.best} {best:.1f} | {interval} | {cell.epochs:.0f} |"


def read_cells(path: Path) -> list[Cell]:
    """Return the cells of a result file."""
    return list(find_cells(json.loads(path.read_text()), list(ALL_SETTINGS)))


def read_page() -> str:
    """Return the page, from the result files."""
    return page([*read_cells(RESULT), *read_cells(UNSEEN_RESULT)])


if __name__ == "__main__":
    PAGE.write_text(read_page(), encoding="utf-8")
