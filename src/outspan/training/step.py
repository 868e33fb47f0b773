"""One training step: forward and backward pass, gradient clipping, and the optimizer."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from outspan import rng
from outspan.config import Recipe
from outspan.models.outputs import read_logits
from outspan.policies.objectives import SINGLE_LABEL, Objective
from outspan.training.graphs import RecordedFunction
from outspan.training.state import State


class Learner:
    """Forward and backward pass: `learner(inputs, targets)` returns the loss per sample and sets the gradients of their mean.

    With `class_weights` [classes], or `weighted`, a weight per sample and the targets of the weighted loss, the gradients are
    those of the weighted losses. The returned losses have no weights, because policies learn from them.

    A batch is processed in `parts`, whose gradients add up to those of the batch. `forward` may return the logits of several
    models, [models, B, classes]; each model then gets the gradients of its own mean loss.
    """

    def __init__(
        self,
        model: nn.Module,
        label_smoothing: float,
        *,
        graphs: bool,
        parts: int = 1,
        forward: Callable[[Tensor], Tensor] | None = None,
        scale: Callable[[Tensor], Tensor] = lambda loss: loss,  # of fp16, against underflow
        objective: Objective = SINGLE_LABEL,
        class_weights: Tensor | None = None,
    ) -> None:
        self.scale = scale
        self.model, self.label_smoothing, self.parts, self.forward = model, label_smoothing, parts, forward or model
        self.objective, self.class_weights = objective, class_weights
        self.parameters = list(model.parameters())
        self.recorded = RecordedFunction(self._learn, lambda: [p.grad for p in self.parameters]) if graphs else None

    def forget(self) -> None:
        """Forget recorded graphs, because other parameters train from now on."""
        if self.recorded is not None:
            self.recorded.forget()

    def __call__(self, inputs: Tensor, targets: Tensor, *weighted: Tensor) -> Tensor:
        if self.recorded is None:
            return self._learn(inputs, targets, *weighted)
        if self.recorded.is_new(inputs, targets, *weighted):
            buffers, rng_state = [buffer.clone() for buffer in self.model.buffers()], torch.cuda.get_rng_state()
            self.recorded.record(inputs, targets, *weighted)
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
            torch.cuda.set_rng_state(rng_state)
        losses, gradients = self.recorded(inputs, targets, *weighted)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        return losses.clone()

    def _learn(self, inputs: Tensor, targets: Tensor, *weighted: Tensor) -> Tensor:
        targets, *others = (self.objective.smooth(one, self.label_smoothing) for one in (targets, *weighted[1:]))
        for parameter in self.parameters:
            parameter.grad = None  # a recorded graph must write gradients, not accumulate them
        losses, scale = [], self.objective.scale(targets.shape[-1])
        for part, *of_part in zip(
            *(tensor.chunk(self.parts) for tensor in (inputs, targets, *weighted[:1], *others)), strict=True
        ):
            part_losses, with_weights = self._losses(part, *of_part)
            self.scale(with_weights.mean(-1).sum() * (len(part) / len(inputs) * scale)).backward()
            losses.append(part_losses.detach())
        return torch.cat(losses)

    def _losses(self, inputs: Tensor, targets: Tensor, *weighted: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses, and those with weights."""
        device = inputs.device.type
        # No cache: a cast cached before the recording would become stale.
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda", cache_enabled=False):
            logits = read_logits(self.forward(inputs))
        shape, rows = targets.shape[:-1], logits.float().flatten(0, -2)
        losses = with_weights = self.objective.loss(rows, targets.flatten(0, -2), reduction="none").view(shape)
        weights, targets = (*weighted, targets)[:2] if weighted else (None, targets)
        if self.class_weights is not None:
            with_weights = self.objective.weighted(rows, targets.flatten(0, -2), self.class_weights).view(shape)
        elif weights is not None:
            with_weights = self.objective.loss(rows, targets.flatten(0, -2), reduction="none").view(shape)
        return losses, with_weights if weights is None else with_weights * weights


@runtime_checkable
class TrainingBatch(Protocol):
    """Inputs and soft targets: a `Batch` of one model, or the batches of several models, [models, B, ...]."""

    @property
    def inputs(self) -> Tensor: ...

    @property
    def targets(self) -> Tensor: ...


def take_step(
    state: State,
    learner: Callable[..., Tensor],
    recipe: Recipe,
    batch: TrainingBatch,
    lr: float,
    clip: Callable[[Iterable[Tensor], float], object] = nn.utils.clip_grad_norm_,
    *,
    rank: int = 0,
    weighted: Sequence[Tensor] = (),
) -> Tensor:
    """Update the model on a batch and return the loss of each sample, [B] or [models, B].

    `clip` limits the gradients of parameters. By default it limits the norm of all gradients together. Every rank has its own
    draws of dropout. `weighted` is empty, or the weight of each sample and its targets in the weighted loss.
    """
    for group in state.optimizer.param_groups:
        group["lr"] = lr * group["rate"]
    _seed(rng.derive(recipe.seed, "model", state.step, *[rank] if rank else []), batch.inputs.device)
    losses = learner(batch.inputs, batch.targets, *weighted)
    if recipe.clip:
        state.scaler.unscale_(state.optimizer)
        clip(state.model.parameters(), recipe.clip)
    state.scaler.step(state.optimizer)
    state.scaler.update()
    if state.average is not None:
        state.average.update(state.step)
    return losses


def _seed(seed: int, device: torch.device) -> None:
    """Seed the generators that dropout uses. torch.manual_seed would also look for other devices, which takes 0.1 ms."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)


def lr_at(recipe: Recipe, step: int, steps: int) -> float:
    """Return the learning rate of a step, counted from 0: a linear warm-up, then the schedule.

    >>> [lr_at(Recipe(lr=1.0, warmup=0.0, schedule="linear"), step, 4) for step in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    warmup = recipe.warmup * steps
    if step < warmup:
        return recipe.lr * (step + 1) / (warmup + 1)
    progress = (step - warmup) / (steps - warmup)
    if recipe.schedule == "cosine":
        return recipe.lr * 0.5 * (1 + math.cos(math.pi * progress))
    if recipe.schedule == "linear":
        return recipe.lr * (1 - progress)
    if recipe.schedule == "multistep":
        return recipe.lr * 0.1 ** sum(step >= mark * steps for mark in (0.3, 0.6, 0.8))
    return recipe.lr
