"""A trained model and what it says: out of a run's folder, on any split."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from outspan.config import Recipe, with_values
from outspan.data.readers import is_undivided, list_tested
from outspan.data.sets import AnySplit, Data, as_read, load_for
from outspan.data.splits import Files
from outspan.text.apply import Framed
from outspan.text.documents import Documents
from outspan.text.tokens import Encoded
from outspan.train import checkpoint
from outspan.train.state import new_state
from outspan.transforms.normalize import Normalize


def last_step(mean: Sequence[float], std: Sequence[float], *, on_gpu: bool = False) -> Normalize | Framed:
    """Return the last step before the model: images are normalised, texts, which have no mean, framed."""
    if not mean:
        return Framed()
    return Normalize(tuple(mean), tuple(std), torch.bfloat16 if on_gpu else torch.float32, channels_last=on_gpu)


def predict(
    model: nn.Module,
    split: AnySplit,
    last: Normalize | Framed,
    device: torch.device | str,
    on_batch: Callable[[int], object] = lambda done: None,
) -> Tensor:
    """Return the logits of a split, [N, classes], without augmentation; `on_batch` is told how many are done."""
    model.eval()
    at_once = max(1, min(1000, 20_000_000 // math.prod(split.shape)))  # what fits in memory as numbers
    device = torch.device(device)
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        order = split.by_length if isinstance(split, Encoded) else torch.arange(len(split))
        parts: Any = split.batches(order.split(at_once), device)
        found = []
        for i, (images, _) in enumerate(parts, 1):
            found.append(model(last(images)).float().cpu())
            on_batch(min(i * at_once, len(split)))
        return torch.cat(found)[order.argsort()]


def accuracy(model: nn.Module, split: AnySplit, last: Normalize | Framed, device: torch.device | str) -> float:
    """Return the share of a split that is classified as labelled."""
    return float((predict(model, split, last, device).argmax(1) == split.labels).double().mean())


@dataclass(frozen=True)
class Trained:
    """A run's model as its newest whole checkpoint has it, and what it was trained on."""

    recipe: Recipe
    model: nn.Module
    shape: tuple[int, ...]  # of an image [C, H, W], or of a text [T]
    classes: tuple[str, ...]
    last: Normalize | Framed
    test_digest: str | None = None  # what tells the images or texts that it is tested on from others
    epochs: int = 0  # that it has ended
    undivided: bool = False  # whether its data were class folders alone


def load_model(out: Path | str) -> Trained:
    """Return the model of a run's newest whole checkpoint, ready for evaluation; its data is not needed."""
    out = Path(out)
    found = checkpoint.load(out)
    if found is None:
        raise ValueError(f"{out}: {'no whole checkpoint' if out.is_dir() else 'no such folder'}")
    recipe, about = with_values(Recipe(), found[1]["recipe"]), found[1]["data"]
    shape = tuple(about["shape"])
    state = new_state(replace(recipe, weights=""), shape, len(about["classes"]), torch.device("cpu"))
    try:
        state.restore(*found)
    except ValueError as error:
        raise ValueError(f"{out}: {error}") from None
    last = last_step(about["mean"], about["std"])
    classes, epochs = tuple(about["classes"]), len(found[1]["metrics"])
    return Trained(
        recipe, state.model.eval(), shape, classes, last, about.get("test_digest"), epochs, about.get("undivided", False)
    )


def load_run(out: Path, other: str = "", *, skip_bad: int = 0) -> tuple[Trained, Data]:
    """Return a run's model and its data, which must be what it was, or `other` data of its shape and classes."""
    run = load_model(out)
    folder, was = Path(other), Path(run.recipe.data)
    if not other and was.is_absolute() and not was.exists():
        raise ValueError(f"{was}: no longer there; with --data it is taken from elsewhere")
    recipe = replace(run.recipe, data=other or run.recipe.data)
    # Of class folders alone, where the run has divided its own, too, the rest may be what it was trained on, moved or grown.
    divided = (folder / "train").is_dir() or (run.undivided and is_undivided(folder))
    if other and len(run.shape) == 3 and folder.is_dir() and not divided:
        tested = Files(*list_tested(folder, run.classes), run.recipe.size, skip_bad=skip_bad)
        data = Data(other, tested, tested, run.classes)
    else:
        data = load_for(recipe, skip_bad=skip_bad)
    if isinstance(data.test, Documents) != (len(run.shape) == 1):
        raise ValueError(f"{data.name}: the run's model takes {'texts' if len(run.shape) == 1 else 'images'}")
    read = replace(data, test=as_read(data.test, run.recipe))
    now = {"shape": list(read.test.shape), "classes": list(data.classes)}
    then = {"shape": list(run.shape), "classes": list(run.classes)}
    if not other:
        digest = data.test.digest if run.test_digest else None
        check_same_data(now | {"test_digest": digest}, then | {"test_digest": run.test_digest}, out)
        return run, read
    for key in now:
        if now[key] != then[key]:
            raise ValueError(f"{other}: its {key} must be the run's, {then[key]}, got {now[key]}")
    return run, read


def check_same_data(about: dict[str, Any], stored: dict[str, Any], out: Path) -> None:
    """Refuse data that is not what a run in this folder was trained on."""
    for key, value in about.items():
        then = stored.get(key)
        if then != value and key in ("policy_file", "weights"):
            raise ValueError(f"{out}: the file of {key} has changed since (SHA-256 {then} then, {value} now)")
        if then != value:
            raise ValueError(f"{out}: the data has changed since ({key} {then!r} then, {value!r} now)")
