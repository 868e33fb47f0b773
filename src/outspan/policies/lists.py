"""Parse lists in Python or JSON files, without executing them."""

import ast
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from outspan.files import check_regular
from outspan.messages import shown, unknown

_MAX_BYTES = 1 << 20
_MAX_ELEMENTS = 100_000  # in all lists that a function creates; the published files have a few hundred pairs


def find_list(path: Path, name: str) -> ast.expr:
    """Return the list in a file: the whole file, or the list that the named function returns."""
    text = read_text(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the style of the file
            body = ast.parse(text).body
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: not a Python or JSON list ({error.msg})") from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"{path}: not a Python or JSON list ({error or type(error).__name__})") from None
    if not body:
        raise ValueError(f"{path}: the file is empty")
    if not name and len(body) == 1 and isinstance(body[0], ast.Expr):
        return body[0].value
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    if name and functions:
        if name not in functions:
            raise ValueError(f"{path}: {unknown('function', name, functions)}")
        return _returned(str(path), functions[name])
    if name:
        raise ValueError(f"{path}: has no function {shown(name)}, only a list: leave out the #{name[:80]}")
    if functions:
        raise ValueError(f"{path}: is Python code: choose a function with FILE#NAME (known: {', '.join(functions)})")
    refuse(str(path), body[-1], "expected one list of pairs and nothing else")


def _returned(path: str, function: ast.FunctionDef) -> ast.List:
    """Return the list that a function returns. The function may only name lists, add them and return one."""
    lists: dict[str, ast.List] = {}
    total = 0  # elements of all lists: a few lines that double a list would fill the memory
    for node in (*function.decorator_list, *function.body):
        match node:
            case ast.Expr(value=ast.Constant()):  # its docstring
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                lists[name] = _sum(path, value, lists)
                total += len(lists[name].elts)
                _check_length(path, node, total)
            case ast.Return(value=ast.expr() as value):
                return _sum(path, value, lists)
            case _:
                reason = f"{function.name} may name lists and return one or their sum, got {ast.unparse(node)[:40]!r}"
                refuse(path, node, reason)
    refuse(path, function, f"{function.name} returns no list")


def _sum(path: str, node: ast.expr, lists: Mapping[str, ast.List]) -> ast.List:
    """Return the value of an expression: a list, a named list, or a sum of lists."""
    match node:
        case ast.List():
            return node
        case ast.Name(id=name) if name in lists:
            return lists[name]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = _sum(path, left, lists), _sum(path, right, lists)
            _check_length(path, node, len(parts[0].elts) + len(parts[1].elts))
            return ast.copy_location(ast.List([*parts[0].elts, *parts[1].elts], ast.Load()), node)
    refuse(path, node, f"expected a list or a sum of named lists, got {ast.unparse(node)[:40]!r}")


def _check_length(path: str, node: ast.AST, count: int) -> None:
    if count > _MAX_ELEMENTS:
        refuse(path, node, f"not a policy file: the lists have more than {_MAX_ELEMENTS:,} elements in total")


def read_text(path: Path) -> str:
    """Return the text of a small UTF-8 file; other files raise a ValueError."""
    check_regular(path)
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ValueError(f"{path}: not a policy file: more than {_MAX_BYTES:,} bytes")
        return data.decode("utf-8-sig")  # some editors write a byte order mark
    except OSError as error:
        raise ValueError(f"{path!s:.300}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a policy file: not UTF-8 text") from None


def items_of(path: str, node: ast.expr, expected: str) -> list[ast.expr]:
    """Return the elements of a list or tuple; anything else raises a ValueError with `expected`."""
    if not isinstance(node, ast.List | ast.Tuple):
        refuse(path, node, f"expected {expected}, got {ast.unparse(node)[:40]!r}")
    return node.elts


def value_of(path: str, node: ast.expr) -> Any:
    """Return the value of a literal; anything else raises a ValueError."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        refuse(path, node, f"expected a name or a number, got {ast.unparse(node)[:40]!r}")


def refuse(path: str, node: ast.AST, reason: str) -> NoReturn:
    """Raise a ValueError with the file and the line of a node."""
    raise ValueError(f"{path}, line {getattr(node, 'lineno', 1)}: {reason}")
