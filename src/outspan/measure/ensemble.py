"""k seeds of a perceptron as one batched model: each member is what `train` makes of its seed, up to rounding."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from outspan import rng
from outspan.config import Recipe
from outspan.data.sets import Data, load
from outspan.plan import Plan
from outspan.policies.named import build_policy
from outspan.policies.plain import Plain, draw, execute, smooth, soft_cross_entropy
from outspan.shapes import Float32, Normalized, Num
from outspan.train import Stopped
from outspan.train.loop import initial, lr_at, make_optimizer
from outspan.transforms.labels import mix_labels
from outspan.transforms.normalize import Normalize

_VALUES = 100_000_000  # of a step's images, over all members, that are held as numbers
_READ_EVERY = 50  # steps, where reading a loss would wait for the device


class Ensemble(nn.Module):
    """Perceptrons of one shape as one model: every parameter has a leading axis of members."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        layers = [[layer for layer in member.modules() if isinstance(layer, nn.Linear)] for member in members]
        together = list(zip(*layers, strict=True))
        # [members, in, out], the other way round than a Linear's: so that gradients come out as the weights lie
        weights = [torch.stack([layer.weight.detach().T for layer in alike]) for alike in together]
        self.weights = nn.ParameterList([nn.Parameter(weight.contiguous()) for weight in weights])
        self.biases = nn.ParameterList(
            [nn.Parameter(torch.stack([each.bias.detach()[None] for each in alike])) for alike in together]
        )

    def each(self, inputs: Num[Tensor, "members B pixels"]) -> Num[Tensor, "members B classes"]:
        """Return the logits of each member for its own images."""
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            inputs = torch.baddbmm(bias, inputs.relu() if i else inputs, weight)
        return inputs

    def forward(self, images: Normalized) -> Num[Tensor, "B members classes"]:
        """Return the logits of all members for the same images."""
        return self.each(images.flatten(1).expand(len(self.weights[0]), -1, -1)).transpose(0, 1)

    def member(self, index: int) -> list[tuple[Tensor, Tensor]]:
        """Return the weight and bias of each layer of one member, as a Linear has them."""
        pairs = zip(self.weights, self.biases, strict=True)
        return [(weight[index].detach().T, bias[index, 0].detach()) for weight, bias in pairs]


def is_batchable(recipe: Recipe) -> bool:
    """Return whether seeds of a recipe can be trained as one model: a perceptron, a policy that does not ask the model."""
    perceptron = re.fullmatch("mlp(-[1-9][0-9]*)?", recipe.model) is not None
    return perceptron and recipe.policy != "uncertain" and not recipe.validation


