"""TensorBoard: every epoch once, also after a restart."""

import math
import sys

import pytest

from outspan.training import Stopped
from outspan.training.train import train
from trained_runs import SMALL, few


def scalars(folder) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_tensorboard_has_every_epoch_once_after_a_restart(tmp_path):
    with pytest.raises(Stopped):
        train(SMALL, out=tmp_path, splits=few(), tensorboard=True, on_step=lambda progress: progress.step == 20)
    with pytest.raises(Stopped):
        train(SMALL, out=tmp_path, splits=few(), tensorboard=True, on_step=lambda progress: progress.step == 25)
    summary = train(SMALL, out=tmp_path, splits=few(), tensorboard=True)
    logged = scalars(tmp_path)
    assert [step for step, _ in logged["test_accuracy"]] == [10, 20, 30]
    assert [value for _, value in logged["train_loss"]] == pytest.approx([row["train_loss"] for row in summary.metrics])
    assert [value for _, value in logged["lr"]] == pytest.approx([row["lr"] for row in summary.metrics])
    final_lr = 0.05 * (1 + math.cos(math.pi * (29 - 0.6) / (30 - 0.6)))  # after 30 steps with a warm-up of 2 %
    assert summary.metrics[-1]["lr"] == pytest.approx(final_lr)


def test_a_missing_tensorboard_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"pip install 'outspan\[track\]'"):
        train(SMALL, out=tmp_path, splits=few(), tensorboard=True)
