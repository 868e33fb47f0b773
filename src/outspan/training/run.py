"""A run of one model in its folder, as the training loop sees it."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outspan.config import write_recipe
from outspan.data.splits import Split
from outspan.devices import to_device
from outspan.figures.markup import display, figure_bytes
from outspan.files import write_lines, write_whole
from outspan.messages import printable
from outspan.policies.batch import Batch
from outspan.policies.protocols import LearningPolicy
from outspan.policies.weighting import weigh
from outspan.training import Diverged, checkpoint, compositions
from outspan.training.description import describe_defaults, describe_setup
from outspan.training.examples import Example, make_examples
from outspan.training.freezing import is_frozen, set_training
from outspan.training.logits import accuracy, validation_metrics
from outspan.training.loss_queue import LossQueue, Outcome
from outspan.training.saving import restore_run, save_run
from outspan.training.setup import Setup
from outspan.training.state import warn_of_unchanged
from outspan.training.step import lr_at, take_step
from outspan.training.trackers import WANDB_FILE, EpochReport, Tracker
from outspan.training.validation import Best, best_epoch, has_stopped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_METRICS_FILE = "metrics.jsonl"
_EPOCHS_WITH_EXAMPLES = 10  # of a run, for the trackers


@dataclass(frozen=True)
class Summary:
    """The result of a run, after its last step."""

    accuracy: float  # on the test split, after the last epoch
    loss: float  # on the training data, mean over the last epoch
    steps: int
    epochs: float  # how often the run has seen each training sample
    seconds: float  # of training, over all starts, without evaluation
    chance: float  # accuracy of always predicting the most frequent class, or set of labels, of the test split
    metrics: list[dict[str, float]] = field(repr=False)  # one row per epoch
    best: Best | None = None  # the best epoch by validation; None without validation data
    stopped_early: bool = False  # with `patience`

    def figure(self) -> "Figure":
        """Return a figure of the test accuracy and the training loss after each epoch."""
        from outspan.figures.run import run_figure

        return run_figure(self.metrics, f"{100 * self.accuracy:.2f} % test accuracy after {self.epochs:g} epochs")

    def _repr_html_(self) -> str:
        """Return the numbers and the curves, for notebooks."""
        rows = [
            ("test accuracy", f"{100 * self.accuracy:.2f} %"),
            ("majority-class baseline", f"{100 * self.chance:.2f} %"),
            ("training loss, last epoch", f"{self.loss:.4f}"),
            ("epochs", f"{self.epochs:g}"),
            ("steps", f"{self.steps:,}"),
            ("seconds of training", f"{self.seconds:.1f}"),
        ]
        return display(["", ""], rows, "Run", self.figure())

    def _repr_png_(self) -> bytes:
        """Return the curves, for notebooks."""
        return figure_bytes(self.figure())


class Run:
    """One model in training. Only one process at a time may use its folder: lock it before `resume`."""

    stop_message_suffix = ""

    def __init__(self, setup: Setup, out: Path, device: torch.device) -> None:
        if (out / "models").is_dir() and (out / "settings.json").exists():
            raise ValueError(f"{out}: contains a measurement, not a run; choose another folder")
        if (out / "comparison.json").exists():
            raise ValueError(f"{out}: contains a comparison, not a run; choose another folder")
        self.setup, self.ranks, self.out, self.device = setup, setup.ranks, out, device
        self.trackers: Sequence[Tracker] = ()
        self.state, self.provenance, self.recipe = setup.state, setup.provenance, setup.provenance.recipe
        samples = len(setup.splits.train)
        self.epochs, self.steps = self.recipe.total_epochs(samples), self.recipe.total_steps(samples)
        self.epoch_steps = self.recipe.steps_per_epoch(samples)
        self.learning_policy = setup.policy if isinstance(setup.policy, LearningPolicy) else None
        self.loss_queue = LossQueue(device, self._read)
        self._epoch_rows: Iterator[Tensor] = iter(())  # of the batches of this epoch that are not augmented yet
        self._rows = torch.empty(0, dtype=torch.int64)  # of the batch that was augmented last
        self._weighted: Sequence[Tensor] = ()  # of the same batch: weights and targets of the weighted loss
        self._inputs: Any = None  # of the batch that was augmented last, if it is shown to the trackers
        self._examples: list[Example] = []
        self._starts_again = False  # the folder has a recipe but no checkpoint
        self._began = time.perf_counter()  # `resume` subtracts the seconds of earlier starts

    @property
    def step(self) -> int:
        """Steps done, over all starts."""
        return self.state.step

    @property
    def is_finished(self) -> bool:
        """Whether the last step is done, or the run has stopped early."""
        return self.step == self.steps or has_stopped(self.metrics, self.recipe.patience)

    @property
    def loss(self) -> float:
        """The most recent loss that was read."""
        return self.loss_queue.loss

    @property
    def metrics(self) -> list[dict[str, float]]:
        """One row per finished epoch."""
        return self.state.metrics

    def resume(self) -> None:
        """Continue from the newest checkpoint in the folder, or start. Another recipe or other data raises a ValueError."""
        stored = self.ranks.on_first(lambda: checkpoint.load(self.out))
        if stored is None:
            self._starts_again = self.ranks.on_first(self._begin)
        else:
            self.provenance.check_same_run(stored.metadata, self.out)
            self.provenance = self.provenance.with_stored_weights(stored.metadata["data"].get("weights"))
            try:
                restore_run(stored, self.state, self.setup.parts)
            except ValueError as error:
                raise ValueError(f"{self.out}: {error}") from None
            self.ranks.on_first(self._restore_metrics)
        self._began = time.perf_counter() - self.state.seconds

    def _begin(self) -> bool:
        """Write the recipe, and remove the files of a run that was killed before its first checkpoint.

        Return whether there is such a run.
        """
        is_there = (self.out / "recipe.toml").exists()
        for name in (_METRICS_FILE, compositions.FILE, checkpoint.BEST_FILE, WANDB_FILE):
            (self.out / name).unlink(missing_ok=True)
        text = write_recipe(self.recipe).encode(errors="surrogateescape")  # a path may contain bytes that are not UTF-8
        write_whole(self.out / "recipe.toml", lambda partial: partial.write_bytes(text))
        return is_there

    def _restore_metrics(self) -> None:
        """Remove rows that were written after the checkpoint. The folder of a finished run may be read-only."""
        if not self.is_finished or not (self.out / _METRICS_FILE).exists():
            self._write_metrics()

    def _write_metrics(self) -> None:
        write_lines(self.out / _METRICS_FILE, self.metrics)

    def describe(self) -> str:
        """Return a line about the data, the model, the policy and the device, and where a run that had begun goes on.

        For texts a second line has the settings that are defaults.
        """
        train = self.setup.splits.train
        resuming = f"; resuming at step {self.step:,} of {self.steps:,}" if self.step else ""
        resuming += f"; {self.out} has no checkpoint yet, starting again" if self._starts_again else ""
        first = printable(f"{describe_setup(self.setup, self.device)}{resuming}")
        return "\n".join([first, *describe_defaults(self.recipe, train.noun, len(train))])

    def batches(self, epoch: int, start: int) -> Iterator[tuple[Any, Tensor]]:
        """Return the inputs and labels of an epoch in its random order, from batch `start` to the end of the epoch or run."""
        train, seed = self.setup.splits.train, self.recipe.seed
        self.setup.learner.model.train()
        if self.recipe.freeze != "none" and set_training(self.state.model, frozen=is_frozen(self.recipe, epoch)):
            self.setup.learner.forget()
        if start == 0 or not self.setup.samples.store:  # otherwise the losses so far would change the order of this epoch
            self.setup.samples.set_epoch(epoch)
        crops = (seed, epoch) if self.recipe.crop == "resized" else None
        rows = train.divide(self.setup.samples.order(), self.recipe.batch)[start : self.steps - epoch * self.epoch_steps]
        self._epoch_rows = iter(rows)
        return self.ranks.batches(train, rows, self.device, crops)

    def count(self, labels: Tensor) -> int:
        """Return the number of samples."""
        return len(labels)

    def augment(self, inputs: Any, labels: Tensor) -> Batch:
        """Augment a batch with the policy."""
        self._inputs = inputs if self._is_shown() else None
        self._rows, share = next(self._epoch_rows), self.recipe.by_confidence
        confidence = {"confidence": 1 - share + share * self.setup.samples.confidence(self._rows)} if share else {}
        batch = self.setup.policy(inputs, labels, step=self.step, **confidence)
        if self.setup.weights is not None:
            weights = self.setup.weights[to_device(self._rows, self.setup.weights.device)]
            self._weighted = weigh(batch, inputs, labels, weights)
        return batch

    def learn(self, batch: Batch) -> None:
        """Do one step of the optimizer, and let a policy that learns see the losses."""
        lr = lr_at(self.recipe, self.step, self.steps)
        losses = take_step(
            self.state, self.setup.learner, self.recipe, batch, lr, rank=self.ranks.rank, weighted=self._weighted
        )
        if self.learning_policy is not None:
            self.learning_policy.learn(losses, step=self.step)
        self.setup.samples.learn(self._rows, losses, batch.targets)
        if batch.unchanged is not None:
            unchanged, count = (before + now for before, now in zip(self.state.unchanged, batch.unchanged, strict=True))
            self.state.unchanged = unchanged, count
        if self._inputs is not None:
            preprocess = self.setup.splits.preprocess
            self._examples = make_examples(self._inputs, batch, losses, self.setup.splits.train.noun, preprocess)
        self.state.step += 1
        self.loss_queue.add(Outcome(self.step - 1, losses.mean(), batch.drawn, batch.chosen, batch.losses))

    def _is_shown(self) -> bool:
        """Return whether the trackers get examples of this step: the last one of an epoch, in about ten epochs of a run.

        The trackers get them right after the step. So they are the same if the run was resumed.
        """
        epoch, following = self.step // self.epoch_steps, self.step + 1
        is_shown = epoch % -(-self.epochs // _EPOCHS_WITH_EXAMPLES) == 0 and following == (epoch + 1) * self.epoch_steps
        return bool(self.trackers) and (is_shown or following == self.steps)

    def _read(self, outcome: Outcome, loss: float) -> float:
        """Add the loss of a step and the compositions that it has chosen to the sums of the epoch."""
        if not math.isfinite(loss):
            epoch = len(self.metrics)
            raise Diverged(f"the loss is {loss} at step {outcome.step}, epoch {epoch}: try a smaller lr")
        self.state.loss_sum += loss
        drawn, chosen, losses = outcome.drawn, outcome.chosen, outcome.candidate_losses
        if drawn is not None and chosen is not None and losses is not None:
            compositions.add_step(self.state.composition_counts, drawn, chosen, losses, self.recipe.depth)
        return loss

    def end_epoch(self, epoch: int) -> None:
        """Evaluate, add a row to the metrics, and keep the weights if they are the best so far by validation."""
        state, splits = self.state, self.setup.splits
        self.loss_queue.read()
        began = time.perf_counter()
        row = {"epoch": epoch, "step": self.step, "train_loss": state.loss_sum / (self.step - epoch * self.epoch_steps)}
        row["lr"] = lr_at(self.recipe, self.step - 1, self.steps)
        row["test_accuracy"] = self._accuracy(splits.test)
        if splits.validation is not None:
            model, of = self.setup.eval_model, splits.validation
            scores = validation_metrics(model, of, splits.preprocess, self.device, self.ranks, self.recipe.best_metric)
            row |= {f"validation_{name}": value for name, value in scores.items()}
        row |= self.setup.samples.metrics()
        if self.learning_policy is not None:
            row |= self.learning_policy.metrics()
        row |= state.unchanged_metrics()
        state.metrics.append(row)
        self.ranks.on_first(lambda: self._report(epoch))
        state.loss_sum, state.composition_counts, state.unchanged = 0.0, {}, (0, 0)
        self._began += time.perf_counter() - began  # evaluation is not training
        if (best := best_epoch(self.metrics)) is not None and best.epoch == epoch:
            self.save(best=True)

    def _accuracy(self, split: Split) -> float:
        return accuracy(self.setup.eval_model, split, self.setup.splits.preprocess, self.device, self.ranks)

    def _report(self, epoch: int) -> None:
        """Write the metrics of an epoch for anyone monitoring the run, and the compositions that were chosen in it."""
        if self.state.composition_counts:
            compositions.add_epoch(self.out, epoch, self.state.composition_counts)
        self._write_metrics()  # checkpoints have the rows, too
        warn_of_unchanged(self.metrics)
        for track in self.trackers:
            track(EpochReport(dict(self.metrics[-1]), tuple(self._examples)))
        self._examples = []

    def save(self, *, best: bool = False) -> None:
        """Write a checkpoint, or with `best` that of the best epoch, if the weights are finite."""
        self.loss_queue.read()
        self.state.seconds = time.perf_counter() - self._began
        self.ranks.on_first(lambda: save_run(self.out, self.state, self.setup.parts, self.provenance, best=best))

    def summary(self) -> Summary:
        """Return the result of a finished run."""
        final, test = self.metrics[-1], self.setup.splits.test
        chance = int(test.labels.unique(dim=0, return_counts=True)[1].max()) / len(test)
        return Summary(
            final["test_accuracy"],
            final["train_loss"],
            self.step,
            self.step / self.epoch_steps,
            self.state.seconds,
            chance,
            self.metrics,
            best=best_epoch(self.metrics),
            stopped_early=has_stopped(self.metrics, self.recipe.patience),
        )
