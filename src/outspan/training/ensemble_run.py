"""An ensemble in training, as the training loop sees it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

from outspan import rng
from outspan.config import Recipe, with_new_names
from outspan.data.sets import Data
from outspan.policies.plain import Plain
from outspan.policies.table import augmentation_of, build_policy
from outspan.policies.targets import make_targets
from outspan.training import Diverged, checkpoint
from outspan.training.ensemble_draws import build_draws
from outspan.training.ensemble_model import Ensemble
from outspan.training.loss_queue import LossQueue, Outcome
from outspan.training.state import Group, State, initial_model, make_optimizer
from outspan.training.step import Learner, lr_at, take_step
from outspan.transforms.normalize import Normalize


class _Inputs(NamedTuple):
    """The images of all orders in a step, and their labels on the host."""

    images: Tensor  # uint8 [rows, C, H, W]
    labels: Tensor  # int64 [rows]


class _Batch(NamedTuple):
    """What each member trains on in a step."""

    inputs: Tensor  # [members, B, pixels]
    targets: Tensor  # [members, B, classes]


class EnsembleRun:
    """Several members in training at once. A folder is optional; without it nothing is saved."""

    metrics: Sequence[dict[str, float]] = ()  # members are evaluated after training

    def __init__(
        self, members: list[Recipe], data: Data, device: torch.device, *, shared: int | None = None, out: Path | None = None
    ) -> None:
        self.members, self.recipe, self.data, self.device, self.out = members, members[0], data, device, out
        on_gpu = device.type == "cuda"
        mean, std = data.train.statistics()
        self.preprocess = Normalize(mean, std, torch.bfloat16 if on_gpu else torch.float32)
        self.split = data.train.prepared(self.recipe, train=True).to(device)
        self.model = Ensemble([initial_model(recipe, data.train.shape, len(data.classes)) for recipe in members]).to(device)
        groups = [Group([*self.model.weights], has_decay=True), Group([*self.model.biases], has_decay=False)]
        optimizer = make_optimizer(self.recipe, groups, on_gpu=on_gpu)
        self.state = State(self.model, optimizer)
        self.learner = Learner(self.model, self.recipe.label_smoothing, graphs=on_gpu, forward=self.model.each)
        self.draws = build_draws(members, self._build_policy, device, shared)
        samples = len(self.split)
        self.epochs, self.steps = self.recipe.total_epochs(samples), self.recipe.total_steps(samples)
        self.epoch_steps = self.recipe.steps_per_epoch(samples)
        self.loss_queue = LossQueue(device, self._read)
        self.stop_message_suffix = f", training {len(members)} models at once"
        if out is not None:
            self._resume(out)

    def _build_policy(self, recipe: Recipe) -> Plain:
        policy = build_policy(recipe, self.model, self.data, self.preprocess)
        assert isinstance(policy, Plain), "a policy that uses the model is not batchable"
        return policy

    @property
    def step(self) -> int:
        """Steps done, over all starts."""
        return self.state.step

    @property
    def is_finished(self) -> bool:
        """Whether the last step is done."""
        return self.step == self.steps

    @property
    def loss(self) -> float:
        """The most recent loss that was read, mean over the members."""
        return self.loss_queue.loss

    def batches(self, epoch: int, start: int) -> Iterator[tuple[_Inputs, Tensor]]:
        """Return the images and labels of all orders of an epoch, from batch `start` to the end of the epoch or run."""
        orders = [rng.generator(seed, "order", epoch).permutation(len(self.split)) for seed in self.draws.orders]
        parts = zip(*(torch.from_numpy(order).split(self.recipe.batch) for order in orders), strict=True)
        rows = [torch.cat(part) for part in parts][start : self.steps - epoch * self.epoch_steps]
        for batch_rows, (images, labels) in zip(rows, self.split.batches(rows, self.device), strict=True):
            yield _Inputs(images, self.data.train.labels[batch_rows]), labels

    def count(self, labels: Tensor) -> int:
        """Return the number of samples, over all members."""
        return len(self.members) * len(labels) // len(self.draws.orders)

    def augment(self, inputs: _Inputs, labels: Tensor) -> _Batch:
        """Augment the images of a step, and give each member its batch."""
        plan = self.draws.draw(inputs.labels, self.step)
        count, size = self.draws.count, len(labels) // len(self.draws.orders)
        targets = make_targets(inputs.images, labels, plan, len(self.data.classes)).view(count, size, -1)
        pixels = self.preprocess.execute(inputs.images, plan).view(count, size, -1)
        return _Batch(self.draws.spread(pixels), self.draws.spread(targets))

    def learn(self, batch: _Batch) -> None:
        """Do one step of the optimizer for all members."""
        lr = lr_at(self.recipe, self.step, self.steps)
        losses = take_step(self.state, self.learner, self.recipe, batch, lr, _clip_members)
        self.state.step += 1
        self.loss_queue.add(Outcome(self.step - 1, losses.mean(1)))

    def _read(self, outcome: Outcome, losses: list[float]) -> float:
        """Return the mean loss. A loss that is not finite raises `Diverged`, which names the member."""
        for recipe, loss in zip(self.members, losses, strict=True):
            if not math.isfinite(loss):
                name = augmentation_of(recipe)
                at = f"at step {outcome.step}, epoch {outcome.step // self.epoch_steps}"
                raise Diverged(f"{name}, seed {recipe.seed}: the loss is {loss} {at}: try a smaller lr, or leave it out")
        return sum(losses) / len(losses)

    def end_epoch(self, epoch: int) -> None:
        """Read the losses of the epoch; members are evaluated after training."""
        self.loss_queue.read()

    def save(self) -> None:
        """Write a checkpoint, except after the last step: then the caller stores the predictions of the members."""
        self.loss_queue.read()
        if self.out is None or self.is_finished:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        tensors = checkpoint.pack(self.model, self.state.optimizer)
        checkpoint.save(self.out, tensors, {"members": [asdict(recipe) for recipe in self.members], "step": self.step})

    def _resume(self, out: Path) -> None:
        """Continue from the newest checkpoint of the folder, if there is one."""
        stored = checkpoint.load_ensemble(out)
        if stored is None:
            return
        recipes = [asdict(Recipe()) | with_new_names(member) for member in stored.metadata["members"]]
        if recipes != [asdict(recipe) for recipe in self.members]:
            raise ValueError(f"{out}: contains a run of other recipes; choose another folder")
        try:
            checkpoint.unpack(stored.tensors, self.model, self.state.optimizer)
        except ValueError as error:
            raise ValueError(f"{out}: {error}") from None
        self.state.step = stored.metadata["step"]


def _clip_members(parameters: Iterable[Tensor], limit: float) -> None:
    """Limit the gradient norm of each member, as `clip_grad_norm_` does for one model."""
    gradients = [cast(Tensor, parameter.grad) for parameter in parameters]
    norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
    factors = (limit / (norms + 1e-6)).clamp(max=1).view(-1, 1, 1)
    for gradient in gradients:
        gradient *= factors
