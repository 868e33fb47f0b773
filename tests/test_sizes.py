"""Sizes of the source: short files, short functions, and few results that are untyped dictionaries."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import outspan

ROOT = Path(outspan.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
FILE_LINES, FUNCTION_LINES, UNTYPED = 300, 40, 8

_DICTIONARY = r"\b(?:[dD]ict|(?:Mutable)?Mapping)\b"
_UNTYPED_DICTIONARY = rf"{_DICTIONARY}(?:\[\w+, (?:Any|object)\]|(?!\[))"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    yield from (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, Function))


def body_lines(function: Function) -> int:
    """Return the lines of a function's body. Decorators, signature and docstring are not counted."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def untyped(function: Function) -> int:
    """Return how many dictionaries in the signature of a function have values of any type, or no types at all."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    annotations = [argument.annotation for argument in every if argument is not None] + [function.returns]
    texts = [ast.unparse(annotation) for annotation in annotations if annotation is not None]
    return sum(len(re.findall(_UNTYPED_DICTIONARY, text)) for text in texts)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path):
    assert len(path.read_text().splitlines()) <= FILE_LINES
    long = {function.name: body_lines(function) for function in functions(path) if body_lines(function) > FUNCTION_LINES}
    assert not long, f"functions of more than {FUNCTION_LINES} lines: {long}"


def test_few_signatures_have_untyped_dictionaries():
    counts = {str(path.relative_to(ROOT)): sum(map(untyped, functions(path))) for path in SOURCES}
    assert sum(counts.values()) <= UNTYPED, {name: count for name, count in counts.items() if count}


def test_only_the_body_of_a_function_is_counted():
    [function] = ast.parse('@cache\ndef f(\n    a: int,\n) -> None:\n    """Doc."""\n    b = a\n\n    print(b)\n').body
    assert isinstance(function, ast.FunctionDef)
    assert body_lines(function) == 3
    [function] = ast.parse("def f(a: dict[str, Any], *b: int) -> list[dict[str, Any]]: ...").body
    assert isinstance(function, ast.FunctionDef)
    assert untyped(function) == 2


@pytest.mark.parametrize(
    ("annotation", "count"),
    [
        ("dict[str, Any]", 1),
        ("Mapping[str, Any]", 1),
        ("dict[str, object]", 1),
        ("Mapping[str, object] | None", 1),
        ("Iterator[tuple[str, dict]]", 1),
        ("Callable[[dict], Mapping]", 2),
        ("dict[str, Json]", 0),
        ("Mapping[str, Mapping[str, Any]]", 1),
        ("Mapping[str, Callable[..., Any]]", 0),
    ],
)
def test_untyped_dictionaries_are_counted(annotation, count):
    [function] = ast.parse(f"def f(a: {annotation}): ...").body
    assert isinstance(function, ast.FunctionDef)
    assert untyped(function) == count
