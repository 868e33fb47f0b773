"""The training loop (Algorithm 1), for one model or for several models at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from outspan.training import OnStep, Progress, Stopped
from outspan.training.saving import Saver


@runtime_checkable
class Trainable(Protocol):
    """What the loop trains: a `Run` of one model, or an `EnsembleRun` of several."""

    epochs: int  # the last one may be incomplete
    epoch_steps: int  # steps per epoch
    steps: int  # of the whole run
    stop_message_suffix: str  # what is trained, for the message of a run that was stopped

    @property
    def step(self) -> int:
        """Steps done, over all starts."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether there is no step left to do: after the last step, or if the run has stopped early."""
        ...

    @property
    def loss(self) -> float:
        """The most recent loss that was read."""
        ...

    @property
    def metrics(self) -> Sequence[Mapping[str, float]]:
        """One row per finished epoch."""
        ...

    def batches(self, epoch: int, start: int) -> Iterator[tuple[Any, Tensor]]:
        """Return the inputs and labels of an epoch, from its batch `start` to the end of the epoch or of the run."""
        ...

    def augment(self, inputs: Any, labels: Tensor) -> Any:
        """Augment a batch. A policy such as `Uncertain` draws candidates and keeps those with the highest loss."""
        ...

    def learn(self, batch: Any) -> None:
        """Do one step of the optimizer on an augmented batch."""
        ...

    def count(self, labels: Tensor) -> int:
        """Return how many samples a batch with these labels trains on, over all models."""
        ...

    def end_epoch(self, epoch: int) -> None:
        """Evaluate, and add a row to the metrics."""
        ...

    def save(self) -> None:
        """Write a checkpoint."""
        ...


def train_epochs(
    run: Trainable,
    *,
    save_every: float = 30.0,
    on_step: OnStep | None = None,
    agree: Callable[[bool, bool], Sequence[bool]] = lambda *claims: claims,
) -> None:
    """Train from the current step of the run to its end. If `on_step` returns True, save and raise `Stopped`.

    A checkpoint is written every `save_every` seconds, less often if saving is slow, and after the last step. `agree` makes all
    ranks stop and save after the same steps: it returns for each claim whether it is true on any of them.
    """
    steps, saver, is_due = run.steps, Saver(run.save, save_every), not save_every
    while not run.is_finished:
        epoch, start = divmod(run.step, run.epoch_steps)
        for inputs, labels in run.batches(epoch, start):
            # Algorithm 1: draw candidates, compute their loss, keep the highest.
            batch = run.augment(inputs, labels)
            # Algorithm 1: update the model.
            run.learn(batch)
            if run.step in ((epoch + 1) * run.epoch_steps, steps):
                run.end_epoch(epoch)
            if run.is_finished or is_due:
                saver.save()
            progress = Progress(run.step, steps, epoch, run.epochs, run.loss, run.count(labels), run.metrics)
            stops, is_due = agree(on_step is not None and bool(on_step(progress)), saver.is_due())
            if stops and not run.is_finished:
                saver.save()
                raise Stopped(
                    f"stopped at step {run.step} of {steps}{run.stop_message_suffix}; run the same command again to resume"
                )
