"""Names of the source: in one package, two module-level names never differ by case only."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import outspan

ROOT = Path(outspan.__file__).parent


def defined_names(source: str) -> Iterator[str]:
    """Yield the classes, functions and constants that a module defines."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))


def differ_by_case(names: Iterable[str]) -> list[set[str]]:
    """Return the sets of names that differ by case only."""
    groups = defaultdict(set)
    for name in names:
        groups[name.lower()].add(name)
    return [group for group in groups.values() if len(group) > 1]


def test_names_of_a_package_do_not_differ_by_case_only():
    names = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        names[path.parent.relative_to(ROOT)].update(defined_names(path.read_text(encoding="utf-8")))
    assert {str(package): groups for package, group in names.items() if (groups := differ_by_case(group))} == {}


def test_names_that_differ_by_case_only_are_detected():
    source = "SCALE: float = 1.0\nA, B = 1, 2\n\n\ndef scale():\n    c = 3\n\n\nclass Scale:\n    a = 1\n"
    assert sorted(defined_names(source)) == ["A", "B", "SCALE", "Scale", "scale"]
    assert differ_by_case(defined_names(source)) == [{"SCALE", "scale", "Scale"}]
    assert differ_by_case(["plans", "Plan", "_plan", "find"]) == []
