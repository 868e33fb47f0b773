"""The function `outspan.measure`: the effect of each transform alone on error, instability and accuracy."""

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Unpack

from outspan.config import Recipe
from outspan.measurement.effects import Measurement, summarize
from outspan.measurement.recipes import baseline_recipe, measurable, select_transforms, single_transforms, study_recipe
from outspan.measurement.study import Study
from outspan.recipe_keys import StudyKeys
from outspan.training.pool import Pool, Watch, no_progress


def measure(
    recipe: Recipe | Path | str | None = None,
    *,
    transforms: str | Sequence[str] = "all",
    seeds: int | Sequence[int] = 9,
    out: Path | str,
    probability: float | None = None,
    shared_batches: bool = False,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    gpus_per_run: float | None = None,
    device: str | None = None,
    watch: Watch = no_progress,
    **keys: Unpack[StudyKeys],
) -> Measurement:
    """Train several models without augmentation and with each transform alone, and return the effect of each transform.

    The result is also written to `out`/scores.json and `out`/predictions.npz. If the call is stopped, the same call
    resumes it. Transforms that an earlier call in the same folder measured with the same seeds are also in the result.

    Example::

        result = outspan.measure(data="digits", transforms=["rotate", "invert"], seeds=3, epochs=2, out="runs/measured")
        rotate = result.transforms["rotate"]
        print(rotate.effect.verdict)  # "better", "worse" or "no significant difference"
        print(rotate.scores.error.value, result.baseline.error.value)  # errors of the majority vote, as fractions

    Args:
        recipe: A `Recipe`, or the path of a TOML file. By default an mlp is trained on the included digits.
        transforms: Names of transforms as a list or separated by commas, or "all".
        seeds: Number of models with each transform (seeds 0, 1, …), or a list of seeds. At least 2.
        out: The folder of the measurement. Finished models in it are not trained again.
        probability: Probability that a transform is applied to a sample. The default is 0.5 for images and 1 for text.
        shared_batches: Train all seeds of an mlp on the same batches. This is faster, but it changes the instability.
        jobs: Number of parallel processes, with one thread each.
        engine: Where to train: "local" for processes of this machine, "ray" for Ray.
        address: With Ray, the cluster: "auto" or HOST:PORT. By default Ray is started on this machine, with `jobs` workers.
        gpus_per_run: With Ray on GPUs, the part of a GPU that a run gets, e.g. 0.25 for 4 runs per GPU. The default is 1.
        device: Where to train, as in `outspan.train`, e.g. "cpu" or "cuda:1".
        watch: Shows progress, as in `outspan.compare`.
        **keys: Other keys of the recipe, e.g. `data="digits"`, `epochs=5`. They override those of `recipe`.

    Raises:
        ValueError: If a transform, a key or the data is wrong, or if the folder has a measurement with other settings.
    """
    base = study_recipe("measure", recipe, keys)
    names = select_transforms(transforms, base)
    baseline = baseline_recipe(base, probability)
    single_transforms(baseline, names)  # refuses transforms that cannot be measured
    pool = Pool(jobs, engine, address, gpus_per_run)
    study = Study(baseline, seeds=seeds, out=out, shared_batches=shared_batches, device=device, pool=pool, watch=watch)
    known = [name for name in measurable(base.data, base.cache) if name not in names]
    earlier = [name for name in known if study.has(name)]
    unfinished = [name for name in known if name not in earlier and study.has_any_seed(name)]
    result = study.run(single_transforms(baseline, [*names, *earlier]))
    measurement = summarize(result, earlier=earlier, unfinished=unfinished)
    measurement.save(study.folder.out)
    return measurement
