"""Measure how long a training step of each policy takes."""

import gc
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from outspan.config import Recipe
from outspan.data.dataset import Data
from outspan.devices import current
from outspan.messages import first_line
from outspan.training import OnStep, Progress, Stopped
from outspan.training.run import Run
from outspan.training.setup import Options, build_setup, use_algorithms, with_absolute_paths

_ROUNDS = 15  # per policy
_ROUND_SECONDS = 0.2  # a round has at least 5 steps, and as many as fit into this time
_WARM_UP = 20  # steps that are not timed: they record graphs, fill caches, and use up to 16 batches that were read ahead


def measure_steps(
    recipes: Mapping[str, Recipe],
    data: Data,
    *,
    folder: Path,
    device: str,
    threads: int | None = None,
    on_step: OnStep | None = None,
    is_quick: bool = False,
    channels_last: bool | None = None,
) -> dict[str, float]:
    """Return the seconds that a training step of each policy takes: data, augmentation and learning, not evaluation.

    `threads` is the number of CPU threads of the runs, by default that of this process. Nothing is written to `folder`.
    `is_quick` times a few steps only, for an estimate.
    """
    plan = _QUICK if is_quick else _Plan(_ROUNDS, 5, _WARM_UP)
    options = Options(torch.device(device), channels_last=channels_last)
    rounds, times = itertools.count(1), dict[str, float]()

    def report(name: str) -> None:
        if on_step is not None and on_step(Progress(next(rounds), plan.rounds * len(recipes), message=name)):
            raise Stopped("stopped while the steps were timed; run the same command again")

    with current(options.device), _use_threads(threads), use_algorithms(deterministic=False):
        while missing := {name: recipe for name, recipe in recipes.items() if name not in times}:
            times |= _time_together(missing, data, folder, options, plan, report)
            gc.collect()  # a run refers to itself: without this, its model would stay in memory while the next is timed
    return times


@contextmanager
def _use_threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _time_together(
    recipes: Mapping[str, Recipe],
    data: Data,
    folder: Path,
    options: Options,
    plan: "_Plan",
    report: Callable[[str], None],
) -> dict[str, float]:
    """Time all policies in turns, or only the first one. At the end, also after an error, no process that reads is left.

    On a CPU the policies take turns, so that a machine that becomes slower affects all of them. On a GPU they do not: its
    memory may be too small for all models at once. Nor if processes read the data, as for image folders: those that read
    ahead for one policy would slow down the others.
    """
    timers: dict[str, _Timer] = {}
    with ExitStack() as stack:
        for name, recipe in recipes.items():
            with _policy_in_errors(name):
                timers[name] = timer = stack.enter_context(closing(_Timer(recipe, data, folder / name, options, plan)))
                timer.warm_up()
            if timer.has_readers or options.device.type != "cpu":
                break
        for name, timer in list(timers.items()) * plan.rounds:
            with _policy_in_errors(name):
                timer.time_round()
            report(name)
    return {name: timer.seconds() for name, timer in timers.items()}


@contextmanager
def _policy_in_errors(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: its step could not be timed ({first_line(error)})") from None


@dataclass(frozen=True)
class _Plan:
    """How many steps are timed."""

    rounds: int  # per policy
    steps: int  # per round, at least
    warm_up: int


_QUICK = _Plan(rounds=3, steps=2, warm_up=2)


class _Timer:
    """A run that is stepped only to be timed. It writes no files."""

    def __init__(self, recipe: Recipe, data: Data, folder: Path, options: Options, plan: _Plan) -> None:
        self.run = Run(build_setup(with_absolute_paths(recipe), data, options), folder, options.device)
        self.end = max(1, int((1 - recipe.finish) * self.run.steps))  # the finish is cheaper than the other steps
        self.batches = self._batches()
        self.steps, self.warm_up_steps = plan.steps, plan.warm_up  # per round, and before the first
        self.rounds: list[float] = []  # the mean seconds of a step in each round
        self.has_readers = False  # whether processes read the data

    def _batches(self) -> Generator[tuple[Any, torch.Tensor], None, None]:
        """Yield batches without end: those of the run, again and again."""
        for epoch in itertools.cycle(range(self.run.epochs)):
            yield from self.run.batches(epoch, 0)

    def warm_up(self) -> None:
        """Take the first steps, and choose the number of steps of a round."""
        others = set(multiprocessing.active_children())
        self._take_steps(self.warm_up_steps)
        self.has_readers = not others.issuperset(multiprocessing.active_children())
        self.steps = max(self.steps, round(_ROUND_SECONDS / self._take_steps(self.steps)))

    def time_round(self) -> None:
        """Time the steps of one round."""
        self.rounds.append(self._take_steps(self.steps))

    def seconds(self) -> float:
        """Return the seconds of a step: the median over rounds, which ignores a few disturbances, or the mean.

        Readers deliver batches in bursts and start again in each epoch. A mean includes this, a median does not.
        """
        return statistics.fmean(self.rounds) if self.has_readers else statistics.median(self.rounds)

    def _take_steps(self, count: int) -> float:
        """Take steps and return the mean seconds of one."""
        began = time.perf_counter()
        for _ in range(count):
            self.run.state.step %= self.end  # beyond the end of a run the learning rate can be negative
            self.run.learn(self.run.augment(*next(self.batches)))
        self.run.loss_queue.read()  # waits for the device
        return (time.perf_counter() - began) / count

    def close(self) -> None:
        """End the processes that read the data."""
        self.batches.close()
