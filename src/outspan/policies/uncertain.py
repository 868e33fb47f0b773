"""Algorithm 1: of several random candidates an image, train on those that the model is least sure of."""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from outspan import rng
from outspan.devices import to_device
from outspan.messages import shown
from outspan.policies.batch import Batch, check_batch
from outspan.policies.drawing import draw, find_defaults
from outspan.policies.losses import soft_cross_entropy
from outspan.policies.plain import execute
from outspan.policies.proposals import Proposal, Schedule
from outspan.policies.targets import make_targets
from outspan.shapes import Float32, Images, Int64, Num
from outspan.text.apply import PadTokens
from outspan.text.tokens import Passages
from outspan.transforms.normalize import Normalize

_POWERS = {"max": math.inf, "proportional": 1.0}


@dataclass(frozen=True)
class Uncertain:
    """Draw `candidates` compositions an image, score them under the current model, keep those with the highest loss.

    `select` is "max", "proportional" (drawn with probability proportional to the loss) or a power of the loss in
    between. With `score_every` k > 1 only every k-th step scores; between, candidates are drawn plainly.
    """

    model: nn.Module
    propose: Proposal | Schedule
    candidates: int = 4
    keep: int = 1
    select: str | float = "max"
    score: str = "loss"
    score_every: int = 1
    defaults: str | Proposal = "none"
    normalize: Normalize | PadTokens | None = None
    loss: Callable[..., Tensor] = soft_cross_entropy  # (logits, soft targets, reduction="none") -> one number a sample
    classes: int | None = None  # None asks the model
    seed: int = 0

    def __post_init__(self) -> None:
        if self.candidates < 1:
            raise ValueError(f"candidates must be at least 1, got {self.candidates}")
        if not 1 <= self.keep <= self.candidates:
            raise ValueError(f"keep must be in [1, {self.candidates}], got {self.keep}")
        if self.score_every < 1:
            raise ValueError(f"score_every must be at least 1, got {self.score_every}")
        if self.score not in ("loss", "excess"):
            raise ValueError(f"score must be 'loss' or 'excess', got {shown(self.score)}")
        known = isinstance(self.select, str) and self.select in _POWERS
        if not known and (isinstance(self.select, str) or not self.select >= 0):
            raise ValueError(f"select must be 'max', 'proportional' or a power of at least 0, got {shown(self.select)}")
        if not isinstance(self.model, nn.Module):
            raise ValueError(f"model must be a torch module, got {type(self.model).__name__}")
        # A module of torch has its reduction from when it was made.
        if isinstance(self.loss, nn.Module) and "reduction" not in inspect.signature(self.loss.forward).parameters:
            how = 'a function of (logits, targets, reduction="none"), as torch.nn.functional has'
            raise ValueError(f"loss must be {how}, got the module {type(self.loss).__name__}")
        find_defaults(self.defaults)

    def __call__(self, images: Images | Passages, labels: Num[Tensor, "B ..."], *, step: int) -> Batch:
        """Return `keep` augmented images for each of the batch; an image's stand next to one another."""
        check_batch(images, labels)
        scoring = step % self.score_every == 0 and self.keep < self.candidates
        count = self.candidates if scoring else self.keep
        plan = draw(self.propose, self.defaults, len(images), seed=self.seed, step=step, candidates=count)
        pixels = execute(images, plan, self.normalize)
        if not scoring:
            return Batch(pixels, make_targets(images, labels, plan, self._count_classes(pixels)), plan)
        with evaluating(self.model):
            logits = _logits(self.model(pixels))
            if self.classes not in (None, logits.shape[1]):
                raise ValueError(f"classes must be as many as the model has logits, {logits.shape[1]}, got {self.classes}")
            targets = make_targets(images, labels, plan, logits.shape[1])
            losses = self.loss(logits, targets, reduction="none")
            if losses.numel() != len(logits):
                raise ValueError(
                    f'loss(…, reduction="none") must return a loss a sample, [{len(logits)}], got {list(losses.shape)}'
                )
            losses = losses.view(len(images), count)
            score = losses - _entropy(targets).view_as(losses) if self.score == "excess" else losses
        chosen = choose(score, self.keep, self._power, seed=self.seed, step=step)
        losses, targets = losses.clone(), targets.clone()  # out of inference mode
        return Batch(pixels[chosen], targets[chosen], plan, chosen, losses)

    @property
    def _power(self) -> float:
        return _POWERS[self.select] if isinstance(self.select, str) else float(self.select)

    def _count_classes(self, pixels: Tensor) -> int:
        if self.classes is not None:
            return self.classes
        with evaluating(self.model):
            return _logits(self.model(pixels[:1])).shape[1]


def _logits(found: Any) -> Float32[Tensor, "B classes"]:
    if not isinstance(found, Tensor) or found.ndim != 2:
        what = f"a tensor {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"the model must return logits, a tensor [B, classes], got {what}; wrap it in one that does")
    return found.float()


def _entropy(targets: Float32[Tensor, "B classes"]) -> Float32[Tensor, " B"]:
    """Return the loss that no model can go below: 0 for a class, up to 0.69 for two that are mixed."""
    return -torch.xlogy(targets, targets).sum(1)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run a model as in evaluation and leave no trace: every module's mode and the generators are put back."""
    modes = [(module, module.training) for module in model.modules()]
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    on_gpu = device.type == "cuda"
    model.eval()
    try:
        with (
            torch.random.fork_rng([device] if on_gpu else []),
            torch.inference_mode(),
            torch.autocast(device.type, torch.bfloat16, enabled=on_gpu),
        ):
            yield
    finally:
        for module, training in modes:
            module.training = training


def choose(
    losses: Float32[Tensor, "images candidates"], keep: int, power: float, *, seed: int, step: int
) -> Int64[Tensor, " kept"]:
    """Return the outputs to keep, `keep` an image: the highest losses, or drawn by loss to the power, all distinct."""
    score = losses.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)  # NaN sorts first, and would be trained on
    if power != math.inf:
        # Adding Gumbel noise to the logarithm of a weight and taking the largest draws in proportion to the weight.
        noise = rng.generator(seed, "select", step).gumbel(size=tuple(losses.shape)).astype("float32")
        weight = power * score.clamp(min=1e-30).log() if power else torch.zeros_like(score)
        drawn = weight + to_device(torch.from_numpy(noise), losses.device)
        score = torch.where(score == -math.inf, score, drawn)
    images, candidates = losses.shape
    best = score.topk(keep, dim=1).indices
    return (best + candidates * torch.arange(images, device=losses.device).unsqueeze(1)).flatten()
