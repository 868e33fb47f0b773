"""The test samples on which a model is most wrong."""

from typing import NamedTuple

import torch

from outspan.figures.markup import Markup, element
from outspan.reporting.page import paragraph, subsection
from outspan.reporting.samples import TILES, label_names, name_of, show_samples
from outspan.training.evaluate import Evaluation, LabelEvaluation
from outspan.training.label_metrics import THRESHOLD


class _Mistake(NamedTuple):
    row: int  # of the test split
    truth: str
    guess: str


def show_wrong(evaluation: Evaluation | LabelEvaluation, count: int) -> Markup:
    """Return the test samples with the highest loss among those that are misclassified."""
    every = _find_labels(evaluation) if isinstance(evaluation, LabelEvaluation) else _find_classes(evaluation)
    samples, mistakes = evaluation.tested.data.test, every[:count]
    noun = samples.noun
    title = f"The {len(mistakes)} test {noun} with the worst predictions"
    if not mistakes:
        total = len(evaluation.labels)
        return subsection("Wrong predictions", paragraph(f"None: all {total:,} test {noun} are classified correctly."))
    names = [name_of(samples, one.row) for one in mistakes]
    alts = [f"{name}: {one.truth}, predicted as {one.guess}" for name, one in zip(names, mistakes, strict=True)]
    shown, tiles = show_samples(samples, [one.row for one in mistakes], alts), []
    for name, sample, one in zip(names, shown, mistakes, strict=True):
        true = element("div", "true: ", element("span", one.truth, class_="good"))
        other = element("div", "predicted: ", element("span", one.guess, class_="bad"))
        tiles.append(element("li", sample, true, other, element("div", name, class_="muted")))
    return subsection(title, element("ul", tiles, class_=f"{TILES[noun]} filtered", data_name=title))


def _find_classes(evaluation: Evaluation) -> list[_Mistake]:
    """Return the misclassified samples with their probabilities, those with the highest loss first."""
    probabilities, labels, classes = evaluation.probabilities, evaluation.labels.cpu(), evaluation.run.classes
    predicted, of_label = probabilities.argmax(1), probabilities.gather(1, labels[:, None])[:, 0]
    wrong = (predicted != labels).nonzero()[:, 0]
    mistakes = []
    for row in wrong[of_label[wrong].argsort(stable=True)].tolist():
        truth, guess = int(labels[row]), int(predicted[row])
        texts = [f"{classes[one]} ({100 * float(probabilities[row, one]):.1f} %)" for one in (truth, guess)]
        mistakes.append(_Mistake(row, *texts))
    return mistakes


def _find_labels(evaluation: LabelEvaluation) -> list[_Mistake]:
    """Return the samples with a wrong label, those with the highest sum of binary cross entropies first."""
    probabilities, labels, classes = evaluation.probabilities, evaluation.labels.cpu(), evaluation.run.classes
    losses = torch.nn.functional.binary_cross_entropy(probabilities, labels.double(), reduction="none").sum(1)
    predicted = probabilities > THRESHOLD
    wrong = (predicted != labels).any(1).nonzero()[:, 0]
    rows = wrong[losses[wrong].argsort(descending=True, stable=True)].tolist()
    return [_Mistake(row, *(label_names(classes, one[row].tolist()) for one in (labels, predicted))) for row in rows]