def members_at_once(recipe: Recipe, shape: tuple[int, int, int]) -> int:
    """Return how many members a model may have for a step's images to fit in memory."""
    return max(1, _VALUES // (recipe.batch * math.prod(shape)))


def train_together(
    recipe: Recipe,
    seeds: Sequence[int],
    *,
    data: Data | None = None,
    device: str | torch.device = "cpu",
    shared: int | None = None,
    on_step: Callable[[dict[str, Any]], bool | None] | None = None,
) -> tuple[Ensemble, Normalize]:
    """Train a perceptron under several seeds at once, and return the models and the last step before them.

    Each has its own initialisation, order of images and plans. With `shared` all see the order and the plans of that seed:
    faster, but then they differ by their initialisation alone. Where `on_step` returns True, nothing is kept.
    """
    if not is_batchable(recipe):
        kind = f"{recipe.model} with the policy {recipe.policy} and {recipe.validation} validation images"
        raise ValueError(f"only an mlp whose policy does not ask it, without validation, is trained so, got {kind}")
    run = _Together(recipe, list(seeds), data or load(recipe.data, size=recipe.size), torch.device(device), shared)
    run.go(on_step)
    return run.model, run.last


class _Together:
    """An ensemble in training."""

    def __init__(self, recipe: Recipe, seeds: list[int], data: Data, device: torch.device, shared: int | None) -> None:
        self.recipe, self.seeds, self.device = recipe, seeds, device
        self.classes, self.split = len(data.classes), data.train.to(device)
        self.drawn = seeds if shared is None else [shared]  # the seeds of orders and plans
        on_gpu = device.type == "cuda"
        self.last = Normalize(*data.train.statistics(), torch.bfloat16 if on_gpu else torch.float32)
        members = [initial(replace(recipe, seed=seed), data.train.shape, self.classes) for seed in seeds]
        self.model = Ensemble(members).to(device)
        self.optimizer = make_optimizer(recipe, [*self.model.weights], [*self.model.biases], on_gpu=on_gpu)
        self.policy = cast(Plain, build_policy(recipe, self.model, data, self.last))
        self.epoch_steps = -(-len(self.split) // recipe.batch)

    def go(self, on_step: Callable[[dict[str, Any]], bool | None] | None) -> None:
        """Train to the end, or until `on_step` asks to stop."""
        recipe, step, said = self.recipe, 0, math.nan
        steps = recipe.epochs * self.epoch_steps
        every = 1 if self.device.type == "cpu" else _READ_EVERY
        for epoch in range(recipe.epochs):
            orders = [rng.generator(seed, "order", epoch).permutation(len(self.split)) for seed in self.drawn]
            rows = [
                torch.cat(parts)
                for parts in zip(*(torch.from_numpy(order).split(recipe.batch) for order in orders), strict=True)
            ]
            for images, labels in self.split.batches(rows, self.device):
                losses = self._step(images, labels, step, lr_at(recipe, step, steps))
                step += 1
                if step % every == 0 or step == steps:
                    said = self._read(losses, step - 1, epoch)
                progress = {"step": step, "steps": steps, "epoch": epoch, "epochs": recipe.epochs, "loss": said, "metrics": []}
                if on_step is not None and on_step(progress | {"images": len(labels)}) and step < steps:
                    raise Stopped(
                        f"stopped at step {step} of {steps}, of {len(self.seeds)} seeds at once; the same command goes on"
                    )

    def _step(self, images: Tensor, labels: Tensor, step: int, lr: float) -> Float32[Tensor, " members"]:
        members, size = len(self.seeds), len(labels) // len(self.drawn)
        plans = [draw(self.policy.propose, self.policy.defaults, size, seed=seed, step=step) for seed in self.drawn]
        plan = _side_by_side(plans, size)
        height, width = images.shape[-2:]
        targets = mix_labels(labels, plan, self.classes, (height, width)).view(len(plans), size, -1)
        targets = smooth(targets, self.recipe.label_smoothing)
        inputs = execute(images, plan, self.last).view(len(plans), size, -1).expand(members, -1, -1)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.model.each(inputs)
        flat = logits.float().flatten(0, 1), targets.expand(members, -1, -1).flatten(0, 1)
        losses = soft_cross_entropy(*flat, reduction="none").view(members, size).mean(1)
        losses.sum().backward()  # of each member, the gradient of its own mean loss
        if self.recipe.clip:
            self._clip()
        self.optimizer.step()
        return losses.detach()

    def _clip(self) -> None:
        """Bound the norm of each member's own gradient, as `clip_grad_norm_` does a model's."""
        gradients = [cast(Tensor, parameter.grad) for parameter in self.model.parameters()]
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
        shrink = (self.recipe.clip / (norms + 1e-6)).clamp(max=1).view(-1, 1, 1)
        for gradient in gradients:
            gradient *= shrink

    def _read(self, losses: Tensor, step: int, epoch: int) -> float:
        """Return the mean loss; one that is not finite is refused, with its seed."""
        for seed, loss in zip(self.seeds, losses.tolist(), strict=True):
            if not math.isfinite(loss):
                raise ValueError(f"seed {seed}: the loss is {loss} at step {step}, epoch {epoch}: try a smaller lr")
        return float(losses.mean())


def _side_by_side(plans: Sequence[Plan], size: int) -> Plan:
    """Return one plan for the images of all, which lie one batch after another."""
    if len(plans) == 1:
        return plans[0]
    joined = Plan.cat(plans)
    starts = torch.arange(len(plans)).repeat_interleave(torch.tensor([len(plan.source) for plan in plans]))
    return replace(joined, source=joined.source + size * starts)
