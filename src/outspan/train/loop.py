"""The one loop. Starting and resuming are one call: it is a function of the recipe, the state and the step."""

import json
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from outspan import models, rng
from outspan.config import Recipe, differing, with_values
from outspan.data.sets import Data, Split, load
from outspan.policies.named import build_policy
from outspan.policies.plain import soft_cross_entropy
from outspan.train import Stopped, checkpoint
from outspan.transforms.normalize import Normalize


@dataclass(frozen=True)
class Summary:
    """What a run came to, after its last epoch."""

    accuracy: float  # on the test split, last epoch
    loss: float  # on train, averaged over the last epoch
    steps: int
    seconds: float  # of training, over every start
    metrics: list[dict[str, Any]] = field(repr=False)  # one an epoch


@dataclass
class _State:
    """All that a run carries from step to step."""

    model: nn.Module
    optimizer: torch.optim.SGD
    step: int = 0
    seconds: float = 0.0
    losses: float = 0.0  # summed over this epoch so far
    metrics: list[dict[str, Any]] = field(default_factory=list)

    def tensors(self) -> dict[str, Tensor]:
        found = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            buffer = self.optimizer.state.get(parameter, {}).get("momentum_buffer")
            if buffer is not None:
                found[f"momentum.{name}"] = buffer
        return found

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
        for name, parameter in self.model.named_parameters():
            if f"momentum.{name}" in tensors:
                self.optimizer.state[parameter]["momentum_buffer"] = tensors[f"momentum.{name}"].to(parameter.device)
        self.step, self.seconds = meta["step"], meta["seconds"]
        self.losses, self.metrics = meta["losses"], meta["metrics"]


def train(
    recipe: Recipe,
    *,
    out: Path,
    device: str | torch.device = "cpu",
    data: Data | None = None,
    on_step: Callable[[dict[str, Any]], bool | None] | None = None,
) -> Summary:
    """Train a recipe into a folder, or go on where the folder stands; a finished run returns its summary at once.

    `on_step` is called after every step with what a progress bar shows; where it returns True the run saves and stops.
    """
    data = data or load(recipe.data, size=recipe.size)
    device = torch.device(device)
    out.mkdir(parents=True, exist_ok=True)
    split, held = hold_out(data.train, recipe.validation, recipe.seed)
    mean, std = split.statistics()
    last = Normalize(mean, std, channels_last=device.type == "cuda")
    state = _start(recipe, data, device)
    setting = {"device": device.type, "threads": torch.get_num_threads(), "torch": torch.__version__}
    about = {"train": len(split), "shape": list(data.train.images.shape[1:]), "classes": list(data.classes)}
    about |= {"mean": list(mean), "std": list(std)}
    found = checkpoint.load(out)
    if found is not None:
        _same_run(recipe, about, setting, found[1], out)
        state.restore(*found)
    policy = build_policy(recipe, state.model, data, last)
    epoch_steps = -(-len(split) // recipe.batch)
    total = recipe.epochs * epoch_steps
    images, labels = split.images.to(device), split.labels.to(device)
    began, before = time.perf_counter(), state.seconds

    def save() -> None:
        state.seconds = before + time.perf_counter() - began
        meta = {"recipe": asdict(recipe), "data": about, "setting": setting, "seconds": state.seconds}
        tensors = state.tensors()
        if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
            raise ValueError(f"weights are not finite after step {state.step}: not saved; try a smaller lr")
        checkpoint.save(out, state.step, tensors, {**meta, "losses": state.losses, "metrics": state.metrics})
        _write_metrics(out, state.metrics)

    while state.step < total:
        epoch, at = divmod(state.step, epoch_steps)
        order = rng.generator(recipe.seed, "order", epoch).permutation(len(split))
        for position in range(at, epoch_steps):
            rows = torch.from_numpy(order[position * recipe.batch : (position + 1) * recipe.batch]).to(device)
            loss = _step(state, recipe, policy(images[rows], labels[rows], step=state.step), lr_at(recipe, state.step, total))
            if not math.isfinite(loss):
                raise ValueError(f"the loss is {loss} at step {state.step}, epoch {epoch}: try a smaller lr")
            state.losses += loss
            state.step += 1
            if position == epoch_steps - 1:
                _end_epoch(state, epoch, epoch_steps, data, held, last, device)
                save()
            progress = {"step": state.step, "steps": total, "epoch": epoch, "epochs": recipe.epochs, "loss": loss}
            if on_step is not None and on_step({**progress, "metrics": state.metrics}) and state.step < total:
                save()
                raise Stopped(f"stopped at step {state.step} of {total}; the same command goes on")
    final = state.metrics[-1]
    return Summary(final["test_accuracy"], final["train_loss"], total, state.seconds, state.metrics)


def _start(recipe: Recipe, data: Data, device: torch.device) -> _State:
    torch.manual_seed(rng.derive(recipe.seed, "init"))
    channels, height, width = data.train.images.shape[1:]
    model = models.build(recipe.model, (channels, height, width), len(data.classes)).to(device)
    if device.type == "cuda":
        model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.momentum > 0)
    return _State(model, optimizer)


