"""The state of a run between two steps: the model, the optimizer, and the epoch so far."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from outspan import models, rng
from outspan.config import Recipe
from outspan.models.layers import find_layers
from outspan.training import checkpoint, compositions
from outspan.training.averaging import Average
from outspan.training.metadata import StateMetadata

_SCALER_KEYS = ("scale", "_growth_tracker")  # what changes in the state of a `GradScaler`
_MOST_UNCHANGED = 0.1  # of the texts with transforms, before a warning


@dataclass
class State:
    """The state of a run between two steps."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    average: Average | None = None  # of the weights, if the recipe has `ema`
    scaler: torch.amp.GradScaler = field(default_factory=lambda: torch.amp.GradScaler("cpu", enabled=False))  # of fp16
    step: int = 0
    seconds: float = 0.0  # of training, over all starts, without evaluation
    loss_sum: float = 0.0  # over the steps of this epoch
    composition_counts: compositions.Counts = field(default_factory=dict)  # compositions chosen in this epoch
    unchanged: tuple[int, int] = (0, 0)  # of the texts with transforms in this epoch, how many are unchanged, and their number
    metrics: list[dict[str, float]] = field(default_factory=list)  # one row per finished epoch

    @property
    def average_model(self) -> nn.Module | None:
        """The model with the average of the weights, if there is one."""
        return None if self.average is None else self.average.model

    @property
    def eval_model(self) -> nn.Module:
        """The model to evaluate: the average of the weights if there is one."""
        return self.average_model or self.model

    def unchanged_metrics(self) -> dict[str, float]:
        """Return the fraction of the texts with transforms that are unchanged in this epoch, if there are such texts."""
        unchanged, count = self.unchanged
        return {"unchanged": unchanged / count} if count else {}

    def to_metadata(self) -> StateMetadata:
        """Return what a checkpoint stores besides tensors."""
        metadata: StateMetadata = {
            "seconds": self.seconds,
            "losses": self.loss_sum,
            "chosen": self.composition_counts,
            "unchanged": list(self.unchanged),
            "metrics": self.metrics,
            "step": self.step,
        }
        if self.scaler.is_enabled():
            state = self.scaler.state_dict()
            metadata["scaler"] = [state[key] for key in _SCALER_KEYS]
        return metadata

    def restore(self, tensors: Mapping[str, Tensor], metadata: StateMetadata) -> None:
        """Continue from a checkpoint. Tensors of another model raise a ValueError."""
        # Loss scaling skips steps whose gradients overflow, usually the first ones.
        checkpoint.unpack(tensors, self.model, self.optimizer, self.average_model, may_have_skipped=self.scaler.is_enabled())
        if (stored := metadata.get("scaler")) is not None and self.scaler.is_enabled():
            self.scaler.load_state_dict(self.scaler.state_dict() | dict(zip(_SCALER_KEYS, stored, strict=True)))
        self.step, self.seconds = metadata["step"], metadata["seconds"]
        self.loss_sum, self.composition_counts = metadata["losses"], metadata["chosen"]
        unchanged, count = metadata.get("unchanged", (0, 0))  # checkpoints of earlier versions have none
        self.unchanged, self.metrics = (unchanged, count), metadata["metrics"]


def warn_of_unchanged(metrics: Sequence[Mapping[str, float]]) -> None:
    """Warn after an epoch in which many texts with transforms stayed as they were, once per run."""
    shares = [row.get("unchanged", 0.0) for row in metrics]
    if shares[-1] > _MOST_UNCHANGED >= max(shares[:-1], default=0.0):
        how = "the texts are too short for these transforms, or have no words for them: choose others with transforms"
        warnings.warn(f"{100 * shares[-1]:.0f} % of the texts with transforms stayed as they were; {how}", stacklevel=2)


def initial_model(recipe: Recipe, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the model of a recipe, initialized with its seed, for samples of this shape ([C, H, W] or [T])."""
    torch.manual_seed(rng.derive(recipe.seed, "init"))
    return models.build(recipe.model, shape, classes, recipe.weights)


def new_state(
    recipe: Recipe, shape: tuple[int, ...], classes: int, device: torch.device, *, channels_last: bool | None = None
) -> State:
    """Return the state before the first step, for samples of this shape ([C, H, W] or [T]).

    `channels_last` is the memory format of the model, by default that of a GPU only.
    """
    model = initial_model(recipe, shape, classes).to(device)
    if device.type == "cuda" if channels_last is None else channels_last:
        model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimizer = make_optimizer(recipe, _groups(recipe, model), on_gpu=device.type == "cuda")
    scaler = torch.amp.GradScaler(device.type, enabled=recipe.precision == "fp16")
    return State(model, optimizer, Average(model, recipe.ema) if recipe.ema else None, scaler)


@dataclass(frozen=True, eq=False)
class Group:
    """Parameters that the optimizer treats alike."""

    parameters: Sequence[Tensor]
    has_decay: bool  # whether weight decay applies: to weights, not to biases and normalization
    rate: float = 1.0  # relative learning rate


def make_optimizer(recipe: Recipe, parts: Sequence[Group], *, on_gpu: bool) -> torch.optim.Optimizer:
    """Return the optimizer of a recipe."""
    # The fused optimizers of torch start from undefined momentum if loss scaling skips their first step.
    fused = (on_gpu and recipe.precision != "fp16") or None
    groups = [
        {"params": part.parameters, "weight_decay": recipe.weight_decay * part.has_decay, "rate": part.rate} for part in parts
    ]
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.lr, fused=fused)
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.momentum > 0, fused=fused)


def _groups(recipe: Recipe, model: nn.Module) -> list[Group]:
    """Return the parameters of a model by layer, if their learning rates differ, and by weight decay."""
    layers = [layer.parameters for layer in find_layers(model)] if recipe.layer_decay < 1 else [list(model.parameters())]
    rates = [recipe.layer_decay**i for i in range(len(layers))][::-1]  # the last layer, the head, has 1
    return [
        Group([parameter for parameter in layer if (parameter.ndim > 1) == has_decay], has_decay, rate)
        for layer, rate in zip(layers, rates, strict=True)
        for has_decay in (True, False)
    ]
