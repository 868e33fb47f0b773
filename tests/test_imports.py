"""Imports point one way, and the command line starts without torch."""

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import outspan

ROOT = Path(outspan.__file__).parent
FLOORS = [
    {"shapes", "rng", "plan", "plan_parsing", "config", "limits", "files", "children", "messages", "devices"},
    {"transforms", "text", "figures"},
    {"data", "models"},
    {"policies"},
    {"training"},
    {"comparison", "measurement", "theory"},
    {"reproduce", "integrations"},
    {"cli", "__main__"},
]


def floor(part: str) -> int:
    found = [i for i, names in enumerate(FLOORS) if part in names]
    assert found, f"{part} has no floor in the house"
    return found[0]


def imported_parts(source: str) -> set[str]:
    """Return the parts of the package that a module imports from."""
    imported = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "imports are absolute"
            assert not node.level, "imports are absolute"
            imported += [f"{node.module}.{alias.name}" if node.module == "outspan" else node.module for alias in node.names]
    return {name.split(".")[1] for name in imported if name.startswith("outspan.")}


def upward(source: str, own: str) -> list[str]:
    """Return what a module imports from a higher floor than its own."""
    return sorted(part for part in imported_parts(source) if floor(part) > floor(own))


def cycles(imports: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the sets of parts that import one another, directly or through others."""
    reached = {part: set(others) for part, others in imports.items()}
    for middle in reached:
        for others in reached.values():
            if middle in others:
                others |= reached[middle]
    return {
        frozenset({part, *(other for other in others if part in reached.get(other, ()))})
        for part, others in reached.items()
        if part in others
    }


@pytest.mark.parametrize("path", sorted(p.relative_to(ROOT) for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py"), ids=str)
def test_no_arrow_points_back(path):
    assert not upward((ROOT / path).read_text(), path.parts[0].removesuffix(".py"))


def test_an_arrow_that_points_back_is_seen():
    assert upward("from outspan.policies.proposals import uniform", "transforms") == ["policies"]
    assert upward("from outspan import cli", "plan") == ["cli"]
    assert upward("def f():\n    import outspan.training.loop", "data") == ["training"]


def test_no_packages_import_one_another():
    imports: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part != "__init__":
            imports.setdefault(part, set()).update(imported_parts(path.read_text()) - {part})
    assert cycles(imports) == set()


def test_a_cycle_is_seen():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {frozenset("abc")}
    assert cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == set()


def test_help_does_not_import_torch():
    code = """
import sys
sys.argv = ["outspan", "--help"]
from outspan.cli import main
try:
    main()
finally:
    print("torch" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.endswith("False\n")
    assert "gallery" in out


def test_every_public_name_is_there():
    for name in outspan.__all__:
        assert getattr(outspan, name) is not None
    assert set(outspan.__all__) <= set(dir(outspan))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = outspan.nothing
