"""A draw that changes nothing is drawn again, and the plan has the final draw."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from outspan import Auto, Plain, Plan, Uncertain, sequence, train, uniform
from outspan.policies.drawing import draw
from outspan.policies.ranks import Part
from outspan.policies.steps import Step
from outspan.text.documents import Documents
from outspan.text.executor import PadTokens, apply
from outspan.text.tokens import encode

TEXTS = ["the film was very dull.", "a lovely story with music.", "great music in the film!", "quite a boring plot.", "the"]


class Reader(torch.nn.Module):
    """The sum of the tokens as the logit of the second class."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        total = tokens.sum(1).float()
        return torch.stack([-total, total], 1) / 100


def batch_of(texts, tokenizer, length=16):
    split = encode(Documents(texts, torch.arange(len(texts)) % 2), tokenizer, length=length)
    return next(split.batches([torch.arange(len(texts))], torch.device("cpu")))


def policies():
    propose = uniform(1, transforms=("switchout", "word_replacement"), probability=1.0)
    yield Plain(propose, classes=2, preprocess=PadTokens())
    yield Uncertain(Reader(), propose, candidates=4, preprocess=PadTokens())
    yield Auto(propose, classes=2, epochs=100, steps=1000, preprocess=PadTokens())


def test_few_candidates_are_unchanged_and_a_plan_replays_exactly(tokenizer):
    passages, labels = batch_of(TEXTS[:4] * 20, tokenizer)
    for policy in policies():
        counts = [policy(passages, labels, step=step).unchanged for step in range(10)]
        unchanged, total = map(sum, zip(*counts, strict=True))
        assert total > 700
        assert unchanged <= 0.05 * total
        batch = policy(passages, labels, step=3)
        replayed = apply(passages, batch.plan)
        assert torch.equal(batch.inputs[:, : replayed.shape[1]], replayed)
        assert torch.equal(policy(passages, labels, step=3).inputs, batch.inputs)


def test_only_unchanged_rows_are_drawn_again(tokenizer):
    passages, labels = batch_of(TEXTS * 12, tokenizer)
    propose = uniform(1, transforms=("switchout",), probability=1.0)
    once = Plain(propose, classes=2, preprocess=replace_redraw(PadTokens()))(passages, labels, step=0)
    again = Plain(propose, classes=2, preprocess=PadTokens())(passages, labels, step=0)
    plain = PadTokens()(passages)
    width = min(plain.shape[1], once.inputs.shape[1], again.inputs.shape[1])
    kept = (once.inputs[:, :width] != plain[:, :width]).any(1)
    assert 0 < int(kept.sum()) < len(kept)
    assert torch.equal(again.inputs[kept, :width], once.inputs[kept, :width])
    assert (again.inputs[~kept, :width] != plain[~kept, :width]).any(1).float().mean() > 0.5


def replace_redraw(preprocess: PadTokens):
    """Return a preprocess that does the same but cannot tell which outputs are unchanged."""

    class Once:
        def __call__(self, inputs):
            return preprocess(inputs)

        def execute(self, inputs, plan):
            return preprocess.execute(inputs, plan)

        def check(self, inputs):
            preprocess.check(inputs)

    return Once()


def test_the_longest_text_can_become_shorter(tokenizer):
    """Its first draw determined the width of the batch."""
    passages, _ = batch_of(["the film was very dull. a lovely story. great music! " * 2, "the film"], tokenizer, length=48)
    crop = Plan.of([["sentence_crop"], []], levels=[[1.0], []])
    outputs = PadTokens().augment(passages, Plan.of([[], []]))
    assert outputs.redraw(np.array([0]), Plan.of([["sentence_crop"]], levels=[[1.0]], source=[0])).tolist() == [0]
    expected = apply(passages, crop)
    assert expected.shape[1] < PadTokens()(passages).shape[1]
    assert torch.equal(outputs.to_inputs(), expected)


def test_texts_without_transforms_are_not_drawn_again(tokenizer):
    passages, labels = batch_of(TEXTS, tokenizer)
    batch = Plain(sequence(Step("switchout", 0.0, 1.0, 0.0)), classes=2, preprocess=PadTokens())(passages, labels, step=0)
    assert batch.unchanged == (0, 0)
    assert torch.equal(batch.inputs, PadTokens()(passages))


def test_defaults_of_texts_are_drawn_without_other_transforms(tokenizer):
    """In the finish of a run, the strength is 0."""
    passages, labels = batch_of(TEXTS * 8, tokenizer)
    defaults = uniform(1, transforms=("word_swap",), probability=1.0)
    options = {"classes": 2, "steps": 100, "finish": 0.5, "defaults": defaults, "preprocess": PadTokens()}
    plain, auto = (
        kind(uniform(1, transforms=("switchout",)), **options, **more) for kind, more in ((Plain, {}), (Auto, {"epochs": 10}))
    )
    assert torch.equal(auto(passages, labels, step=60).inputs, plain(passages, labels, step=60).inputs)


