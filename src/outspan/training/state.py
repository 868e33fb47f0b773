"""What a run carries from step to step, and one step of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from outspan import models, rng
from outspan.config import Recipe
from outspan.policies.batch import Batch
from outspan.training import checkpoint, compositions
from outspan.training.graphs import Learner


@dataclass
class State:
    """All that a run carries."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0
    losses: float = 0.0  # summed over this epoch so far
    chosen: compositions.Counts = field(default_factory=dict)  # in this epoch so far
    metrics: list[dict[str, Any]] = field(default_factory=list)

    def meta(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "losses": self.losses, "chosen": self.chosen, "metrics": self.metrics}

    def restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        checkpoint.unpack(tensors, self.model, self.optimizer)
        self.step, self.seconds = meta["step"], meta["seconds"]
        self.losses, self.chosen, self.metrics = meta["losses"], meta["chosen"], meta["metrics"]


def initial(recipe: Recipe, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the model of a recipe as its seed initialises it, for images [C, H, W] or texts [T]."""
    torch.manual_seed(rng.derive(recipe.seed, "init"))
    return models.build(recipe.model, shape, classes, recipe.weights)


def new_state(recipe: Recipe, shape: tuple[int, ...], classes: int, device: torch.device) -> State:
    """Return a run before its first step, for images [C, H, W] or texts [T]."""
    model = initial(recipe, shape, classes).to(device)
    if device.type == "cuda":
        model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    return State(model, make_optimizer(recipe, weights, others, on_gpu=device.type == "cuda"))


def make_optimizer(
    recipe: Recipe, weights: Sequence[Tensor], others: Sequence[Tensor], *, on_gpu: bool
) -> torch.optim.Optimizer:
    """Return the recipe's optimizer; biases and normalisation, the others, do not decay."""
    groups = [{"params": weights, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.lr, fused=on_gpu or None)
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.momentum > 0, fused=on_gpu or None)


def take_step(state: State, learn: Learner, recipe: Recipe, batch: Batch, lr: float) -> Tensor:
    """Learn from a batch and return each image's loss."""
    for group in state.optimizer.param_groups:
        group["lr"] = lr
    _seed(rng.derive(recipe.seed, "model", state.step), batch.inputs.is_cuda)
    losses = learn(batch.inputs, batch.targets)
    if recipe.clip:
        nn.utils.clip_grad_norm_(state.model.parameters(), recipe.clip)
    state.optimizer.step()
    return losses


def _seed(seed: int, on_gpu: bool) -> None:
    """Seed what dropout draws from; torch.manual_seed would also look for every other kind of device, at 0.1 ms a step."""
    torch.default_generator.manual_seed(seed)
    if on_gpu:
        torch.cuda.manual_seed(seed)


def lr_at(recipe: Recipe, step: int, total: int) -> float:
    """Return the learning rate of a step: a linear warm-up, then the schedule."""
    warm = recipe.warmup * total
    if step < warm:
        return recipe.lr * (step + 1) / (warm + 1)
    share = (step - warm) / (total - warm)
    if recipe.schedule == "cosine":
        return recipe.lr * 0.5 * (1 + math.cos(math.pi * share))
    if recipe.schedule == "linear":
        return recipe.lr * (1 - share)
    if recipe.schedule == "multistep":
        return recipe.lr * 0.1 ** sum(step >= mark * total for mark in (0.3, 0.6, 0.8))
    return recipe.lr