def _step(state: _State, recipe: Recipe, batch: Any, lr: float) -> float:
    model, optimizer = state.model, state.optimizer
    for group in optimizer.param_groups:
        group["lr"] = lr
    model.train()
    torch.manual_seed(rng.derive(recipe.seed, "model", state.step))  # dropout
    on_gpu = batch.images.device.type == "cuda"
    with torch.autocast(batch.images.device.type, torch.bfloat16, enabled=on_gpu):
        logits = model(batch.images)
    targets = batch.targets
    if recipe.label_smoothing:
        targets = (1 - recipe.label_smoothing) * targets + recipe.label_smoothing / targets.shape[1]
    loss = soft_cross_entropy(logits.float(), targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if recipe.clip:
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    optimizer.step()
    return loss.item()


def _end_epoch(
    state: _State, epoch: int, epoch_steps: int, data: Data, held: Split | None, last: Normalize, device: torch.device
) -> None:
    row = {"epoch": epoch, "step": state.step, "train_loss": state.losses / epoch_steps}
    row["test_accuracy"] = accuracy(state.model, data.test, last, device)
    if held is not None:
        row["validation_accuracy"] = accuracy(state.model, held, last, device)
    state.metrics.append(row)
    state.losses = 0.0


def lr_at(recipe: Recipe, step: int, total: int) -> float:
    """Return the learning rate of a step: a linear warm-up, then the schedule."""
    warm = recipe.warmup * total
    if step < warm:
        return recipe.lr * (step + 1) / (warm + 1)
    share = (step - warm) / (total - warm)
    if recipe.schedule == "cosine":
        return recipe.lr * 0.5 * (1 + math.cos(math.pi * share))
    if recipe.schedule == "multistep":
        return recipe.lr * 0.1 ** sum(step >= mark * total for mark in (0.3, 0.6, 0.8))
    return recipe.lr


def predict(model: nn.Module, split: Split, last: Normalize, device: torch.device | str) -> Tensor:
    """Return the logits of a split, [N, classes], without augmentation."""
    model.eval()
    with torch.inference_mode():
        return torch.cat([model(last(part.to(device))).float().cpu() for part in split.images.split(1000)])


def accuracy(model: nn.Module, split: Split, last: Normalize, device: torch.device | str) -> float:
    """Return the share of a split that is classified as labelled."""
    return float((predict(model, split, last, device).argmax(1) == split.labels).double().mean())


def hold_out(split: Split, count: int, seed: int) -> tuple[Split, Split | None]:
    """Return what is trained on and, where `count` is not 0, so many images held out at random."""
    if not count:
        return split, None
    if count >= len(split):
        raise ValueError(f"validation must be below the {len(split)} train images, got {count}")
    order = torch.from_numpy(rng.generator(seed, "validation").permutation(len(split)))
    kept, held = order[count:].sort().values, order[:count].sort().values
    return Split(split.images[kept], split.labels[kept]), Split(split.images[held], split.labels[held])


def load_run(out: Path) -> tuple[Recipe, nn.Module, Data, Normalize]:
    """Return the recipe, model, data and last step of a run's newest whole checkpoint."""
    found = checkpoint.load(out)
    if found is None:
        raise ValueError(f"{out}: no whole checkpoint")
    recipe, about = with_values(Recipe(), found[1]["recipe"]), found[1]["data"]
    data = load(recipe.data, size=recipe.size)
    now = {"shape": list(data.train.images.shape[1:]), "classes": list(data.classes)}
    _same_data(now, about, out)
    state = _start(recipe, data, torch.device("cpu"))
    state.restore(*found)
    return recipe, state.model, data, Normalize(tuple(about["mean"]), tuple(about["std"]))


def _same_run(recipe: Recipe, about: dict[str, Any], setting: dict[str, Any], stored: dict[str, Any], out: Path) -> None:
    different = differing(with_values(Recipe(), stored["recipe"]), recipe)
    if different:
        shown = ", ".join(f"{key} {was!r} there, {now!r} asked" for key, (was, now) in different.items())
        raise ValueError(f"{out}: a run of another recipe ({shown})")
    _same_data(about, stored["data"], out)
    if stored["setting"] != setting:
        warnings.warn(
            f"{out} was made with {stored['setting']}, not {setting}: it will not end to the bit the same", stacklevel=3
        )


def _same_data(about: dict[str, Any], stored: dict[str, Any], out: Path) -> None:
    for key, value in about.items():
        if stored[key] != value:
            raise ValueError(f"{out}: the data has changed since ({key} {stored[key]!r} then, {value!r} now)")


def _write_metrics(out: Path, metrics: list[dict[str, Any]]) -> None:
    partial = out / "metrics.partial"
    partial.write_text("".join(json.dumps(row) + "\n" for row in metrics))
    partial.replace(out / "metrics.jsonl")
