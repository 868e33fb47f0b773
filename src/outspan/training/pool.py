"""Execute several runs: one after another in this process, in processes of one thread each, or as tasks of Ray."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from outspan.config import Recipe
from outspan.data.shards import expand
from outspan.limits import check_positive, check_whole
from outspan.messages import shown
from outspan.policies.files import file_and_function
from outspan.training import OnStep
from outspan.training.engine import Engine, Job, execute
from outspan.training.processes import Processes
from outspan.training.ray_engine import RayTasks, check_address, check_ray
from outspan.training.setup import with_absolute_paths

Watch = Callable[[str], AbstractContextManager[OnStep | None]]  # from the title of a run to its `on_step`


def no_progress(title: str) -> AbstractContextManager[None]:
    """Show nothing."""
    return nullcontext()


def run_with_title(title: str, run: Job, *, on_step: OnStep | None) -> Any:
    """Return the result of a run. A ValueError gets the title of the run."""
    try:
        return run(on_step=on_step)
    except ValueError as error:
        raise ValueError(f"{title}: {error}") from None


@dataclass(frozen=True)
class Pool:
    """Where several runs are executed, and how many at a time.

    Args:
        jobs: Number of processes, with one thread each. With 1 of the local engine the runs are executed in this process.
        engine: "local" for this machine, "ray" for Ray.
        address: The Ray cluster, "auto" or HOST:PORT. By default Ray is started on this machine, with `jobs` workers.
        gpus_per_run: With Ray on GPUs, the part of a GPU that a run gets, in (0, 1]. The default is 1.
    """

    jobs: int = 1
    engine: str = "local"
    address: str | None = None
    gpus_per_run: float | None = None

    def __post_init__(self) -> None:
        check_whole("jobs", self.jobs, 1)
        if self.engine not in ("local", "ray"):
            raise ValueError(f"engine must be 'local' or 'ray', got {shown(self.engine)}")
        if self.engine == "local" and (self.address is not None or self.gpus_per_run is not None):
            raise ValueError("address and gpus_per_run are for Ray: use engine='ray' (--engine ray)")
        if self.address is not None:
            check_address(self.address)
            if self.jobs != 1:
                raise ValueError(f"a Ray cluster executes as many runs at a time as fit: leave out jobs, got {self.jobs}")
        if self.gpus_per_run is not None:
            check_positive("gpus_per_run", self.gpus_per_run)
            if self.gpus_per_run > 1:
                raise ValueError(f"gpus_per_run must be at most 1, a run uses one GPU, got {shown(self.gpus_per_run)}")

    @property
    def is_this_process(self) -> bool:
        """Whether the runs are executed in this process."""
        return self.engine == "local" and self.jobs == 1

    def check(self, device: str | torch.device) -> None:
        """Refuse a device that does not fit the engine, and a cluster that does not answer."""
        if self.engine == "local":
            return
        device = torch.device(device)
        if self.gpus_per_run is not None and device.type != "cuda":
            raise ValueError(f"gpus_per_run needs device 'cuda', got {str(device)!r}: start the command on a node with a GPU")
        if device.index is not None:
            raise ValueError(f"Ray chooses the GPU of a run: use device 'cuda', got {str(device)!r}")
        check_ray(self.address)

    def build_engine(self, device: torch.device, out: Path, recipes: Iterable[Recipe]) -> Engine:
        """Return the engine for runs of these recipes in an output folder."""
        if self.engine == "local":
            return Processes(self.jobs)
        gpus = (self.gpus_per_run or 1.0) if device.type == "cuda" else 0.0
        return RayTasks(self.address, self.jobs, gpus, out, sorted({file for recipe in recipes for file in _files_of(recipe)}))


def _files_of(recipe: Recipe) -> list[str]:
    """Return the absolute paths of the files and folders that a recipe names and that exist."""
    recipe = with_absolute_paths(recipe)
    data = str(next(iter(expand(Path(recipe.data)))))  # of several shards the first
    names = data, recipe.cache, recipe.weights, recipe.model, file_and_function(recipe.policy_file)[0]
    return [name for name in names if Path(name).is_absolute() and Path(name).exists()]


def run_all(
    runs: Sequence[tuple[str, Job]],
    pool: Pool,
    *,
    device: torch.device | str = "cpu",
    out: Path = Path(),
    recipes: Iterable[Recipe] = (),
    watch: Watch = no_progress,
) -> list[Any]:
    """Return the results of runs, each given with its title.

    If a run fails or a stop is requested, the active runs save themselves, and no other run starts.

    Args:
        runs: Titles, and functions that can be pickled, for other processes.
        pool: Where the runs are executed.
        device: Where they train.
        out: The folder that they write to.
        recipes: What they train. Ray checks that the files are on a file system that all nodes share.
        watch: Returns the `on_step` of a run from its title, or that of parallel runs.
    """
    if not pool.is_this_process and (pool.engine == "ray" or len(runs) > 1) and runs:
        engine = pool.build_engine(torch.device(device), out, recipes)
        with watch(f"{pool.jobs} runs at a time" if pool.address is None else "runs on Ray") as on_step:
            return execute(engine, runs, on_step)
    results = []
    for i, (title, run) in enumerate(runs, 1):
        with watch(f"{title} ({i} of {len(runs)})" if len(runs) > 1 else title) as on_step:
            results.append(run(on_step=on_step))
    return results
