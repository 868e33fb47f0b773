"""The page of all results: tables of results/*.json, with the machine, the date and the commit of each."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = Any
LEFT_OUT = {
    "machine",
    "recipe",
    "settings",
    "rounds",
    "versions",
    "load",
    "seeds",
    "command",
    "commands",
    "notes",
    "date",
    "commit",
    "runs",
    "by_seed",
}
ABOUT = ("question", "what", "reported", "about", "source", "transforms")  # keys that describe a result
MOST_ROWS, MOST_COLUMNS, MOST_TABLES = 30, 8, 8


def benchmarks_page(results: Path) -> str:
    """Return the page, with a section per result file."""
    parts = [
        "# All results",
        "The tables on this page are written from the files in `results/` when the site is built; no number is typed. Lists of "
        "single runs are only in the files. For conclusions "
        "read [Speed](speed.md), [Which policy should I use?](which-policy.md), "
        "[Training](training.md) and the [research log](research.md).",
    ]
    for file in sorted(results.glob("*.json")):
        parts += _section(file.stem, json.loads(file.read_text(encoding="utf-8")))
    return "\n\n".join(parts) + "\n"


def _section(name: str, result: Mapping[str, Json]) -> Iterator[str]:
    yield f"## {name}"
    about = next((result[key] for key in ABOUT if isinstance(result.get(key), str)), None)
    if about:
        yield re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", _cell(about))
    yield f"{_where(result)}`results/{name}.json`"
    if isinstance(result.get("command"), str):
        yield f"```text\n{result['command']}\n```"
    kept = {key: value for key, value in result.items() if key not in LEFT_OUT and value is not about}
    tables = list(_tables(kept, ()))
    places = [i for i, one in enumerate(tables) if one.startswith("|")]
    if not places:
        lists = [f"`{key}` ({len(value):,})" for key, value in kept.items() if isinstance(value, list | dict)]
        yield f"Its lists are only in the file: {', '.join(lists)}."
    yield from tables[: places[MOST_TABLES - 1] + 1] if len(places) > MOST_TABLES else tables
    if len(places) > MOST_TABLES:
        yield f"More tables are in the file ({len(places) - MOST_TABLES})."


def _where(result: Mapping[str, Json]) -> str:
    machine = result.get("machine")
    machine = machine if isinstance(machine, dict) else {}
    parts = [machine.get("gpu") or machine.get("cpu"), machine.get("date") or result.get("date")]
    commit = str(machine.get("commit") or result.get("commit") or "")
    parts.append(f"commit {commit[:7]}" if len(commit) >= 7 and commit.isalnum() else None)
    return "".join(f"{part}; " for part in parts if part)


def _tables(values: Mapping[str, Json], path: tuple[str, ...]) -> Iterator[str]:
    """Yield a table of the scalars, then a table per group: one of a row per entry, if the entries are alike."""
    values = {key: _by_name(value) for key, value in values.items()}
    scalars = {key: value for key, value in values.items() if _is_scalar(value)}
    groups = {key: value for key, value in values.items() if isinstance(value, dict) and value and key not in LEFT_OUT}
    if any(isinstance(value, int | float) for value in scalars.values()):
        yield from _title(path)
        cells = _column(list(scalars.values()))
        yield _table(["", "value"], [[key, cell] for key, cell in zip(scalars, cells, strict=True)])
    if groups and len(groups) > 1 and all(any(map(_is_scalar, group.values())) for group in groups.values()):
        columns = list(dict.fromkeys(key for group in groups.values() for key, value in group.items() if _is_scalar(value)))
        if len(columns) <= MOST_COLUMNS:
            if not scalars:
                yield from _title(path)
            cells = zip(*(_column([group.get(column) for group in groups.values()]) for column in columns), strict=True)
            yield _table(["", *columns], [[key, *row] for key, row in zip(groups, cells, strict=True)])
            groups = {key: {k: v for k, v in group.items() if not _is_scalar(v)} for key, group in groups.items()}
    for key, group in groups.items():
        if len(path) < 3:
            yield from _tables(group, (*path, key))


def _by_name(value: Json) -> Json:
    """Return a short list of results by what they were measured with, such as "side 32, cores 1"; all others as they are."""
    if not isinstance(value, list) or not 0 < len(value) <= MOST_COLUMNS or not all(isinstance(one, dict) for one in value):
        return value
    named = {}
    for one in value:
        settings = [key for key in one if isinstance(one[key], int | str) and not isinstance(one[key], bool)][:3]
        rest = {key: part for key, part in one.items() if key not in settings}
        named[", ".join(f"{key} {one[key]}" for key in settings)] = rest
    return named if len(named) == len(value) else value


def _title(path: tuple[str, ...]) -> Iterator[str]:
    if path:
        yield f"**{_cell(', '.join(path).replace('_', ' '))}**"


def _table(header: list[str], rows: list[list[str]]) -> str:
    more = [[f"… {len(rows) - MOST_ROWS} more rows in the file", *[""] * (len(header) - 1)]] if len(rows) > MOST_ROWS else []
    lines = [[name.replace("_", " ") for name in header], ["---", *["---:"] * (len(header) - 1)]]
    lines += [[_cell(row[0]), *row[1:]] for row in rows[:MOST_ROWS]] + more
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _is_scalar(value: Json) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= 80)


def _column(values: list[Json]) -> list[str]:
    """Return the cells of a column. Fractions, such as accuracies, have four decimals, so that they are aligned."""
    numbers = [value for value in values if isinstance(value, float)]
    are_fractions = all(value == 0 or 1e-3 <= abs(value) <= 1 for value in numbers)
    return [f"{value:.4f}" if are_fractions and isinstance(value, float) else _cell(value) for value in values]


def _cell(value: Json) -> str:
    """Return a value as the text of a cell: four significant digits, and nothing that Markdown reads as a mark."""
    if not isinstance(value, str | int | float):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return "".join("\\" + letter if letter in "|*_`<[" else letter for letter in " ".join(value.split()))
