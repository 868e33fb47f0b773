"""Find the results in a folder: which kinds there are, and which of them a report shows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from outspan.comparison.result import FILE as COMPARISON_FILE
from outspan.comparison.result import Comparison, run_folder
from outspan.comparison.stored import load_comparison
from outspan.figures.markup import Markup
from outspan.reporting.comparisons import comparison_sections, recommended
from outspan.reporting.measurements import show_measurement
from outspan.reporting.run_sections import describe_accuracy, run_sections
from outspan.reporting.runs import Detail, find_comparison, is_run, read_run
from outspan.reporting.stored import Stored, show_file
from outspan.reporting.studies import show_compositions, show_core, show_mixup

MOST_RUNS = 6  # of a folder with several results


@dataclass(frozen=True)
class Options:
    """What a report reads besides the folder, and how much it shows."""

    data: str  # used instead of the data of the runs, unless it is ""
    detail: Detail


@dataclass(frozen=True)
class Part:
    """A result as a part of a page: its title, one sentence, and its sections."""

    title: str
    headline: str
    content: Markup


@dataclass(frozen=True)
class Kind:
    """A kind of result: its name, the command that writes it, how it is recognized, and how it is shown."""

    name: str
    command: str
    is_in: Callable[[Path], bool]
    show: Callable[[Path, Options], Part]


def _show_run(folder: Path, options: Options) -> Part:
    run, compared = read_run(folder, options.data), find_comparison(folder)
    budget = f", budget {compared[1]}" if compared is not None and compared[1] else ""
    of = "" if compared is None else f" of {name_of(compared[0])}{budget}"
    return Part(f"Run: {name_of(folder)}{of}", describe_accuracy(run), run_sections(run, options.detail))


def _show_comparison(folder: Path, options: Options) -> Part:
    comparison = load_comparison(folder)
    headline = " ".join(recommended(comparison) or comparison.verdicts[:1])
    if comparison.warnings:
        headline += " But the training times differ."
    return Part(f"Comparison: {name_of(folder)}", headline, comparison_sections(comparison, folder))


def _show_study(title: str, name: str, show: Callable[[Stored], tuple[str, Markup]]) -> Callable[[Path, Options], Part]:
    """Return the function that shows the JSON file of a study."""
    return lambda folder, options: Part(f"{title}: {name_of(folder)}", *show_file(folder / name, show))


def _show_measurement(folder: Path, options: Options) -> Part:
    shown = show_file(folder / "scores.json", lambda stored: show_measurement(stored, folder, options.data))
    return Part(f"Measurement: {name_of(folder)}", *shown)


def _show_core(folder: Path, options: Options) -> Part:
    return Part(f"Core set: {name_of(folder)}", *show_file(folder / "core.json", lambda stored: show_core(stored, folder)))


def _has(name: str) -> Callable[[Path], bool]:
    return lambda folder: (folder / name).is_file()


# A new kind of result is a function that shows it and a line here.
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "comparison": Kind("a comparison", "compare", _has(COMPARISON_FILE), _show_comparison),
        "measurement": Kind("a measurement", "measure", _has("scores.json"), _show_measurement),
        "compositions": Kind(
            "a study of pairs", "compose", _has("composition.json"), _show_study("Pairs", "composition.json", show_compositions)
        ),
        "blends": Kind(
            "a study of blended pairs",
            "compose --additive",
            _has("composition-additive.json"),
            _show_study("Blended pairs", "composition-additive.json", show_compositions),
        ),
        "core": Kind("a core set", "core", _has("core.json"), _show_core),
        "mixup": Kind("a study of mixup", "mixup", _has("mixup.json"), _show_study("Mixup", "mixup.json", show_mixup)),
        "run": Kind("a run", "train", is_run, _show_run),
    }
)


def name_of(folder: Path) -> str:
    """Return the name of a folder."""
    return folder.resolve().name or str(folder)


def find_results(folder: Path) -> list[tuple[Kind, Path]]:
    """Return the results in a folder and in the folders inside it, in the order of `KINDS`.

    Of the runs of a comparison, only the first one of the leading policy is returned. Other runs are limited to `MOST_RUNS`.
    """
    inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()]
    found = [(kind, path) for path in (folder, *inner) for kind in KINDS.values() if kind.is_in(path)]
    compared, first = set[Path](), []
    for kind, path in found:
        if kind is KINDS["comparison"]:
            own, leading = _runs_of(load_comparison(path), path)
            compared |= own
            first += [leading] if is_run(leading) else []
    run = KINDS["run"]
    runs = [path for kind, path in found if kind is run and path not in compared][:MOST_RUNS]
    others = [(kind, path) for kind, path in found if kind is not run]
    order = [*KINDS.values()]
    return sorted(others, key=lambda item: order.index(item[0])) + [(run, path) for path in [*first, *runs]]


def _runs_of(comparison: Comparison, folder: Path) -> tuple[set[Path], Path]:
    """Return the folders of the runs of a comparison, and that of the first run of the leading policy."""
    largest, leading = max(comparison.budgets), max(comparison.policies, key=lambda name: comparison.policies[name].mean)
    policies = comparison.budgets[largest]
    own = {folder / f"{name}-{seed}" for name, one in policies.items() for seed in range(len(one.values))}
    return own, run_folder(folder, largest, leading, 0)
