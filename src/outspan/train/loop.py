"""The one loop. Starting and resuming are one call: it is a function of the recipe, the state and the step."""

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
from outspan.data.sets import Data, load
from outspan.data.splits import Files, Split
from outspan.files import write_lines
from outspan.plan import Plan
from outspan.policies.named import build_policy
from outspan.policies.plain import Batch, soft_cross_entropy
from outspan.train import Stopped, checkpoint, compositions
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
    chosen: compositions.Counts = field(default_factory=dict)  # in this epoch so far
    metrics: list[dict[str, Any]] = field(default_factory=list)

    def tensors(self) -> dict[str, Tensor]:
        found = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            buffer = self.optimizer.state.get(parameter, {}).get("momentum_buffer")
            if buffer is not None:
                found[f"momentum.{name}"] = buffer
        return found

    def meta(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "losses": self.losses, "chosen": self.chosen, "metrics": self.metrics}

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
        for name, parameter in self.model.named_parameters():
            if f"momentum.{name}" in tensors:
                self.optimizer.state[parameter]["momentum_buffer"] = tensors[f"momentum.{name}"].to(parameter.device)
        self.step, self.seconds = meta["step"], meta["seconds"]
        self.losses, self.chosen, self.metrics = meta["losses"], meta["chosen"], meta["metrics"]


class _Unread:
    """Losses and choices that the device may still be working on: read together, so that no step waits for it."""

    def __init__(self, depth: int, device: torch.device) -> None:
        self.depth = depth
        self.limit = 1 if device.type == "cpu" else 50
        self.steps: list[tuple[Tensor, Plan, Tensor | None, Tensor | None]] = []
        self.last = math.nan

    def add(self, state: _State, loss: Tensor, batch: Batch) -> None:
        self.steps.append((loss, batch.drawn, batch.chosen, batch.losses))
        if len(self.steps) >= self.limit:
            self.read(state)

    def read(self, state: _State) -> None:
        """Add what is there to the epoch so far, step by step: the sums do not depend on when they are read."""
        for i, (loss, drawn, chosen, losses) in enumerate(self.steps):
            self.last = loss.item()
            if not math.isfinite(self.last):
                at = state.step - len(self.steps) + i
                raise ValueError(f"the loss is {self.last} at step {at}, epoch {len(state.metrics)}: try a smaller lr")
            state.losses += self.last
            if chosen is not None and losses is not None:
                compositions.count(state.chosen, drawn, chosen, losses, self.depth)
        self.steps.clear()


