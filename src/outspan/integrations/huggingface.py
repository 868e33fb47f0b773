"""Export to a folder for the Hugging Face Hub: weights, configuration, labels, for texts the tokenizer, and a model card.

A text model is in the layout of transformers, an image model in that of timm. `outspan.load` reads both.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import safetensors.torch

from outspan.config import Recipe
from outspan.data.dataset import Data
from outspan.files import Json, check_new_folder, write_folder
from outspan.integrations.model_card import write_card
from outspan.messages import first_line
from outspan.text.models import load_published_tokenizer, quietly
from outspan.training.evaluate import Evaluation, LabelEvaluation, evaluate
from outspan.training.exported import CONFIG, HERE, KEY, WEIGHTS
from outspan.training.trained import Trained

_TIMM = "timm:"
_PATHS = ("data", "model", "weights", "cache", "policy_file")  # keys of a recipe that may be paths
_SIDES: Mapping[str, str] = MappingProxyType({"head": "right", "tail": "left", "head+tail": "right"})  # that are cut off


def export_huggingface(run: Trained, path: Path, splits: Data | None) -> tuple[tuple[str, ...], None]:
    """Write the model of a run as a folder. Return a report of its test accuracy."""
    check_new_folder(path)
    save = _SAVE[run.noun]  # before the evaluation, which takes longest
    evaluation, result = _evaluate(run, splits)
    public = replace(run, recipe=_without_folders(run.recipe))

    def write(folder: Path) -> None:
        library = save(run, folder, public.recipe)
        (folder / "README.md").write_text(write_card(public, path.name, library, evaluation, result), encoding="utf-8")

    write_folder(path, write)
    return (result,), None


def _evaluate(run: Trained, splits: Data | None) -> tuple[Evaluation | LabelEvaluation | None, str]:
    """Return the evaluation on the test data, if it can be read, and a sentence about it."""
    try:
        evaluation = evaluate(run, splits=splits)
    except (ValueError, OSError) as error:
        if splits is not None:
            raise
        return None, f"The model card has no accuracy, because the test data cannot be read ({first_line(error)})."
    metric, name = ("map", "mAP") if run.multi_label else ("accuracy", "accuracy")
    value, (low, high) = getattr(evaluation.metrics, metric), (100 * end for end in evaluation.intervals[metric])
    tested = evaluation.tested
    samples = run.noun if len(tested.split) > 1 else run.noun.removesuffix("s")
    on = f"{len(tested.split):,} test {samples} of {Path(tested.data.name).name}"
    return evaluation, f"Test {name} {100 * value:.2f} % (95 % interval {low:.2f} to {high:.2f}), on {on}."


def _without_folders(recipe: Recipe) -> Recipe:
    """Return a recipe without the folders of this machine: the name of a file is kept."""
    values = {key: str(getattr(recipe, key)) for key in _PATHS}
    return replace(recipe, **{key: Path(value).name for key, value in values.items() if Path(value).is_absolute()})


def _metadata(run: Trained, recipe: Recipe) -> dict[str, Json]:
    """Return what `outspan.load` needs."""
    data = {"train": run.train_count, "shape": [*run.shape], "classes": [*run.classes], "mean": [*run.mean], "std": [*run.std]}
    digests = {"train_digest": run.train_digest, "test_digest": run.test_digest}
    data |= {key: digest for key, digest in digests.items() if digest is not None}
    data |= {"multi_label": True} if run.multi_label else {}
    flags = {"stopped_early": run.stopped_early, "is_best": run.is_best}
    return {"version": version("outspan"), "step": run.step, **flags, "recipe": asdict(recipe), "data": data}


def _save_image_model(run: Trained, folder: Path, public: Recipe) -> str:
    """Write an image model in the layout of timm. Return the library that loads it."""
    is_timm = run.recipe.model.startswith(_TIMM)
    of_timm = getattr(run.model, "pretrained_cfg", {}) if is_timm else {}
    kept = {key: of_timm[key] for key in ("first_conv", "classifier") if key in of_timm}
    config = {
        "architecture": run.recipe.model.removeprefix(_TIMM),
        "num_classes": len(run.classes),
        "label_names": run.classes,
        "model_args": {"in_chans": run.shape[0]},
        "pretrained_cfg": {
            **kept,
            "input_size": run.shape,
            "fixed_input_size": False,
            "num_classes": len(run.classes),
            "mean": run.mean,
            "std": run.std,
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "center",
        },
        KEY: _metadata(run, public),
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in run.model.state_dict().items()}
    safetensors.torch.save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    return "timm" if is_timm else "outspan"


def _save_text_model(run: Trained, folder: Path, public: Recipe) -> str:
    """Write a text model in the layout of transformers, with its tokenizer. Return the library that loads it."""
    classifier: Any = run.model
    model, tokenizer = classifier.model, load_published_tokenizer(run.recipe.model)
    before, model.config = model.config, copy.deepcopy(model.config)
    model.config.id2label = dict(enumerate(run.classes))
    model.config.label2id = {name: i for i, name in enumerate(run.classes)}
    model.config.problem_type = "multi_label_classification" if run.multi_label else "single_label_classification"
    setattr(model.config, KEY, _metadata(run, replace(public, model=HERE)))
    tokenizer.model_max_length = run.shape[0]
    options: dict[str, Any] = {"truncation_side": _SIDES[run.recipe.truncate], "padding_side": "right"}
    options["split_special_tokens"] = True  # "[SEP]" in a text is text
    for name, value in options.items():
        setattr(tokenizer, name, value)
        tokenizer.init_kwargs[name] = value  # attributes that are not in it are not saved
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(classifier.padding)
    try:
        with quietly():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    finally:
        model.config = before
    return "transformers"


_SAVE: Mapping[str, Callable[[Trained, Path, Recipe], str]] = MappingProxyType(
    {"images": _save_image_model, "texts": _save_text_model}
)
