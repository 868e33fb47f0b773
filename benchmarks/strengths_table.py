"""Print the tables of the research log about strengths, from results/strengths.json.

    python benchmarks/strengths_table.py

Differences are in test accuracy, in points, to the plain policy with the best mean validation accuracy of each case (a setting
and a number of epochs), over the seeds that both have.
"""

import json
import statistics
from collections import defaultdict

from machine import ROOT
from strengths import JUDGES

PLAIN = ("none", "baseline", "random", "randaugment", "trivialaugment", "natural")
Variants = dict[str, dict[int, dict]]  # rows by variant and seed
Cells = dict[tuple[str, int], Variants]  # by setting and epochs


def read() -> Cells:
    """Return the rows."""
    cells: Cells = defaultdict(lambda: defaultdict(dict))
    for row in json.loads((ROOT / "results" / "strengths.json").read_text())["rows"]:
        cells[row["setting"], row["epochs"]][row["variant"]][row["seed"]] = row
    return {key: cell for key, cell in cells.items() if all(name in cell for name in PLAIN)}


def other_cells() -> Cells:
    """Return the cells that were not used to design auto, in the order of the settings."""
    cells = read()
    return {key: cells[key] for name in JUDGES for key in sorted(cells) if key[0] == name}


def gains(cell: Variants, variant: str, other: str) -> list[float]:
    """Return the differences in test accuracy, by seed, in points."""
    seeds = sorted(cell[variant].keys() & cell[other].keys())
    return [100 * (cell[variant][seed]["test"] - cell[other][seed]["test"]) for seed in seeds]


def best_plain(cell: Variants) -> str:
    """Return the plain policy with the best mean validation accuracy."""
    return max(PLAIN, key=lambda name: statistics.fmean(row["validation"] for row in cell[name].values()))


def summarize(cells: Cells, variant: str) -> str:
    """Return a row of a table about a variant."""
    of = [cell for cell in cells.values() if variant in cell]
    means = [statistics.fmean(gains(cell, variant, best_plain(cell))) for cell in of]
    none = [statistics.fmean(gains(cell, variant, "none")) for cell in of]
    error = statistics.stdev(means) / len(means) ** 0.5
    counts = " | ".join(str(sum(mean < limit for mean in means)) for limit in (-1, -2))
    return (
        f"| {variant} | {len(of)} | {statistics.fmean(means):+.2f} ± {error:.2f} | {counts} | {statistics.fmean(none):+.2f} | "
        f"{min(none):+.2f} |"
    )


def main() -> None:
    """Print all tables."""
    cells = read()
    parts = {"design": {}, "other": {}}
    for key, cell in cells.items():
        parts["other" if key[0] in JUDGES else "design"][key] = cell
    for name, part in parts.items():
        variants = dict.fromkeys(variant for cell in part.values() for variant in cell)
        print(f"\n{name}\n| variant | cases | - best plain ± SE | below -1 | below -2 | - none | worst - none |")
        print(f"|---{6 * '|---:'}|")
        print(*(summarize(part, variant) for variant in variants if variant not in PLAIN), sep="\n")
    print("\n| setting | epochs | none | best plain | before | auto |\n|---|---:|---:|---:|---:|---:|")
    for (name, epochs), cell in other_cells().items():
        best = best_plain(cell)
        of = (f"{statistics.fmean(gains(cell, variant, best)):+.1f}" for variant in ("before", "auto"))
        none, plain = (100 * statistics.fmean(row["test"] for row in cell[policy].values()) for policy in ("none", best))
        print(f"| {name} | {epochs} | {none:.1f} | {best} {plain:.1f} | {' | '.join(of)} |")


if __name__ == "__main__":
    main()
