"""The model card of an exported run: its data, recipe, accuracy by class, what was chosen, and how to load it."""

import html
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

import torch

from outspan.config import write_recipe
from outspan.shapes import describe_size
from outspan.training import compositions
from outspan.training.evaluate import Evaluation, LabelEvaluation
from outspan.training.trained import Trained
from outspan.training.validation import BEST_METRICS

_MOST = 10  # compositions that are listed
_TASKS: Mapping[str, str] = MappingProxyType({"images": "image-classification", "texts": "text-classification"})
# How to load the model, by library. NAME is the name of the folder.
_USE: Mapping[str, str] = MappingProxyType(
    {
        "outspan": """import outspan

run = outspan.load("NAME")  # this folder; after an upload: huggingface_hub.snapshot_download("USER/NAME")
print(outspan.predict(run, ["photo.jpg"]).LIKELY)
""",
        "timm": """import timm

model = timm.create_model("local-dir:NAME", pretrained=True).eval()  # after an upload: "hf-hub:USER/NAME"
""",
        "transformers": """from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("NAME")  # this folder; after an upload: "USER/NAME"
model = AutoModelForSequenceClassification.from_pretrained("NAME")
tokens = tokenizer(TEXTS, truncation=True, padding=True, return_tensors="pt")
print(model(**tokens).logits.PROBABILITIES)
""",
    }
)
# The metric, and for the Python code the likely classes and the probabilities.
_SINGLE_LABEL = "accuracy", "top(3)", "softmax(1)"
_MULTI_LABEL = "mAP", "labels(0.5)", "sigmoid()"
_SINGLE_TEXT, _PAIR = '["A text."]', '["A text."], ["The second text of the pair."]'
_OF_EVERY_RUN = {
    "epoch",
    "step",
    "train_loss",
    "lr",
    "test_accuracy",
    *(f"validation_{metric}" for metric in BEST_METRICS),
}  # metrics of all policies


def write_card(run: Trained, name: str, library: str, evaluation: Evaluation | LabelEvaluation | None, result: str) -> str:
    """Return the model card of a run as Markdown. `result` is a sentence about the accuracy."""
    task, recipe = _TASKS[run.noun], run.recipe
    metric, likely, probabilities = _MULTI_LABEL if run.multi_label else _SINGLE_LABEL
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    header = f"---\nlibrary_name: {library}\npipeline_tag: {task}\ntags:\n- outspan\n- {task}\nmetrics:\n- {metric}\n---\n"
    texts = _PAIR if "," in recipe.text_column else _SINGLE_TEXT
    use = (
        _USE[library]
        .replace("LIKELY", likely)
        .replace("TEXTS", texts)
        .replace("PROBABILITIES", probabilities)
        .replace("NAME", _plain(name))
    )
    several = ", of which a sample can have several" if run.multi_label else ""
    average = f" The weights are an exponential moving average with decay {recipe.ema:g}." if recipe.ema else ""
    average += f" They are those of the best epoch by validation, after step {run.step:,}." if run.is_best else ""
    unfinished = "" if run.is_finished or run.is_best else f" The run is not finished: this is step {run.step:,}."
    parts = [
        f"{header}\n# {_cell(name)}\n",
        f"A classifier of {run.noun} with {len(run.classes)} classes{several}: model {_cell(recipe.model)}, "
        f"{parameters:,} parameters, trained with outspan {version('outspan')} and torch {torch.__version__}.\n",
        f"## Use\n\n```python\n{use}```\n",
        f"## Data\n\nTrained on {run.train_count:,} {run.noun} of {_cell(recipe.data)}. "
        f"Size of a sample: {describe_size(run.shape)}.\n",
        f"## Accuracy\n\n{_cell(result)}\n",
        *([] if evaluation is None else [_class_table(evaluation)]),
        f"## Training\n\nSeed {recipe.seed}, {run.steps:,} steps.{average}{unfinished} The recipe (other keys have "
        f"their defaults):\n\n```toml\n{write_recipe(recipe)}```\n",
        *_policy(run),
    ]
    return "\n".join(parts)


def _class_table(evaluation: Evaluation | LabelEvaluation) -> str:
    if isinstance(evaluation, LabelEvaluation):
        rows = [
            [_cell(name), f"{one.support:,}", *map(_percent, (one.average_precision, one.recall, one.precision, one.f1))]
            for name, one in evaluation.scores.items()
        ]
        return _table(("class", "samples", "average precision, %", "recall, %", "precision, %", "F1, %"), rows)
    rows = [
        [_cell(name), f"{scores.support:,}", *map(_percent, (scores.recall, scores.precision, scores.f1))]
        for name, scores in evaluation.scores.items()
    ]
    return _table(("class", "samples", "accuracy (recall), %", "precision, %", "F1, %"), rows)


def _policy(run: Trained) -> list[str]:
    """Return sections about the compositions that were chosen, and about a policy that learns."""
    sections = []
    if (run.folder / compositions.FILE).exists():
        curves = compositions.fractions(compositions.read(run.folder))
        means = {name: sum(curve) / len(curve) for name, curve in curves.items()}
        best = sorted(means, key=lambda name: -means[name])[:_MOST]
        rows = [[_cell(name), f"{100 * means[name]:.2f}", f"{100 * curves[name][-1]:.2f}"] for name in best]
        table = _table(("composition", "mean over epochs, %", "last epoch, %"), rows)
        sections.append(f"## Chosen compositions\n\nThe transforms that the policy has chosen most often:\n\n{table}")
    if learned := {key: value for key, value in _last_metrics(run.folder).items() if key not in _OF_EVERY_RUN}:
        table = _table(("", "value"), [[_cell(key), f"{value:.4g}"] for key, value in learned.items()])
        sections.append(f"## Augmentation\n\nThe policy in the last epoch:\n\n{table}")
    return sections


def _last_metrics(folder: Path) -> dict[str, float]:
    """Return the metrics of the last epoch of a run; nothing of an exported one."""
    file = folder / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return json.loads(lines[-1]) if lines else {}


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def _plain(text: str) -> str:
    """Return a text with control characters, quotes and fences removed."""
    return "".join(character for character in text if character.isprintable() and character not in "\"'`\\")


def _cell(text: str) -> str:
    """Return a text that is not trusted, escaped for a cell of a table."""
    printable = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    escaped = html.escape(printable, quote=False)
    return "".join(f"&#{ord(character)};" if character in "|`*[]" else character for character in escaped)
