"""Policies that others searched for and published as files: Fast AutoAugment's list of pairs, and PBA's schedules.

Both are lists as Python writes them (the first is JSON, too); they are parsed, never run.
"""

import ast
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from outspan.files import check_regular
from outspan.messages import shown, unknown
from outspan.policies.proposals import one_pair
from outspan.policies.sampler import propose
from outspan.policies.steps import Proposal, Schedule, Step

_MOST_BYTES = 1 << 20
_MOST_ELEMENTS = 100_000  # of all lists that a function makes; the published files have a few hundred pairs
_EITHER_WAY = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")  # the others have one direction


def _no_level(_: float) -> float:
    return 0.0


def _factor(share: float) -> float:
    return 2 * share - 1  # from 0.1 to 1.9, the identity halfway


def _from_middle(share: float) -> float:
    return abs(2 * share - 1)  # the published range runs from minus to plus


# arXiv:1905.00397's code: what each is called here, and the level of a share of its range.
FAST_AUTOAUGMENT: Mapping[str, tuple[str, Callable[[float], float]]] = MappingProxyType(
    {
        "ShearX": ("shear_x", _from_middle),  # up to 0.3
        "ShearY": ("shear_y", _from_middle),
        "TranslateX": ("translate_x", lambda share: _from_middle(share) * 0.45 / (10 / 32)),  # up to 0.45 of the side
        "TranslateY": ("translate_y", lambda share: _from_middle(share) * 0.45 / (10 / 32)),
        "Rotate": ("rotate", _from_middle),  # up to 30 degrees
        "AutoContrast": ("auto_contrast", _no_level),
        "Invert": ("invert", _no_level),
        "Equalize": ("equalize", _no_level),
        "Solarize": ("solarize", lambda share: 1 - share),  # thresholds from 0 to 256
        "Posterize": ("posterize", lambda share: (4 - int(4 * share)) / 4),  # from 4 to 8 bits, cut off
        "Contrast": ("contrast", _factor),
        "Color": ("color", _factor),
        "Brightness": ("brightness", _factor),
        "Sharpness": ("sharpness", _factor),
        "Cutout": ("cutout", lambda share: 0.4 * share),  # up to a fifth of the side
    }
)

# arXiv:1905.05393's code: the order that its numbers stand in, and the level of a magnitude of 10 on images of 32 pixels.
PBA: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {
        "auto_contrast": _no_level,
        "equalize": _no_level,
        "invert": _no_level,
        "rotate": lambda magnitude: magnitude / 10,
        "posterize": lambda magnitude: (4 + int(0.4 * magnitude)) / 4,  # from 4 bits to none
        "solarize": lambda magnitude: int(25.6 * magnitude) / 256,
        "color": lambda magnitude: _factor(magnitude / 10),
        "contrast": lambda magnitude: _factor(magnitude / 10),
        "brightness": lambda magnitude: _factor(magnitude / 10),
        "sharpness": lambda magnitude: _factor(magnitude / 10),
        "shear_x": lambda magnitude: magnitude / 10,
        "shear_y": lambda magnitude: magnitude / 10,
        "translate_x": lambda magnitude: magnitude / 10,  # up to 10 pixels
        "translate_y": lambda magnitude: magnitude / 10,
        "cutout": lambda magnitude: min(magnitude / 8, 1.0),  # 2 pixels a magnitude; more than 16 stay 16
    }
)
_COUNTS = (0.2, 0.5)  # none for a fifth of the images, one for three tenths, two for half
_NUMBERS = 4 * len(PBA)  # every transform twice, each time a probability and a magnitude


def file_and_function(file: str) -> tuple[str, str]:
    """Return the two parts of `FILE#FUNCTION`, the second "" where there is none: a # may be the path's own."""
    path, mark, name = file.rpartition("#")
    return (path, name) if mark and name.isidentifier() and not os.path.isfile(file) else (file, "")


def fast_autoaugment(file: str) -> Proposal:
    """Read pairs of [name, probability, level], one pair an image; `FILE#FUNCTION` reads a list in published code."""
    path, name = file_and_function(file)
    try:
        listed = _find(Path(path), name)
        options = [step for pair in _items(path, listed, "a list of pairs") for step in _read_pair(path, pair)]
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply: not a policy file") from None
    if not options:
        _refuse(path, listed, "the list is empty")
    return one_pair(options)