def train(
    recipe: Recipe,
    *,
    out: Path,
    device: str | torch.device = "cpu",
    data: Data | None = None,
    compile: bool = False,
    tensorboard: bool = False,
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
    setting = {"device": device.type, "threads": torch.get_num_threads(), "torch": torch.__version__, "compiled": compile}
    about = {"train": len(split), "shape": list(split.shape), "classes": list(data.classes)}
    about |= {"mean": list(mean), "std": list(std)}
    found = checkpoint.load(out)
    if found is not None:
        _same_run(recipe, about, setting, found[1], out)
        state.restore(*found)
    model: Any = torch.compile(state.model) if compile else state.model
    policy = build_policy(recipe, model, data, last)
    epoch_steps = -(-len(split) // recipe.batch)
    total = recipe.epochs * epoch_steps
    source, unread = split.to(device), _Unread(recipe.depth, device)
    writer = _writer(out, state.step) if tensorboard else None
    began, before = time.perf_counter(), state.seconds

    def save() -> None:
        state.seconds = before + time.perf_counter() - began
        tensors = state.tensors()
        if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
            raise ValueError(f"weights are not finite after step {state.step}: not saved; try a smaller lr")
        meta = {"recipe": asdict(recipe), "data": about, "setting": setting, **state.meta()}
        checkpoint.save(out, state.step, tensors, meta)
        write_lines(out / "metrics.jsonl", state.metrics)

    while state.step < total:
        epoch, at = divmod(state.step, epoch_steps)
        model.train()
        order = torch.from_numpy(rng.generator(recipe.seed, "order", epoch).permutation(len(split)))
        for images, labels in source.batches(order.split(recipe.batch)[at:], device):
            batch = policy(images, labels, step=state.step)
            loss = _step(state, model, recipe, batch, lr_at(recipe, state.step, total))
            state.step += 1
            unread.add(state, loss, batch)
            if state.step == (epoch + 1) * epoch_steps:
                unread.read(state)
                if state.chosen:
                    compositions.add_epoch(out, epoch, state.chosen)
                row = _end_epoch(state, epoch, epoch_steps, data, held, last, device)
                save()
                if writer is not None:
                    for name, value in row.items():
                        writer.add_scalar(name, value, state.step)
                    writer.flush()
            progress = {"step": state.step, "steps": total, "epoch": epoch, "epochs": recipe.epochs, "loss": unread.last}
            progress |= {"images": len(labels), "metrics": state.metrics}
            if on_step is not None and on_step(progress) and state.step < total:
                unread.read(state)
                save()
                raise Stopped(f"stopped at step {state.step} of {total}; the same command goes on")
    final = state.metrics[-1]
    return Summary(final["test_accuracy"], final["train_loss"], total, state.seconds, state.metrics)


def _start(recipe: Recipe, data: Data, device: torch.device) -> _State:
    torch.manual_seed(rng.derive(recipe.seed, "init"))
    model = models.build(recipe.model, data.train.shape, len(data.classes)).to(device)
    if device.type == "cuda":
        model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.momentum > 0)
    return _State(model, optimizer)


def _step(state: _State, model: nn.Module, recipe: Recipe, batch: Batch, lr: float) -> Tensor:
    optimizer = state.optimizer
    for group in optimizer.param_groups:
        group["lr"] = lr
    on_gpu = batch.images.device.type == "cuda"
    _seed(rng.derive(recipe.seed, "model", state.step), on_gpu)
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
    return loss.detach()


def _seed(seed: int, on_gpu: bool) -> None:
    """Seed what dropout draws from; torch.manual_seed would also look for every other kind of device, at 0.1 ms a step."""
    torch.default_generator.manual_seed(seed)
    if on_gpu:
        torch.cuda.manual_seed(seed)


def _end_epoch(
    state: _State, epoch: int, epoch_steps: int, data: Data, held: Split | Files | None, last: Normalize, device: torch.device
) -> dict[str, Any]:
    row: dict[str, Any] = {"epoch": epoch, "step": state.step, "train_loss": state.losses / epoch_steps}
    row["test_accuracy"] = accuracy(state.model, data.test, last, device)
    if held is not None:
        row["validation_accuracy"] = accuracy(state.model, held, last, device)
    state.metrics.append(row)
    state.losses, state.chosen = 0.0, {}
    return row


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


def predict(model: nn.Module, split: Split | Files, last: Normalize, device: torch.device | str) -> Tensor:
    """Return the logits of a split, [N, classes], without augmentation."""
    model.eval()
    at_once = max(1, min(1000, 20_000_000 // math.prod(split.shape)))  # what fits in memory as numbers
    with torch.inference_mode():
        parts = split.batches(torch.arange(len(split)).split(at_once), torch.device(device))
        return torch.cat([model(last(images)).float().cpu() for images, _ in parts])


def accuracy(model: nn.Module, split: Split | Files, last: Normalize, device: torch.device | str) -> float:
    """Return the share of a split that is classified as labelled."""
    return float((predict(model, split, last, device).argmax(1) == split.labels).double().mean())


def hold_out(split: Split | Files, count: int, seed: int) -> tuple[Split | Files, Split | Files | None]:
    """Return what is trained on and, where `count` is not 0, so many images held out at random."""
    if not count:
        return split, None
    if count >= len(split):
        raise ValueError(f"validation must be below the {len(split)} train images, got {count}")
    order = torch.from_numpy(rng.generator(seed, "validation").permutation(len(split)))
    return split.take(order[count:].sort().values), split.take(order[:count].sort().values)


def load_run(out: Path) -> tuple[Recipe, nn.Module, Data, Normalize]:
    """Return the recipe, model, data and last step of a run's newest whole checkpoint."""
    found = checkpoint.load(out)
    if found is None:
        raise ValueError(f"{out}: no whole checkpoint")
    recipe, about = with_values(Recipe(), found[1]["recipe"]), found[1]["data"]
    data = load(recipe.data, size=recipe.size)
    now = {"shape": list(data.train.shape), "classes": list(data.classes)}
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


def _writer(out: Path, step: int) -> Any:
    """Return a TensorBoard writer that takes over from a step: what an interrupted start wrote beyond it is void."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("TensorBoard is not installed: pip install 'outspan[track]'") from None
    return SummaryWriter(out / "tensorboard", purge_step=step)