def test_a_draw_that_cannot_change_its_text_ends(tokenizer):
    passages, labels = batch_of(["!", "."], tokenizer)  # no words to replace
    batch = Plain(sequence(Step("word_replacement")), classes=2, preprocess=PadTokens())(passages, labels, step=0)
    assert batch.unchanged == (2, 2)
    assert torch.equal(batch.inputs, PadTokens()(passages))


def test_all_ranks_draw_the_same_rows_again(tokenizer):
    passages, labels = batch_of(TEXTS * 4 + TEXTS[:4], tokenizer)
    policy = Uncertain(Reader(), uniform(1, transforms=("switchout",), probability=1.0), candidates=2, keep=2,
                       preprocess=PadTokens(), classes=2)  # fmt: skip
    whole = policy(passages, labels, step=0)
    flags = PadTokens().augment(passages, policy_plan(policy, len(passages), range(1))).unchanged()
    assert flags.any()
    parts = []
    for rows in (range(12), range(12, 24)):
        own = replace(passages, rows=passages.rows[rows.start : rows.stop])
        parts.append(policy(Part(own, rows, 24, gathered(policy, passages)), labels, step=0))
    for part, rows in zip(parts, (slice(0, 24), slice(24, 48)), strict=True):
        assert part.plan.to_json() == whole.plan.to_json()
        width = min(part.inputs.shape[1], whole.inputs.shape[1])
        assert torch.equal(part.inputs[:, :width], whole.inputs[rows, :width])


def policy_plan(policy: Uncertain, size: int, attempts: range) -> Plan:
    return draw(policy.propose, "none", size, candidates=2, seed=0, step=0, attempts=attempts)


def gathered(policy: Uncertain, passages):
    """Return a function that returns the values of the whole batch, group by group, as an all-reduce would.

    First which outputs are unchanged, then the first attempt of each group that changes them.
    """
    size, groups = len(passages), (range(1, 4), range(4, 16))
    same = [PadTokens().augment(passages, policy_plan(policy, size, range(i, i + 1))).unchanged() for i in range(16)]
    values, rows = [torch.from_numpy(same[0]).float()], same[0].copy()
    for attempts in groups:
        changes = np.stack([~same[attempt] for attempt in attempts] + [np.ones_like(rows)])
        first = np.where(rows, changes.argmax(axis=0), 0)
        values.append(torch.from_numpy(first).float())
        rows &= first == len(attempts)
    return lambda own: values.pop(0)


def test_several_attempts_are_those_of_single_draws():
    propose = uniform(2, transforms=("switchout", "word_swap"), probability=0.7)
    confidence = torch.linspace(0, 1, 6)
    options = {"candidates": 2, "seed": 3, "step": 5, "strength": 0.6, "confidence": confidence}
    for ranks in ((0, 1), (1, 2)):
        together = draw(propose, "none", 6, attempts=range(2, 5), ranks=ranks, **options)
        single = [draw(propose, "none", 6, attempts=range(i, i + 1), ranks=ranks, **options) for i in range(2, 5)]
        assert together.to_json() == Plan.cat(single).to_json()


def test_the_metrics_have_the_fraction_of_unchanged_candidates(corpus, tiny_model, tmp_path):
    keys = {"data": str(corpus), "model": str(tiny_model), "length": 48, "batch": 8, "device": "cpu"}
    train(**keys, policy="uncertain", epochs=2, out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(0 <= row["unchanged"] <= 0.05 for row in rows)
    train(**keys, policy="none", epochs=1, out=tmp_path / "none")
    assert "unchanged" not in (tmp_path / "none" / "metrics.jsonl").read_text()


def test_many_unchanged_texts_are_a_warning_once_per_run(tiny_model, tmp_path):
    rows = [{"text": f"the film was {word}", "label": word} for word in ("dull", "lovely") * 8]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = {"data": str(tmp_path / "data.jsonl"), "model": str(tiny_model), "length": 16, "batch": 8, "device": "cpu"}
    with pytest.warns(UserWarning, match="stayed as") as raised:
        train(**keys, policy="random", transforms="sentence_crop", epochs=3, out=tmp_path / "run")
    [message] = [text for one in raised if "stayed as" in (text := str(one.message))]  # others are about the small test split
    assert message.startswith("100 % of the texts with transforms stayed as they were; the texts are too short")
