"""Equal time: give every policy as many steps as fit into the same time, and keep the step times in a file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from outspan.comparison.timing import measure_steps
from outspan.config import Recipe
from outspan.data.dataset import Data
from outspan.files import Json, write_json
from outspan.limits import check_positive
from outspan.messages import first_line
from outspan.training import OnStep
from outspan.training.pool import Pool
from outspan.training.setup import with_absolute_paths

FILE = "step_times.json"
_ONE_BY_ONE = Pool()
# Every comparison trains with several values of the first two. The files may be moved: `samples` identifies the data.
_NOT_COMPARED = ("policy", "seed", "data", "cache", "weights")


@dataclass(frozen=True)
class Budget:
    """The training time of every run of a comparison, and the seconds that a step of each policy takes."""

    seconds: float
    step_seconds: Mapping[str, float]  # by policy

    def steps(self, policy: str, multiple: float = 1.0) -> int:
        """Return how many steps of a policy fit into a multiple of the time, at least 1."""
        return max(1, round(min(multiple * self.seconds / self.step_seconds[policy], 1e18)))  # more is not a number of steps


def plan_budget(
    shared: Recipe,
    recipes: Mapping[str, Recipe],
    data: Data,
    *,
    folder: Path,
    device: str,
    pool: Pool = _ONE_BY_ONE,
    minutes: float | None = None,
    step_seconds: Mapping[str, float] | None = None,
    on_step: OnStep | None = None,
) -> Budget:
    """Return the time that all runs get: `minutes`, or what the policy with the shortest step needs for its recipe.

    The times are written to `folder`/step_times.json, with the settings of the measurement. A later call with this folder
    and the same settings reuses them, so that the runs of a comparison that is resumed keep their numbers of steps. Only
    policies that are new are measured.
    """
    threads = torch.get_num_threads() if pool.is_this_process else 1
    settings = _settings(shared, data) | {"device": _name_of(device), "minutes": minutes}
    settings |= {"threads": threads, "jobs": int(pool.jobs)}
    stored = _read(folder / FILE, settings)
    known = dict(stored.step_seconds) if stored else {}
    missing = {name: recipe for name, recipe in recipes.items() if name not in known}
    if step_seconds is not None:
        known |= {name: float(step_seconds[name]) for name in missing}
    elif missing:
        known |= measure_steps(missing, data, folder=folder, device=device, threads=threads, on_step=on_step)
    if stored:
        seconds = stored.seconds  # a policy that was added later may be cheaper, but the finished runs keep their time
    elif minutes is not None:
        seconds = 60.0 * minutes
    else:
        totals = {name: recipe.total_steps(len(data.train) - recipe.validation) for name, recipe in recipes.items()}
        seconds = min(known[name] * total for name, total in totals.items())
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, {"settings": settings, "seconds": seconds, "step_seconds": known})
    return Budget(seconds, known)


def _settings(recipe: Recipe, data: Data) -> dict[str, Json]:
    """Return the keys of a recipe that all policies share, and what identifies the training samples."""
    keys = {key: value for key, value in asdict(with_absolute_paths(recipe)).items() if key not in _NOT_COMPARED}
    return keys | {"samples": f"{len(data.train):,} {data.train.noun}, SHA-256 {data.train.digest:.16}"}


def _name_of(device: str) -> str:
    """Return the name of a GPU, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def _read(path: Path, settings: Mapping[str, Json]) -> Budget | None:
    """Return the stored times, None if there are none. Times that were measured with other settings are a ValueError."""
    try:
        stored = json.loads(path.read_text())
        before = asdict(Recipe()) | stored["settings"]  # a version that did not know a key behaved like its default
        seconds, step_seconds = stored["seconds"], dict(stored["step_seconds"])
        for name, value in {"seconds": seconds, **step_seconds}.items():
            check_positive(name, value)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        how = "choose another folder, or delete this file and the runs beside it"
        raise ValueError(f"{path}: cannot be read ({first_line(error)}); {how}") from None
    changed = [f"{key} {before.get(key)!r} there, {now!r} requested" for key, now in settings.items() if before.get(key) != now]
    if changed:
        how = "use the same settings, choose another folder, or delete this file and the runs beside it"
        raise ValueError(f"{path}: the steps were timed with other settings ({', '.join(changed)}); {how}")
    return Budget(seconds, step_seconds)
