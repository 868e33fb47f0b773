"""Few branches in the code depend on the type of data, images or texts: they are counted and limited."""

import ast
from pathlib import Path

import outspan

ROOT = Path(outspan.__file__).parent
ALLOWED = 8
_CLASSES = {"InMemory", "Files", "Documents", "Encoded", "Passages", "PadTokens"}
_FLAGS = {"is_ragged", "is_croppable"}
_NOUNS = {"images", "texts"}
_AXES = {1, 2, 3}  # of a text [T] and of an image [C, H, W]; a batch of images has 4


def _names(node: ast.AST) -> set[str]:
    """Return the identifiers in an expression."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def _is_noun(node: ast.AST) -> bool:
    """Return whether an expression is a noun: `split.noun`, `noun`, or a call of `noun_of`."""
    called = node.func if isinstance(node, ast.Call) else node
    if isinstance(called, ast.NamedExpr):
        return _is_noun(called.value)
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name in ("noun", "noun_of", "noun_of_shape")


def _literals(node: ast.AST) -> set[object]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}


def _compares_data(node: ast.Compare) -> bool:
    """Return whether a comparison asks for the noun, or for the number of axes of a sample."""
    sides = [node.left, *node.comparators]
    if any(_literals(side) & _NOUNS for side in sides):
        return True
    if any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops) and any(map(_is_noun, sides)):
        return True
    lengths = [side for side in sides if isinstance(side, ast.Call) and _names(side.func) == {"len"}]
    return any("shape" in _names(side) for side in lengths) and any(_literals(side) & _AXES for side in sides)


def branches(source: str) -> list[int]:
    """Return the lines of a module that ask whether data is images or texts, in memory or in files."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        is_check = isinstance(node, ast.Call) and _names(node.func) == {"isinstance"} and _names(node.args[1]) & _CLASSES
        is_flag = isinstance(node, ast.Attribute) and node.attr in _FLAGS and isinstance(node.ctx, ast.Load)
        if is_check or is_flag or (isinstance(node, ast.Compare) and _compares_data(node)):
            lines.append(node.lineno)  # pyright: ignore[reportAttributeAccessIssue]
    return sorted(lines)


def test_few_branches_depend_on_the_type_of_data():
    places = [f"{path.relative_to(ROOT)}:{line}" for path in sorted(ROOT.rglob("*.py")) for line in branches(path.read_text())]
    assert len(places) <= ALLOWED, f"{len(places)} branches on the type of data: {', '.join(places)}"


def test_such_a_branch_is_seen():
    for line in (
        "if isinstance(split, Documents): pass",
        "isinstance(split, (int, Files))",
        "isinstance(split, text.Passages | int)",
        "if run.noun != data.noun: pass",
        "a if noun_of(name) == other else b",
        "if kind == 'texts': pass",
        "if kind in ('images', 'other'): pass",
        "graphs = fast and not split.is_ragged",
        "if data.train.is_croppable: pass",
        "len(run.shape) == 3",
        "if len(shape) > 1: pass",
    ):
        assert branches(f"\n{line}\n") == [2], line


def test_tables_and_messages_are_no_branches():
    for line in (
        "table = {'images': 1, 'texts': 2}[noun_of(name)]",
        "print(f'{len(split)} {split.noun}')",
        "if noun_of(data) not in policy.nouns: pass",
        "isinstance(value, str)",
        "if len(shape) != 4: pass",
        "class Files:\n    is_ragged = False",
    ):
        assert branches(line) == [], line