def pba(file: str, *, searched: int, epochs: int, epoch_steps: int) -> Schedule:
    """Read a schedule found in a search of so many epochs, stretched over a run of `epochs` of `epoch_steps` each."""
    written = [(at, text) for at, text in enumerate(_text(Path(file)).splitlines(), 1) if text.strip()]
    lines = _follow(file, [_read_change(file, at, text) for at, text in written])
    starts = [0, *(line["epoch"] for line in lines)]
    for line, before in zip(lines, starts, strict=False):
        if not before <= line["epoch"] <= searched:
            span = f"[{before}, {searched}], after the line before and within the search"
            raise ValueError(
                f"{file}, line {line['at']}: the epoch must lie in {span} (policy_epochs), got {shown(line['epoch'])}"
            )
    policies = [lines[0]["before"], *(line["after"] for line in lines)]
    ends = [-(-line["epoch"] * epochs // searched) * epoch_steps for line in lines]
    return Schedule(tuple(_population(numbers) for numbers in policies), tuple(ends))


def _population(numbers: list[int]) -> Proposal:
    """Return the proposal of one policy: in random order, each with its probability, until 0, 1 or 2 are applied."""
    names = [*PBA, *PBA]
    levels = [PBA[name](numbers[2 * i + 1]) for i, name in enumerate(names)]
    steps = [Step(name, level, level, mirrored=name in _EITHER_WAY) for name, level in zip(names, levels, strict=True)]
    chance = np.array(numbers[::2]) / 10
    nothing = len(steps)

    def pick(bits: np.ndarray, generators: Sequence[np.random.Generator]) -> np.ndarray:
        rows = len(bits) // len(generators)
        return np.concatenate([draw(rows, rng) for rng in generators])

    def draw(rows: int, rng: np.random.Generator) -> np.ndarray:
        fires = rng.random((rows, len(chance))) < chance
        order = np.where(fires, rng.random(fires.shape), 2.0)
        first = order.argsort(axis=1)[:, :2]
        wanted = (rng.random((rows, 1)) >= _COUNTS).sum(axis=1, keepdims=True)
        applied = np.take_along_axis(fires, first, axis=1) & (np.arange(2) < wanted)
        return np.where(applied, first, nothing)

    return propose([*steps, Step("identity")], 2, pick)


def _read_pair(path: str, pair: ast.expr) -> list[Step]:
    steps = _items(path, pair, "a pair of operations")
    if len(steps) != 2:
        _refuse(path, pair, f"a pair has 2 operations, got {len(steps)}")
    return [_read_step(path, step) for step in steps]


def _read_step(path: str, step: ast.expr) -> Step:
    parts = _items(path, step, "[name, probability, level]")
    if len(parts) != 3:
        _refuse(path, step, f"an operation is [name, probability, level], got {len(parts)} parts")
    name, probability, share = (_value(path, part) for part in parts)
    if not isinstance(name, str):
        _refuse(path, step, f"an operation begins with its name, got {shown(name)}")
    if name not in FAST_AUTOAUGMENT:
        _refuse(path, step, str(unknown("operation", name, FAST_AUTOAUGMENT)))
    for what, number in (("probability", probability), ("level", share)):
        if type(number) not in (int, float) or not 0 <= number <= 1:
            _refuse(path, step, f"the {what} of {name} must be a number in [0, 1], got {shown(number)}")
    ours, level_of = FAST_AUTOAUGMENT[name]
    level = level_of(share)
    return Step(ours, level, level, probability, mirrored=ours in _EITHER_WAY)


def _read_change(path: str, at: int, text: str) -> dict[str, Any]:
    """Read a line of a search's log: who was overwritten by whom, the epochs of both, the policy before and after."""
    where = f"{path}, line {at}"
    try:
        line = ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"{where}: not a list as Python writes it, got {text[:40]!r}") from None
    if not isinstance(line, list) or len(line) != 6:
        said = f"{len(line)} parts" if isinstance(line, list) else repr(line)[:40]
        raise ValueError(f"{where}: a line is [trial, clone, epoch, clone's epoch, policy before, policy after], got {said}")
    trial, clone, _, epoch, *policies = line
    if type(epoch) is not int:
        raise ValueError(f"{where}: the clone's epoch must be a whole number, got {shown(epoch)}")
    before, after = (policy.get("hp_policy", policy) if isinstance(policy, dict) else policy for policy in policies)
    for numbers in (before, after):
        if not isinstance(numbers, list) or len(numbers) != _NUMBERS:
            said = f"{len(numbers)} numbers" if isinstance(numbers, list) else repr(numbers)[:40]
            raise ValueError(f"{where}: a policy is {_NUMBERS} whole numbers, got {said}")
        for number in numbers:
            if type(number) is not int or not 0 <= number <= 10:
                raise ValueError(f"{where}: probabilities and magnitudes are whole numbers from 0 to 10, got {shown(number)}")
    return {"at": at, "trial": trial, "clone": clone, "epoch": epoch, "before": before, "after": after}


def _follow(path: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines that lead to the end: each clones the trial of the line before; logs may begin with others."""
    if not lines:
        raise ValueError(f"{path}: no lines")
    first = max((i + 1 for i in range(len(lines) - 1) if lines[i]["trial"] != lines[i + 1]["clone"]), default=0)
    return lines[first:]


def _find(path: Path, name: str) -> ast.expr:
    """Return the list in a file: all there is, or what the named function returns."""
    text = _text(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the file's own style
            body = ast.parse(text).body
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: not a list as Python or JSON writes it ({error.msg})") from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"{path}: not a list as Python or JSON writes it ({error or type(error).__name__})") from None
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
        raise ValueError(f"{path}: has no functions, and so no {shown(name)}")
    if functions:
        raise ValueError(f"{path}: code, of which one function is read: FILE#NAME (there are: {', '.join(functions)})")
    _refuse(str(path), body[-1], "expected one list of pairs and nothing else")


def _returned(path: str, function: ast.FunctionDef) -> ast.List:
    """Return the list that a function of lists and their sums returns; one that does anything else is refused."""
    named: dict[str, ast.List] = {}
    total = 0  # each sum is a list of its own: a few lines that double one would fill the memory
    for node in (*function.decorator_list, *function.body):
        match node:
            case ast.Expr(value=ast.Constant()):  # its docstring
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                named[name] = _sum(path, value, named)
                total += len(named[name].elts)
                _check_length(path, node, total)
            case ast.Return(value=ast.expr() as value):
                return _sum(path, value, named)
            case _:
                reason = f"{function.name} may name lists and return one or their sum, got {ast.unparse(node)[:40]!r}"
                _refuse(path, node, reason)
    _refuse(path, function, f"{function.name} returns no list")


def _sum(path: str, node: ast.expr, named: Mapping[str, ast.List]) -> ast.List:
    """Return a list, a named one, or lists added up, as one list."""
    match node:
        case ast.List():
            return node
        case ast.Name(id=name) if name in named:
            return named[name]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = _sum(path, left, named), _sum(path, right, named)
            _check_length(path, node, len(parts[0].elts) + len(parts[1].elts))
            return ast.copy_location(ast.List([*parts[0].elts, *parts[1].elts], ast.Load()), node)
    _refuse(path, node, f"expected a list or a sum of named lists, got {ast.unparse(node)[:40]!r}")


def _check_length(path: str, node: ast.AST, count: int) -> None:
    if count > _MOST_ELEMENTS:
        _refuse(path, node, f"the lists have more than {_MOST_ELEMENTS:,} elements together: not a policy file")


def _text(path: Path) -> str:
    check_regular(path)
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"{path}: more than {_MOST_BYTES:,} bytes: not a policy file")
        return data.decode("utf-8-sig")  # some editors put a mark at the beginning
    except OSError as error:
        raise ValueError(f"{path!s:.300}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not text: not a policy file") from None


def _items(path: str, node: ast.expr, what: str) -> list[ast.expr]:
    if not isinstance(node, ast.List | ast.Tuple):
        _refuse(path, node, f"expected {what}, got {ast.unparse(node)[:40]!r}")
    return node.elts


def _value(path: str, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        _refuse(path, node, f"expected a name or a number, got {ast.unparse(node)[:40]!r}")


def _refuse(path: str, node: ast.AST, reason: str) -> NoReturn:
    raise ValueError(f"{path}, line {getattr(node, 'lineno', 1)}: {reason}")
