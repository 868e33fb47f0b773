"""Equal time: measure how long a step of each policy takes, and give every policy as many steps as fit into the same time."""

import itertools
import json
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from outspan.config import Recipe
from outspan.data.dataset import Data
from outspan.files import write_json
from outspan.messages import first_line, shown
from outspan.training import OnStep, Progress, Stopped
from outspan.training.run import Run
from outspan.training.setup import Options, build_setup, use_algorithms, with_absolute_paths

FILE = "step_times.json"
_ROUNDS = 15  # the policies take turns; the step time is the median over rounds
_ROUND_SECONDS = 0.2  # a round has at least 5 steps, and as many as fit into this time
_WARM_UP = 5  # steps that are not timed: they choose algorithms, record graphs and fill caches


@dataclass(frozen=True)
class Budget:
    """The training time of every run of a comparison, and the seconds that a step of each policy takes."""

    seconds: float
    step_seconds: Mapping[str, float]  # by policy

    def steps(self, policy: str, multiple: float = 1.0) -> int:
        """Return how many steps of a policy fit into a multiple of the time, at least 1."""
        return max(1, round(multiple * self.seconds / self.step_seconds[policy]))


def plan_budget(
    recipes: Mapping[str, Recipe],
    data: Data,
    *,
    folder: Path,
    device: str,
    minutes: float | None = None,
    step_seconds: Mapping[str, float] | None = None,
    threads: int | None = None,
    on_step: OnStep | None = None,
) -> Budget:
    """Return the time that all runs get: `minutes`, or what the policy with the shortest step needs for its recipe.

    The times are written to `folder`/step_times.json. A later call with this folder reuses them, so that the runs of a
    comparison that is resumed keep their numbers of steps. Only policies that are new are measured.
    """
    stored = _read(folder / FILE)
    known = dict(stored.step_seconds) if stored else {}
    missing = {name: recipe for name, recipe in recipes.items() if name not in known}
    if step_seconds is not None:
        known |= {name: _check_seconds(name, step_seconds) for name in missing}
    elif missing:
        known |= measure_steps(missing, data, folder=folder, device=device, threads=threads, on_step=on_step)
    if minutes is not None:
        seconds = 60.0 * minutes
    elif stored:
        seconds = stored.seconds  # a policy that was added later may be cheaper, but the finished runs keep their time
    else:
        totals = {name: recipe.total_steps(len(data.train) - recipe.validation) for name, recipe in recipes.items()}
        seconds = min(known[name] * total for name, total in totals.items())
    if stored and stored.seconds != seconds:
        reason = f"the runs there have {stored.seconds:g} seconds each, not {seconds:g}"
        raise ValueError(f"{folder}: contains a comparison with another time ({reason}); choose another folder")
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, {"seconds": seconds, "step_seconds": known})
    return Budget(seconds, known)


def measure_steps(
    recipes: Mapping[str, Recipe],
    data: Data,
    *,
    folder: Path,
    device: str,
    threads: int | None = None,
    on_step: OnStep | None = None,
) -> dict[str, float]:
    """Return the seconds that a training step of each policy takes: data, augmentation and learning, not evaluation.

    The policies take turns, so that a machine that becomes slower affects all of them. `threads` is the number of CPU
    threads of the runs, by default that of this process.
    """
    rounds: dict[str, list[float]] = {name: [] for name in recipes}
    total = _ROUNDS * len(recipes)
    with _use_threads(threads), use_algorithms(deterministic=False):
        timers = {name: _Timer(name, recipe, data, folder, torch.device(device)) for name, recipe in recipes.items()}
        for number, (name, timer) in enumerate(list(timers.items()) * _ROUNDS, 1):
            rounds[name].append(timer.time_round())
            if on_step is not None and on_step(Progress(number, total, message=name)):
                raise Stopped("stopped while the steps were timed; run the same command again")
    return {name: statistics.median(times) for name, times in rounds.items()}


@contextmanager
def _use_threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Timer:
    """A run that is stepped only to be timed. It writes no files."""

    def __init__(self, name: str, recipe: Recipe, data: Data, folder: Path, device: torch.device) -> None:
        try:
            self.run = Run(build_setup(with_absolute_paths(recipe), data, Options(device)), folder / name, device)
            self.end = max(1, int((1 - recipe.finish) * self.run.steps))  # the finish is cheaper than the other steps
            self.batches = self._batches()
            self._take_steps(_WARM_UP)
            self.steps = max(5, round(_ROUND_SECONDS / self._take_steps(5)))
        except ValueError as error:
            raise ValueError(f"{name}: its step could not be timed ({first_line(error)})") from None

    def _batches(self) -> Iterator[tuple[object, torch.Tensor]]:
        """Yield batches without end: those of the run, again and again."""
        for epoch in itertools.cycle(range(self.run.epochs)):
            yield from self.run.batches(epoch, 0)

    def _take_steps(self, count: int) -> float:
        """Take steps and return the mean seconds of one."""
        began = time.perf_counter()
        for _ in range(count):
            self.run.state.step %= self.end  # beyond the end of a run the learning rate can be negative
            self.run.learn(self.run.augment(*next(self.batches)))
        self.run.loss_queue.read()  # waits for the device
        return (time.perf_counter() - began) / count

    def time_round(self) -> float:
        """Return the mean seconds of a step in one round."""
        return self._take_steps(self.steps)


def _check_seconds(name: str, step_seconds: Mapping[str, float]) -> float:
    seconds = step_seconds.get(name)
    if not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
        raise ValueError(f"step_seconds must have a positive number of seconds for {name!r}, got {shown(seconds)}")
    return float(seconds)


def _read(path: Path) -> Budget | None:
    """Return the stored times, None if there are none."""
    try:
        stored = json.loads(path.read_text())
        return Budget(float(stored["seconds"]), {str(name): float(value) for name, value in stored["step_seconds"].items()})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: cannot be read ({first_line(error)}); delete it to time the steps again") from None
