"""Counts of chosen compositions, compared with hand-made plans and with the batches of a run."""

import pytest
import torch

from outspan import Plan
from outspan.training.compositions import add_epoch, add_step, fractions, mean_by_fifth, most_changed, read, with_marked


def test_a_hand_made_choice_is_counted():
    drawn = Plan.of(
        [["rotate", "invert"], ["rotate", "invert"], ["invert", "rotate"], ["invert"], []],
        levels=[[0.5, 0], [0.1, 0], [0, 0.5], [0], []],
        source=[0, 0, 0, 1, 1],
    )
    counts = {}
    losses = torch.tensor([[1.0, 2.0, 4.0, 8.0, 16.0]])
    add_step(counts, drawn, torch.tensor([0, 1, 2, 4]), losses, 2)
    assert counts == {"rotate+invert": [2, 3.0], "invert+rotate": [1, 4.0], "none": [1, 16.0]}
    add_step(counts, drawn, torch.tensor([3]), losses, 1)
    assert counts["invert"] == [1, 8.0]
    add_step(counts, drawn, torch.tensor([0]), losses, 1)  # the transforms after the composition are the defaults
    assert counts["rotate"] == [1, 1.0]


def test_lines_of_an_epoch_that_is_run_again_are_replaced(tmp_path):
    for epoch, number in ((0, 1), (1, 2), (2, 3), (1, 4)):
        add_epoch(tmp_path, epoch, {"rotate": [number, 2.0 * number]})
    assert [line["epoch"] for line in read(tmp_path)] == [0, 1]
    assert read(tmp_path)[1]["compositions"] == {"rotate": {"count": 4, "loss": 2.0}}


def test_both_orders_of_a_pair_are_counted_together(tmp_path):
    add_epoch(tmp_path, 0, {"rotate+invert": [3, 1.0], "invert+rotate": [1, 1.0], "none": [4, 1.0]})
    add_epoch(tmp_path, 1, {"none": [2, 1.0]})
    assert fractions(read(tmp_path)) == {"invert+rotate": [0.5, 0.0], "none": [0.5, 1.0]}


def test_a_run_without_a_choice_has_no_compositions(tmp_path):
    with pytest.raises(ValueError, match=r"no compositions\.jsonl: it is written by a policy that keeps fewer"):
        read(tmp_path)


FRACTIONS = {
    "none": [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
    "invert+rotate": [0.1, 0.3, 0.2, 0.2, 0.2, 0.3, 0.4],
    "mixup": [0.4, 0.2, 0.3, 0.3, 0.3, 0.2, 0.1],
}


def test_fractions_are_averaged_over_each_fifth_of_the_run():
    assert mean_by_fifth(FRACTIONS)["invert+rotate"] == pytest.approx([0.2, 0.2, 0.2, 0.3, 0.4])  # epochs 1-2, 3-4, 5, 6, 7
    assert mean_by_fifth({"none": [0.25, 0.75]})["none"] == [0.25, 0.75]


def test_compositions_are_sorted_by_their_increase():
    assert most_changed(FRACTIONS, count=1) == ["invert+rotate", "mixup"]
    assert most_changed(FRACTIONS) == ["invert+rotate", "none", "mixup"]


def test_a_pair_is_marked_in_either_order():
    assert with_marked(FRACTIONS, ["rotate + invert", "mixup", "invert+rotate"]) == (FRACTIONS, ["invert+rotate", "mixup"])
    with pytest.raises(ValueError, match="unknown transform 'rotat', did you mean 'rotate'"):
        with_marked(FRACTIONS, ["rotat+invert"])


def test_a_composition_that_was_never_chosen_has_the_fraction_0():
    assert with_marked(FRACTIONS, ["mixup+invert"]) == (FRACTIONS | {"invert+mixup": [0.0] * 7}, ["invert+mixup"])
