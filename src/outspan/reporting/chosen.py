"""What a policy chose over time, with examples: samples before and after, and their losses."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from outspan import rng
from outspan.data.dataset import Data
from outspan.figures.candidates import Row
from outspan.figures.charts import Axis, Series, line_chart
from outspan.figures.markup import Cell, Markup, element, join, table
from outspan.models.evaluating import evaluating
from outspan.models.outputs import read_logits
from outspan.plan import Plan
from outspan.policies.objectives import find_objective
from outspan.policies.proposals import over_range, sequence
from outspan.policies.protocols import LearningPolicy
from outspan.policies.table import build_policy
from outspan.policies.targets import make_targets
from outspan.reporting.page import charts, paragraph, subsection
from outspan.reporting.runs import Detail, RunResult
from outspan.reporting.samples import TILES, label_names, show_augmented
from outspan.training.compositions import fractions, mean_by_fifth, most_changed
from outspan.training.trained import Trained
from outspan.transforms.apply import apply
from outspan.transforms.table import find

_COUNT = 4  # samples that are shown with each composition
_LINES = 8  # of the chart that have a name
_CORPUS = 200  # samples that are prepared: the frequencies of words, for texts, are those of these
_LEAST = 0.2  # of the mean count that a composition needs, so that its rank is not chance
_ABOVE = "Not in this report, for the reason given above."


@dataclass(frozen=True, eq=False)
class Drawn:
    """Candidates that a policy draws for some training samples, with their losses, and which of them it keeps."""

    inputs: Any  # the batch of samples
    plan: Plan  # of all candidates
    losses: Tensor  # [samples, candidates]
    kept: Tensor  # bool [samples, candidates]
    names: list[str]  # the transforms of each candidate
    labels: list[str]  # the class of each sample


def show_chosen(run: RunResult, detail: Detail) -> Markup:
    """Return what the policy of a run chose: compositions over the epochs, or strengths and weights, and examples."""
    title = "What was chosen"
    if run.lines:
        return subsection(title, _over_time(run), _examples(run, detail.compositions), _candidates(run, detail.candidates))
    weights = _weights(run)
    if weights is None:
        sentence = f"The policy {run.recipe.policy} chooses nothing: it does not look at the model."
        is_plain = "written by a policy" in run.no_lines
        weights = paragraph(sentence if is_plain else f"Not in this report: {run.no_lines}", kind="muted")
    return subsection(title, weights, _show_policy(run, detail.augmented))


def _over_time(run: RunResult) -> Markup:
    curves = fractions(run.lines)
    parts, named = mean_by_fifth(curves), most_changed(curves, count=_LINES // 2)
    epochs = [line["epoch"] + 1 for line in run.lines]
    grey = [name for name in curves if name not in named][:60]
    series = [Series(name, epochs, [100 * value for value in curves[name]], faint=True) for name in grey]
    series += [Series(name, epochs, [100 * value for value in curves[name]]) for name in named]
    chart = line_chart(
        series, Axis("epoch", "whole"), Axis("of all choices, %"), title="Fraction of each composition",
        note="Coloured: those that rose and fell most. Grey: others.",
    )  # fmt: skip
    losses = _mean_losses(run)
    rows = []
    for name, values in sorted(parts.items(), key=lambda item: -sum(item[1])):
        mean = sum(values) / len(values)
        shown = [Cell(f"{100 * value:.2f}", value) for value in (values[0], values[-1])]
        rows.append(
            [name, Cell(f"{100 * mean:.2f}", mean, min(1.0, mean / max(map(max, parts.values())))), *shown, losses[name]]
        )
    columns = ["composition", "of all choices, %", "first fifth, %", "last fifth, %", "mean loss when chosen"]
    listed = table(columns, rows[:200], caption=f"Compositions by how often they were chosen ({len(rows):,} in all)")
    return join([charts(chart), listed])


def _mean_losses(run: RunResult) -> dict[str, Cell]:
    """Return the mean loss of each composition when it was chosen, over all epochs. Both orders of a pair are one."""
    sums: dict[str, list[float]] = {}
    for line in run.lines:
        for name, entry in line["compositions"].items():
            total = sums.setdefault("+".join(sorted(name.split("+"))), [0.0, 0.0])
            total[0] += entry["count"]
            total[1] += entry["count"] * float(entry.get("loss", 0.0))
    return {name: Cell(f"{loss / count:.3f}", loss / count) for name, (count, loss) in sums.items()}


def _weights(run: RunResult) -> Markup | None:
    """Return the strength and the weights of transforms over the epochs, for policies that report them."""
    rows = run.metrics.rows
    keys = list(dict.fromkeys(key for row in rows for key in row))
    epoch, drawn = Axis("epoch", "whole"), []
    strength = "strength", Axis("strength"), "Strength"
    fraction = Axis("fraction of the samples", "fraction")
    for key, y, title in (strength, ("mixed", fraction, "Mixed samples"), ("skipped", fraction, "Easy samples left out")):
        if key in keys:
            drawn.append(line_chart([_series(rows, key, key)], epoch, y, title=title))
    weights = [_series(rows, key, key.removeprefix("weight_")) for key in keys if key.startswith("weight_")]
    ranked = sorted(weights, key=lambda one: one.y[-1])
    if ranked:
        note = "1: drawn as often as any other. Lower: rarely, because it hides the label or does not suit the data."
        drawn.append(
            line_chart(
                ranked[:_LINES], epoch, Axis("weight", "fraction"), title="Transforms with the lowest weights", note=note
            )
        )
    if not drawn:
        return None
    listed = [[one.name, Cell(f"{one.y[-1]:.2f}", one.y[-1], min(one.y[-1], 1.0))] for one in ranked]
    return join([charts(drawn), table(["transform", "weight at the end"], listed, caption="Weights") if listed else None])


def _series(rows: Sequence[Mapping[str, float]], key: str, name: str) -> Series:
    kept = [row for row in rows if key in row]
    return Series(name, [row["epoch"] + 1 for row in kept], [row[key] for row in kept])


def _examples(run: RunResult, count: int) -> Markup:
    """Return samples before and after the compositions that were chosen most and least often."""
    title = "The compositions chosen most and least often, on training samples"
    if run.trained is None or run.tested is None:
        return subsection(title, paragraph(_ABOVE, kind="missing"))
    counts: dict[str, int] = {}
    for line in run.lines:
        for name, entry in line["compositions"].items():
            counts[name] = counts.get(name, 0) + int(entry["count"])
    enough = [name for name in counts if counts[name] >= _LEAST * sum(counts.values()) / len(counts)]
    ranked = [name for name in sorted(enough or counts, key=counts.__getitem__, reverse=True) if name != "none"]
    most, least = ranked[:count], ranked[count:][-count:]
    parts = [paragraph("The losses are those of the trained model. The levels are drawn at random.", kind="muted")]
    for heading, names in (("Chosen most often", most), ("Chosen least often", least)):
        blocks = [_before_and_after(run, run.trained, run.tested.data, name, counts[name]) for name in names]
        parts += [subsection(heading, blocks, level=4)] if blocks else []
    return subsection(title, parts)


def _before_and_after(run: RunResult, trained: Trained, data: Data, name: str, count: int) -> Markup:
    inputs, labels, classes = _batch(trained, data, _COUNT)
    steps = [over_range(part, 1.0, run.recipe.profile) for part in name.split("+")]
    plan = sequence(*steps)(len(labels), rng=rng.generator(run.recipe.seed, "report", name))
    heading = element("p", element("strong", name), f", chosen {'once' if count == 1 else f'{count:,} times'}")
    return join([heading, _pairs(trained, data.train.noun, (inputs, labels, classes), plan, [name] * len(labels))])


def _show_policy(run: RunResult, count: int) -> Markup:
    """Return training samples before and after the policy of a run, in the state that it had at the end."""
    title = "Training samples before and after the policy"
    if run.trained is None or run.tested is None:
        return subsection(title, paragraph(_ABOVE, kind="missing"))
    trained, data = run.trained, run.tested.data
    policy = build_policy(trained.recipe, trained.model, data, trained.preprocess)
    if isinstance(policy, LearningPolicy):
        policy.load_state_dict(dict(run.policy_state))
    inputs, labels, classes = _batch(trained, data, count)
    step = max(0, int((1 - trained.recipe.finish) * trained.step) - 1)  # before the last epochs, which are not augmented
    plan = policy(inputs, labels, step=step).plan  # pyright: ignore[reportArgumentType]
    plan = plan[torch.arange(0, len(plan), len(plan) // len(labels))]  # one output of each sample
    names = [_describe(plan, row) for row in plan.out.tolist()]
    if set(names) == {"unchanged"}:
        return subsection(title, paragraph("At the end of the run, the policy changes none of the samples.", kind="muted"))
    note = paragraph("The policy at the end of the run. The losses are those of the trained model.", kind="muted")
    return subsection(title, note, _pairs(trained, data.train.noun, (inputs, labels, classes), plan, names))


def _pairs(trained: Trained, noun: str, samples: tuple[object, Tensor, list[str]], plan: Plan, names: Sequence[str]) -> Markup:
    """Return samples before and after a plan, with their losses. `names` are those of the transforms of each sample."""
    inputs, labels, classes = samples
    nothing = Plan.of([[]] * len(labels))
    before, after = (_losses(trained, inputs, labels, one) for one in (nothing, plan))
    originals = show_augmented(noun, inputs, nothing, trained.preprocess, [f"{label}, before" for label in classes])
    alts = [f"{label}, after {name}" for label, name in zip(classes, names, strict=True)]
    tiles = []
    for i, changed in enumerate(show_augmented(noun, inputs, plan, trained.preprocess, alts)):
        name = element("div", names[i], class_="muted") if len(set(names)) > 1 else None
        text = f"{classes[i]}: loss {before[i]:.2f} → {after[i]:.2f}"
        tiles.append(element("li", element("div", originals[i], changed, class_="pair"), text, name))
    return element("ul", tiles, class_="tiles four")


def _batch(trained: Trained, data: Data, count: int) -> tuple[object, Tensor, list[str]]:
    """Return the inputs, the labels and the class names of some training samples."""
    rows = torch.from_numpy(rng.generator(0, "report").permutation(len(data.train))[:_CORPUS].copy())
    with warnings.catch_warnings():  # about the data, which the training has given
        warnings.simplefilter("ignore")
        split = data.train.take(rows).prepared(trained.recipe, train=True)
    inputs, labels = next(iter(split.batches([torch.arange(min(count, len(split)))], torch.device("cpu"))))
    return inputs, labels, [label_names(trained.classes, label) for label in labels.tolist()]


def _losses(trained: Trained, inputs: object, labels: Tensor, plan: Plan) -> list[float]:
    targets = make_targets(inputs, labels, plan, len(trained.classes))  # pyright: ignore[reportArgumentType]
    with evaluating(trained.model):
        logits = read_logits(trained.model(trained.preprocess.execute(inputs, plan)))
        return find_objective(labels).loss(logits, targets, reduction="none").tolist()


def draw_candidates(trained: Trained, data: Data, count: int) -> Drawn | None:
    """Return the candidates that the policy of a run draws for some training samples; None if it keeps all it draws."""
    inputs, labels, classes = _batch(trained, data, count)
    policy = build_policy(trained.recipe, trained.model, data, trained.preprocess)
    batch = policy(inputs, labels, step=0)  # pyright: ignore[reportArgumentType]
    if batch.losses is None or batch.chosen is None:
        return None
    plan, chosen = batch.drawn, torch.zeros(batch.losses.numel(), dtype=torch.bool)
    chosen[batch.chosen] = True
    names = [_describe(plan, row) for row in plan.out.tolist()]
    return Drawn(inputs, plan, batch.losses, chosen.view_as(batch.losses), names, classes)


def candidate_rows(trained: Trained, data: Data, count: int) -> list[Row]:
    """Return the candidates that the policy of a run draws for some training images, as a figure shows them."""
    drawn = draw_candidates(trained, data, count)
    if drawn is None:
        problem = f"policy {trained.recipe.policy} of the run keeps all candidates that it draws"
        raise ValueError(f"{problem}: pass a run with policy uncertain and keep below candidates")
    if not isinstance(drawn.inputs, Tensor):
        raise ValueError(f"candidates are drawn for images, got a run on {trained.noun}: use `outspan report`")
    shown = apply(drawn.inputs, drawn.plan, fill=trained.preprocess.fill).permute(0, 2, 3, 1).numpy()  # pyright: ignore
    originals, per_sample = drawn.inputs.permute(0, 2, 3, 1).numpy(), drawn.losses.shape[1]
    rows = []
    for i, label in enumerate(drawn.labels):
        own = slice(i * per_sample, (i + 1) * per_sample)
        losses, kept = drawn.losses[i].tolist(), drawn.kept[i].tolist()
        rows.append(Row(label, originals[i], list(shown[own]), drawn.names[own], losses, kept))
    return rows


def _describe(plan: Plan, row: int) -> str:
    """Return the transforms of a row of a plan."""
    steps = zip(plan.ops[row].tolist(), plan.levels[row].tolist(), strict=True)
    names = [plan.names[op] for op, level in steps if op >= 0 and (level or not find(plan.names[op]).graded)]
    return " + ".join(names) or "unchanged"


def _candidates(run: RunResult, count: int) -> Markup:
    """Return the candidates of some training samples, their losses, and the choice of the trained model."""
    title = "Candidates, their losses and the choice"
    if run.trained is None or run.tested is None:
        return subsection(title, paragraph(_ABOVE, kind="missing"))
    drawn = draw_candidates(run.trained, run.tested.data, count)
    if drawn is None:
        return join([])
    noun, per_sample, nothing = run.trained.noun, drawn.losses.shape[1], Plan.of([[]] * len(drawn.labels))
    alts = [f"{drawn.labels[i // per_sample]} after {name}" for i, name in enumerate(drawn.names)]
    shown = show_augmented(noun, drawn.inputs, drawn.plan, run.trained.preprocess, alts)
    originals = show_augmented(noun, drawn.inputs, nothing, run.trained.preprocess, drawn.labels)
    blocks = []
    for i, label in enumerate(drawn.labels):
        tiles = [element("li", originals[i], f"{label}, unchanged")]
        for j in range(per_sample):
            at, is_kept = i * per_sample + j, bool(drawn.kept[i, j])
            loss = f"loss {drawn.losses[i, j]:.2f}" + (", chosen" if is_kept else "")
            name = element("div", drawn.names[at])
            tiles.append(element("li", shown[at], element("strong", loss), name, class_="chosen" if is_kept else None))
        blocks.append(element("ul", tiles, class_=TILES[noun]))
    note = paragraph("For each of these training samples the policy keeps the candidates with a high loss.", kind="muted")
    return subsection(title, note, blocks)
