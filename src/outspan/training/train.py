"""The function `outspan.train`: start a run, or resume it."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from typing_extensions import Unpack

from outspan.config import Recipe, build_recipe
from outspan.data.sets import Data, load_for, noun_of
from outspan.data.stratify import with_fold
from outspan.files import output_folder, remove_partials
from outspan.limits import check_whole
from outspan.policies.table import warn_ignored_keys
from outspan.recipe_keys import RecipeKeys
from outspan.shapes import describe
from outspan.training import OnStep, checkpoint
from outspan.training.distributed import check_divides, check_same_start
from outspan.training.joining import joined
from outspan.training.lock import locked
from outspan.training.loop import train_epochs
from outspan.training.run import Run, Summary
from outspan.training.setup import Options, build_setup, use_algorithms, with_absolute_paths
from outspan.training.trackers import Track, find_trackers


def train(
    recipe: Recipe | Path | str | None = None,
    *,
    out: Path | str,
    device: str | torch.device | None = None,
    splits: Data | None = None,
    compile: bool = False,
    graphs: bool = True,
    deterministic: bool = False,
    channels_last: bool | None = None,
    workers: int | None = None,
    track: Track = (),
    skip_bad: int = 0,
    save_every: float = 30.0,
    on_begin: Callable[[str], object] = lambda description: None,
    on_step: OnStep | None = None,
    **keys: Unpack[RecipeKeys],
) -> Summary:
    """Train a classifier in a folder, or resume the run in that folder. A finished run returns its summary at once.

    Example::

        summary = outspan.train(data="photos/", model="resnet-18", policy="random", epochs=20, out="runs/a")
        outspan.train("recipe.toml", out="runs/b", lr=0.2)
        outspan.train(Recipe(data="digits"), out="runs/c")

    Args:
        recipe: A `Recipe`, or the path of a TOML file. By default all keys have their default values.
        out: The folder of the run. If it contains a run of the same recipe and data, that run is resumed.
        device: Where to train: "cpu", "cuda", "cuda:1" or "mps". By default a GPU of "cuda" if there is one, otherwise the CPU.
            Under torchrun, the GPU of the process.
        splits: An `outspan.data.sets.Data`, used instead of the data that the recipe names.
        compile: Compile the model with `torch.compile`.
        graphs: On a GPU, record the steps as CUDA graphs.
        deterministic: On a GPU, make results bit-identical between runs; slower.
        channels_last: Store images and convolutions with the channels as the last dimension, which is often faster for large
            images. By default only on a GPU.
        workers: Number of processes that read image files. By default one per core, at most 8. 0: read in this process.
        track: What else gets the metrics of each epoch: "tensorboard", "wandb" (Weights & Biases), a function that takes an
            `EpochReport`, or a list of these. About ten times in a run it also gets images before and after augmentation.
        skip_bad: Tolerate up to this number of unreadable files in an image folder or in tar shards, or of rows of a table
            without a text or a label, which are left out.
        save_every: Seconds between checkpoints, or more if saving would take over 5 % of the time. 0: save after every step.
        on_begin: Called with a description of the run before its first step, in every process.
        on_step: Called with a `Progress` after every step. If any process returns True, the run saves and raises `Stopped`.
        **keys: Keys of the recipe, e.g. `epochs=20`. They override those of `recipe`.

    Raises:
        ValueError: If a key is wrong, if the data cannot be read, if the folder contains another run, or if the training
            diverges.
        Stopped: If `on_step` returned True. The same call resumes the run.
    """
    if workers is not None:
        check_whole("workers", workers, 0)
    with joined(device) as (ranks, where), use_algorithms(deterministic=deterministic), ExitStack() as stack:
        folder = ranks.together(lambda: output_folder(out))
        starts = ranks.together(lambda: find_trackers(track))
        has_begun = ranks.on_first(lambda: checkpoint.has_checkpoints(folder))

        def prepare() -> Run:
            built = with_absolute_paths(build_recipe(recipe, keys, noun_of))
            check_divides(built.batch, ranks.world)
            warn_ignored_keys(keys, built, [built.policy])
            if not isinstance(splits, Data | None):
                raise ValueError(f"splits must be an outspan.data.sets.Data, got {describe(splits)}")
            data = load_for(built, skip_bad=skip_bad, workers=workers) if splits is None else with_fold(splits, built)
            options = {"compiled": compile, "graphs": graphs, "deterministic": deterministic, "channels_last": channels_last}
            setup = build_setup(built, data, Options(where, ranks=ranks, **options), has_begun=has_begun)
            return Run(setup, folder, where)

        run = ranks.together(prepare)
        check_same_start(ranks, run.provenance)

        def enter() -> None:
            folder.mkdir(parents=True, exist_ok=True)  # all checks that do not read the folder have passed
            stack.enter_context(locked(folder))  # no file is read or written before: another process may be using the folder

        def begin() -> None:
            remove_partials(folder)
            run.trackers = [stack.enter_context(start(folder, run.recipe, run.step)) for start in starts]

        ranks.on_first(enter)
        run.resume()
        if not run.is_finished:  # a finished run is only read: its folder may be read-only
            ranks.on_first(begin)
            on_begin(run.describe())
            train_epochs(run, save_every=save_every, on_step=on_step, agree=ranks.agree)
        return run.summary()
