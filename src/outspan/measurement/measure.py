"""Measure what each transform alone does to a model."""

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Unpack

from outspan.config import Recipe, StudyKeys
from outspan.measurement.effects import Measurement, summarize
from outspan.measurement.recipes import baseline_recipe, measurable, select_transforms, single_transforms, study_recipe
from outspan.measurement.study import Study
from outspan.training.pool import Watch, unwatched


def measure(
    recipe: Recipe | Path | str | None = None,
    *,
    transforms: str | Sequence[str] = "all",
    seeds: int | Sequence[int] = 9,
    out: Path | str,
    probability: float | None = None,
    shared_batches: bool = False,
    jobs: int = 1,
    device: str | None = None,
    watch: Watch = unwatched,
    **keys: Unpack[StudyKeys],
) -> Measurement:
    """Train several seeds without augmentation and with each transform alone, and return the effect of each transform.

    Transforms that an earlier call measured in the same folder with all these seeds are in the result, too. The result is
    also written to `out`/scores.json and `out`/predictions.npz. The same call resumes a study that was stopped.

    Args:
        recipe: a recipe, or the path of a TOML file. The default is an mlp on the included digits.
        transforms: names of transforms, or "all".
        seeds: the number of models per configuration (seeds 0, 1, …), or the seeds. At least 2.
        out: the folder of the study. Finished models in it are not trained again.
        probability: of applying a transform to a sample. The default is 0.5 for images and 1 for text.
        shared_batches: train all seeds on the same batches. Faster, but it changes the instability.
        jobs: the number of parallel processes, with one thread each.
        device: "cpu" or "cuda". The default is the GPU, if there is one.
        watch: called with the title of each training. It returns a context manager for the `on_step` callback.
        **keys: recipe keys, e.g. `data="digits"`, `epochs=5`.

    Example::

        result = outspan.measure(data="digits", transforms=["rotate", "invert"], seeds=3, epochs=2, out="runs/measured")
        result.transforms["rotate"].effect.verdict  # "better", "worse" or "no significant difference"
    """
    base = study_recipe("measure", recipe, keys)
    names = select_transforms(transforms, base)
    baseline = baseline_recipe(base, probability)
    single_transforms(baseline, names)  # refuses transforms that cannot be measured
    options = {"shared_batches": shared_batches, "jobs": jobs, "device": device, "watch": watch}
    study = Study(baseline, seeds=seeds, out=out, **options)
    known = [name for name in measurable(base.data, base.cache) if name not in names]
    earlier = [name for name in known if study.has(name)]
    unfinished = [name for name in known if name not in earlier and study.has_any_seed(name)]
    result = study.run(single_transforms(baseline, [*names, *earlier]))
    measurement = summarize(result, earlier=earlier, unfinished=unfinished)
    measurement.save(Path(out))
    return measurement
