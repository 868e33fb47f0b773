"""Recipes: TOML, then changes as on a command line, each after a null byte."""

import json
from functools import lru_cache
from pathlib import Path

from torch import nn

from fuzz.contract import attempt, expect
from fuzz.mutate import NUMBERS, Draw, mutate, pick
from outspan import Normalize
from outspan.config import KEYS, Recipe, build_recipe, changed_keys, read_changes, scaled, write_recipe
from outspan.data.sets import Data, load_for
from outspan.policies.table import POLICIES, build_policy

WORDS = (
    "digits",
    "convnet",
    "adamw",
    "cosine",
    "paper16",
    "geometric",
    "rotate,cutout",
    "resized",
    "released",
    "max",
    "excess",
    "",
)


def make(draw: Draw) -> bytes:
    """Return a recipe, sometimes damaged, and a few changes."""
    lines = [_line(draw) for _ in range(int(draw.integers(0, 6)))]
    text = "\n".join(lines).encode()
    if draw.random() < 0.4:
        text = mutate(text, draw)
    changes = [f"{pick(draw, KEYS)}={_value(draw)}" for _ in range(int(draw.integers(0, 4)))]
    if draw.random() < 0.1:
        changes.append(mutate(b"depth=2", draw).decode(errors="surrogateescape"))
    return b"\0".join([text.replace(b"\0", b""), *(c.replace("\0", "").encode(errors="surrogateescape") for c in changes)])


def _value(draw: Draw) -> str:
    return pick(draw, (*NUMBERS, *WORDS, *POLICIES, str(draw.integers(0, 20)), str(round(draw.random(), 3))))


def _line(draw: Draw) -> str:
    value = _value(draw)
    return f"{pick(draw, KEYS)} = {value if draw.random() < 0.5 else json.dumps(value)}"


@lru_cache(maxsize=1)
def _digits() -> Data:
    return load_for(Recipe())


def check(data: bytes, folder: Path) -> None:
    """Read a recipe, write it and read it again; then build its policy."""
    text, *changes = data.split(b"\0")
    path, again = folder / "recipe.toml", folder / "again.toml"
    path.write_bytes(text)
    values = attempt(read_changes, [change.decode(errors="surrogateescape") for change in changes])
    recipe = None if values is None else attempt(build_recipe, path, values)
    if recipe is None:
        return
    again.write_bytes(write_recipe(recipe).encode(errors="surrogateescape"))
    read = attempt(build_recipe, again)
    if read is None:  # bytes in a path that are not UTF-8 are not valid TOML
        expect("\\ud" in json.dumps(recipe.data + recipe.policy_file + recipe.cache + recipe.weights), "not read again")
    else:
        expect(not changed_keys(recipe, read), f"a recipe read again differs: {changed_keys(recipe, read)}")
    attempt(scaled, recipe, 0.01)
    attempt(build_policy, recipe, nn.Identity(), _digits(), Normalize((0.5,), (0.5,)))
