"""Checkpoints with a valid digest and invalid content, and what the commands do with them."""

import contextlib
import copy
import io
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from PIL import Image
from torch import Tensor

from outspan.cli import train as train_cli
from outspan.cli import trained
from outspan.config import Recipe
from outspan.training import Stopped, checkpoint
from outspan.training.compositions import FILE
from outspan.training.train import train

WRONG: tuple[Any, ...] = (None, "text", [], ["text"], {}, {"text": 1}, True, 3, -5, 2.5, float("nan"), 10**30)
NOT_METADATA = ("", "{}", "[]", "null", "3", '"text"', "{", "[" * 5000, '{"step": 1}', "NaN")


def make_run(folder: Path, **changes: Any) -> tuple[Recipe, dict[str, Tensor], dict[str, Any]]:
    """Train a tiny run into `folder`/run up to the middle of its second epoch; return its recipe and its checkpoint."""
    labels = np.arange(12) % 2
    images = np.full((12, 4, 4), 20, dtype=np.uint8)
    images[labels == 1] = 220
    np.savez(folder / "tiny.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    Image.new("L", (5, 5), 220).save(folder / "light.png")
    recipe = Recipe(
        data=str(folder / "tiny.npz"),
        model="mlp-2",
        epochs=2,
        batch=4,
        **{"policy": "uncertain", "transforms": "geometric"} | changes,
    )
    with contextlib.suppress(Stopped):
        train(recipe, out=folder / "run", on_step=lambda state: state.step == 4)
    tensors, metadata = checkpoint.load(folder / "run")
    return recipe, tensors, metadata


def write(path: Path, tensors: dict[str, Tensor], text: str) -> None:
    """Write a checkpoint with a valid digest and any content."""
    header = {"meta": text, "digest": checkpoint._digest(tensors, text)}
    path.write_bytes(safetensors.torch.save(tensors, header))


def crafted_metadata(metadata: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of metadata: not an object, and every key missing or with every wrong value."""
    for text in NOT_METADATA:
        yield f"metadata {text[:20]!r}", text
    for path in _paths(metadata):
        name = ".".join(map(str, path))
        yield f"{name} missing", json.dumps(_changed(metadata, path, missing=True))
        for value in WRONG:
            yield f"{name} = {value!r}", json.dumps(_changed(metadata, path, value))


def crafted_tensors(tensors: dict[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield names and tensors: each one missing, renamed, of another dtype or shape, and no tensors."""
    for name, tensor in tensors.items():
        rest = {key: value for key, value in tensors.items() if key != name}
        yield f"{name} missing", rest
        yield f"{name} renamed", rest | {f"{name}.other": tensor}
        for change, other in (
            ("int32", tensor.int()),
            ("float64", tensor.double()),
            ("empty", torch.zeros(0)),
            ("larger", torch.zeros(3, *tensor.shape)),
        ):
            yield f"{name} {change}", rest | {name: other}
    for prefix in sorted({name.partition(".")[0] for name in tensors}):
        yield f"no {prefix}", {name: tensor for name, tensor in tensors.items() if not name.startswith(f"{prefix}.")}
    yield "no tensors", {}


def crafted_compositions(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and texts of compositions.jsonl: every key missing or with every wrong value."""
    yield from ((f"line {line[:20]!r}", f"{line}\n") for line in NOT_METADATA)
    line = json.loads(text.splitlines()[0])
    line["compositions"] = dict(list(line["compositions"].items())[:2])
    for path in _paths(line):
        changed = {repr(value): _changed(line, path, value) for value in WRONG}
        for value, other in {**changed, "missing": _changed(line, path, missing=True)}.items():
            yield f"{'.'.join(map(str, path))} {value}", json.dumps(other) + "\n"


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _paths(inner, (*path, key))


def _changed(value: Any, path: tuple[Any, ...], to: Any = None, *, missing: bool = False) -> Any:
    root = inner = copy.deepcopy(value)
    for key in path[:-1]:
        inner = inner[key]
    if missing:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return root


def outcome_of(command: Callable[[], object]) -> str:
    """Run a command in this process; return "done", "refused" (a ValueError: one line and exit code 2), or the error."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            command()
    except ValueError as error:
        return "refused" if str(error) else repr(error)
    except Exception as error:
        return repr(error)
    return "done"


def count_tracebacks(folder: Path, *, every: int = 1, **changes: Any) -> dict[str, Any]:
    """Run the commands that read a checkpoint on every crafted one, or every n-th; return the counts of the outcomes.

    `cases`, `refused`, `done` and `tracebacks` are counts; `first` names the first ten tracebacks. `changes` are keys of the
    recipe. For a release: `count_tracebacks(Path(empty_folder))`, which takes minutes.
    """
    recipe, tensors, metadata = make_run(folder, **changes)
    out, text = folder / "run", json.dumps(metadata)
    drawn = (out / FILE).read_text() if (out / FILE).exists() else ""
    settings = [f"{key}={getattr(recipe, key)}" for key in ("data", "model", "epochs", "batch", "transforms", *changes)]
    commands: dict[str, Callable[[], object]] = {
        "train": lambda: train_cli.train_command(out, changes=settings, scale=1.0),
        "evaluate": lambda: trained.evaluate(out),
        "predict": lambda: trained.predict_command(out, [folder / "light.png"]),
        "compositions": lambda: trained.compositions(out, folder / "chosen.png", as_json=True),
    }
    file = max(out.glob("step-*.safetensors")).name
    outcomes: Counter[str] = Counter()
    failed: list[str] = []

    def run_commands(names: tuple[str, ...], case: str, content: dict[str, Tensor], metadata_text: str, chosen: str) -> None:
        for name in names:
            for old in out.iterdir():
                old.unlink()
            write(out / file, content, metadata_text)
            if chosen:
                (out / FILE).write_text(chosen)
            outcome = outcome_of(commands[name])
            outcomes[outcome if outcome in ("done", "refused") else "tracebacks"] += 1
            if outcome not in ("done", "refused"):
                failed.append(f"{name}, {case}: {outcome}")

    readers = ("train", "evaluate", "predict")
    for case, metadata_text in islice(crafted_metadata(metadata), 0, None, every):
        run_commands(readers, case, tensors, metadata_text, drawn)
    for case, content in islice(crafted_tensors(tensors), 0, None, every):
        run_commands(readers, case, content, text, drawn)
    for case, chosen in islice(crafted_compositions(drawn), 0, None, every) if drawn else ():
        run_commands(("compositions", "train"), case, tensors, text, chosen)
    counts = {name: outcomes[name] for name in ("refused", "done", "tracebacks")}
    return {"cases": sum(counts.values()), **counts, "first": failed[:10]}
