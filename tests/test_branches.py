"""Few branches in the code depend on the type of data, images or texts: they are counted and limited."""

import ast
from pathlib import Path

import outspan

ROOT = Path(outspan.__file__).parent
ALLOWED = 8
_CLASSES = {"InMemory", "Files", "Documents", "Encoded", "Passages", "PadTokens"}
_FLAGS = {"is_croppable"}  # attributes that differ between images and texts
_PATH_TESTS = {"is_text", "is_table", "has_images"}  # functions that return whether a path contains images or texts
_NOUNS = {"images", "texts"}
_AXES = {1, 2, 3}  # of a text [T] and of an image [C, H, W]; a batch of images has 4
_PER_CHANNEL = {"mean", "std"}  # these have 1 or 3 values, one per channel
_EDGES = ("data/", "text/", "models/", "shapes.py")  # where files are read, inputs are checked and defaults are chosen


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
    """Return whether a comparison tests the noun, or the number of axes of a sample."""
    sides = [node.left, *node.comparators]
    if any(_literals(side) & _NOUNS for side in sides):
        return True
    if any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops) and any(map(_is_noun, sides)):
        return True
    is_member = isinstance(node.ops[0], ast.In | ast.NotIn)
    if is_member and _is_noun(node.left) and isinstance(sides[1], ast.Name):  # a table that lacks a noun
        return True
    lengths = [side for side in sides if isinstance(side, ast.Call) and _names(side.func) == {"len"}]
    if is_member and {1, 3} <= _literals(sides[1]) and any(not _names(side) & _PER_CHANNEL for side in lengths):
        return True
    of_shapes = any("shape" in _names(side) for side in lengths)
    return of_shapes and (is_member or any(_literals(side) & _AXES for side in sides))


def _conditions(node: ast.AST) -> list[ast.expr]:
    """Return the expressions of a node whose truth is tested."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return [node.test]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    return node.ifs if isinstance(node, ast.comprehension) else []


def _tests_data(condition: ast.expr) -> bool:
    """Return whether a condition is the shape itself, which is empty for texts, or the result of a path test."""
    if isinstance(condition, ast.Call):
        called = condition.func.attr if isinstance(condition.func, ast.Attribute) else getattr(condition.func, "id", "")
        return called.lstrip("_").replace("holds", "is") in _PATH_TESTS
    return (
        isinstance(condition, ast.Attribute | ast.Name) and getattr(condition, "attr", getattr(condition, "id", "")) == "shape"
    )


def branches(source: str) -> list[int]:
    """Return the lines of a module that test whether data is images or texts, in memory or in files."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        is_check = isinstance(node, ast.Call) and _names(node.func) == {"isinstance"} and _names(node.args[1]) & _CLASSES
        is_flag = isinstance(node, ast.Attribute) and node.attr in _FLAGS and isinstance(node.ctx, ast.Load)
        if is_check or is_flag or (isinstance(node, ast.Compare) and _compares_data(node)):
            lines.append(node.lineno)  # pyright: ignore[reportAttributeAccessIssue]
        lines += [condition.lineno for condition in _conditions(node) if _tests_data(condition)]
    return sorted(set(lines))


def test_few_branches_depend_on_the_type_of_data():
    files = sorted(ROOT.rglob("*.py"))
    places = [f"{path.relative_to(ROOT).as_posix()}:{line}" for path in files for line in branches(path.read_text())]
    assert len(places) <= ALLOWED, f"{len(places)} branches on the type of data: {', '.join(places)}"
    inside = [place for place in places if not place.startswith(_EDGES)]
    assert not inside, f"branches on the type of data that neither read files nor choose defaults: {', '.join(inside)}"


def test_branches_on_the_type_of_data_are_detected():
    for line in (
        "if isinstance(split, Documents): pass",
        "isinstance(split, (int, Files))",
        "isinstance(split, text.Passages | int)",
        "if run.noun != data.noun: pass",
        "a if noun_of(name) == other else b",
        "if name == 'texts': pass",
        "if name in ('images', 'other'): pass",
        "if data.train.is_croppable: pass",
        "len(run.shape) == 3",
        "if len(shape) > 1: pass",
        "if len(shape) not in _SAMPLE_TYPES: pass",
        "fits = is_list(value) and len(value) in (1, 3)",
        "if self.train.shape and other: pass",
        "a = b if split.shape else c",
        "if not shape: pass",
        "if noun in _MODELS and new: pass",
        "if _holds_text(path): pass",
        "a = 'texts' if name and _holds_text(Path(name)) else 'images'",
        "if tables.is_table(path): pass",
        "x = not folders.has_images(path)",
    ):
        assert branches(f"\n{line}\n") == [2], line


def test_tables_and_messages_are_not_counted_as_branches():
    for line in (
        "table = {'images': 1, 'texts': 2}[noun_of(name)]",
        "print(f'{len(split)} {split.noun}')",
        "if noun_of(data) not in policy.nouns: pass",
        "isinstance(value, str)",
        "if len(shape) != 4: pass",
        "class Files:\n    is_croppable = False",
        "PathFormat(tables.is_text, read_texts)",
        "if len(names) not in (0, 1): pass",
        "if len(self.mean) not in (1, 3): pass",
        "if split.shape != self.train.shape: pass",
    ):
        assert branches(line) == [], line
