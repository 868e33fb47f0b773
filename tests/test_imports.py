"""Packages import only from their own row of the table in docs/architecture.md and from the rows above."""

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

import outspan

ROOT = Path(outspan.__file__).parent
ROWS = [
    {
        "shapes",
        "rng",
        "plan",
        "plan_parsing",
        "config",
        "recipe_keys",
        "limits",
        "files",
        "children",
        "sample_weights",
        "messages",
        "devices",
        "downloads",
        "lazy",
    },
    {"transforms", "text", "figures"},
    {"data", "models"},
    {"policies"},
    {"dropin", "training"},
    {"comparison", "measurement", "theory", "integrations"},
    {"lightning", "transformers"},
    {"reproduce", "reporting"},
    {"cli", "__main__"},
]


def row_of(part: str) -> int:
    rows = [i for i, names in enumerate(ROWS) if part in names]
    assert rows, f"{part} is in no row"
    return rows[0]


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


def forbidden(source: str, own: str) -> list[str]:
    """Return the packages that a module imports although they are in a row below its own."""
    return sorted(part for part in imported_parts(source) if row_of(part) > row_of(own))


def cycles(imports: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the sets of parts that import each other, directly or through others."""
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
def test_modules_import_only_from_rows_above(path):
    assert not forbidden((ROOT / path).read_text(), path.parts[0].removesuffix(".py"))


def test_the_table_of_the_architecture_has_these_rows():
    page = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.split("| packages | purpose |")[1].split("\n\n")[0]
    rows = [set(re.findall(r"`(\w+)`", line.split("|")[1])) for line in table.splitlines() if "`" in line]
    assert rows == [names - {"__main__"} for names in ROWS]


def test_a_forbidden_import_is_detected():
    assert forbidden("from outspan.policies.proposals import uniform", "transforms") == ["policies"]
    assert forbidden("from outspan import cli", "plan") == ["cli"]
    assert forbidden("def f():\n    import outspan.training.loop", "data") == ["training"]


def test_there_are_no_import_cycles():
    imports: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part != "__init__":
            imports.setdefault(part, set()).update(imported_parts(path.read_text()) - {part})
    assert cycles(imports) == set()


def test_modules_have_no_import_cycles():
    paths = {}
    for path in ROOT.rglob("*.py"):
        *parents, name = ("outspan", *path.relative_to(ROOT).with_suffix("").parts)
        paths[".".join(parents if name == "__init__" else [*parents, name])] = path
    imports = {module: imported_modules(path.read_text(), paths) - {module} for module, path in paths.items()}
    packages = {frozenset(module.split(".")[1] for module in cycle) for cycle in cycles(imports)}
    assert packages <= {frozenset({"transforms"})}  # a backend is imported when it is first used


def imported_modules(source: str, known: Collection[str]) -> set[str]:
    """Return the modules of the package that a module imports, also inside functions."""
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            imported.update(name if name in known else node.module for name in names)
    return imported & {*known}


def test_a_cycle_is_detected():
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


def test_every_public_name_can_be_imported():
    for name in outspan.__all__:
        assert getattr(outspan, name) is not None
    assert set(outspan.__all__) <= set(dir(outspan))
    assert outspan.load_data("digits").name == "digits"
    assert issubclass(outspan.Diverged, ValueError)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = outspan.nothing
