"""Training in several ranks: the same result as in one process, exact resuming, and failures that stop all ranks."""

import copy
import csv
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import outspan
import ranks
from made import make_folder
from outspan.training import RankFailed, checkpoint, waiting
from outspan.training.distributed import RankLearner, Ranks, check_divides, check_same_start
from outspan.training.provenance import DataProvenance, Environment, Provenance
from outspan.training.step import Learner
from outspan.training.sync_batchnorm import synchronize
from ranks import Alone, Apart, Broken, Command, Elsewhere, Slow, StopAt, Train
from reviews import make_reviews

SMALL = {"data": "digits", "model": "mlp", "fraction": 0.1, "batch": 36}  # 500 images: 14 batches, the last one of 32
GEOMETRIC = {"policy": "random", "transforms": "geometric"}


def train(out, world, **options):
    """Train in one process without a group (world 0), or in ranks. Return the tensors of the last checkpoint."""
    if not world:
        outspan.train(out=out, device="cpu", **options)
    else:
        results = ranks.run([(Train if world > 1 else Alone)(out, **options)] * world)
        assert all(isinstance(result, outspan.Summary) for result in results), results
        assert len({result.loss for result in results}) == 1  # every rank has the losses of all
    loaded = checkpoint.load(out)
    assert loaded is not None
    return loaded


def check_close(one, other, tolerance=1e-5):
    for name, tensor in one.tensors.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, other.tensors[name], rtol=tolerance, atol=tolerance, msg=name)


def test_one_process_under_torchrun_runs_the_plain_loop(tmp_path, one_thread, monkeypatch):
    options = SMALL | {"policy": "random", "epochs": 1}
    plain = train(tmp_path / "plain", 0, **options)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)  # nothing answers at this port
    under = train(tmp_path / "under", 0, **options)
    assert under.tensors.keys() == plain.tensors.keys()
    assert all(torch.equal(tensor, plain.tensors[name]) for name, tensor in under.tensors.items())


@pytest.mark.slow
def test_1_2_and_4_ranks_agree_with_one_process_after_100_steps(tmp_path, one_thread):
    options = SMALL | GEOMETRIC | {"steps": 100}
    alone = train(tmp_path / "0", 0, **options)
    for world in (1, 2, 4):
        several = train(tmp_path / str(world), world, **options)
        rows = zip(alone.metadata["metrics"], several.metadata["metrics"], strict=True)
        for before, after in rows:
            assert after["train_loss"] == pytest.approx(before["train_loss"], rel=1e-5)
            assert after["test_accuracy"] == pytest.approx(
                before["test_accuracy"], abs=0.011
            )  # one of 100 may be on the border
        check_close(alone, several, 1e-4)
    assert torch.equal(alone.tensors["model.1.weight"], train(tmp_path / "1", 1, **options).tensors["model.1.weight"])


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "uncertain", "transforms": "geometric", "keep": 2, "accumulate": 2},
        {"policy": "uncertain", "transforms": "geometric", "select": "proportional", "score_every": 2},
        {"policy": "auto", "epochs": 8, "skip": 0.5},
        {"policy": "trivialaugment", "class_weights": "2,1,1,1,1,1,1,1,1,3", "sampling": "balanced"},
        {"policy": "adversarial", "adversaries": 2, "clip": 1.0},
        {"policy": "random", "transforms": "geometric", "by_confidence": 0.5, "ema": 0.9, "validation": 33},
        {"policy": "none", "batch": 498, "label_smoothing": 0.1},  # one rank has no rows in the last batch
    ],
    ids=lambda options: options["policy"],
)
def test_every_policy_agrees_with_one_process(options, tmp_path, one_thread):
    options = SMALL | {"epochs": 2} | options
    alone, several = train(tmp_path / "alone", 0, **options), train(tmp_path / "several", 3, **options)
    assert several.metadata["chosen"].keys() == alone.metadata["chosen"].keys()
    check_close(alone, several, 1e-4)
    files = [{path.name for path in (tmp_path / name).iterdir()} for name in ("alone", "several")]
    assert files[0] == files[1]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_other_precisions_are_those_of_one_process(precision, tmp_path, one_thread):
    """fp16 scales the loss, and leaves out steps whose gradients overflow: all ranks leave out the same ones."""
    options = SMALL | GEOMETRIC | {"steps": 40, "precision": precision}
    alone, several = train(tmp_path / "alone", 0, **options), train(tmp_path / "several", 2, **options)
    assert several.metadata["recipe"]["precision"] == precision
    for before, after in zip(alone.metadata["metrics"], several.metadata["metrics"], strict=True):
        assert after["train_loss"] == pytest.approx(before["train_loss"], rel=0.02)


class TwoEqual(Ranks):
    """Rank 0 of two that compute the same."""

    def all_reduce(self, values, *, largest=False):
        values.mul_(2)


def test_reduced_gradients_have_the_layout_of_the_backward_pass():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5))
    network.to(memory_format=torch.channels_last)
    plain = copy.deepcopy(network)
    alone, rank = Learner(plain, 0.0, graphs=False), RankLearner(Learner(network, 0.0, graphs=False), TwoEqual(0, 2), 1)
    for frozen, size in ((False, 8), (True, 8), (False, 4), (False, 10), (False, 8)):  # the size of the batch changes, too
        for model in (network, plain):
            model[0].requires_grad_(not frozen)
        if frozen:
            rank.forget()
        images, targets = torch.randn(size // 2, 3, 4, 4), torch.rand(size, 5).softmax(1)
        losses = rank(images, targets)
        assert torch.equal(losses[: size // 2], 2 * alone(images, targets[: size // 2]))
        assert not losses[size // 2 :].any()
        for own, expected in zip(network.parameters(), plain.parameters(), strict=True):
            assert (own.grad is None) == (expected.grad is None)
            if own.grad is not None:
                assert torch.equal(own.grad, expected.grad)
                assert own.grad.stride() == expected.grad.stride()
        assert all(torch.equal(one, other) for one, other in zip(network.buffers(), plain.buffers(), strict=True))


@pytest.mark.slow
def test_a_compiled_model_agrees_with_one_process(tmp_path, one_thread):
    options = SMALL | GEOMETRIC | {"steps": 10, "ema": 0.9, "clip": 0.5, "accumulate": 2, "batch": 100}  # parts of one size
    alone = train(tmp_path / "alone", 0, **options)
    results = ranks.run([ranks.Compiled(tmp_path / "several", **options, compile=True)] * 2)
    assert len({result.loss for result in results}) == 1, results
    several = checkpoint.load(tmp_path / "several")
    assert several is not None
    assert several.metadata["setting"]["compiled"]
    check_close(alone, several, 1e-4)


@pytest.mark.parametrize(
    ("world", "options"),
    [
        (2, {"model": "convnet", "policy": "uncertain", "ema": 0.9}),  # scores with the running statistics of BatchNorm
        (4, {"policy": "random"}),  # with mixing
        (3, {"policy": "auto", "epochs": 8, "skip": 0.5}),
        (2, {"policy": "adversarial", "adversaries": 2}),
    ],
)
def test_a_run_that_was_stopped_resumes_to_the_same_bits(world, options, tmp_path):
    options = SMALL | {"epochs": 2} | options
    whole = train(tmp_path / "whole", world, **options)
    for step in (9, 21):
        results = ranks.run([Train(tmp_path / "run", on_step=StopAt(step, rank=1), **options)] * world)
        assert all("Stopped: stopped at step" in result and f"step {step} of" in result for result in results), results
    resumed = train(tmp_path / "run", world, **options)
    assert resumed.tensors.keys() == whole.tensors.keys()
    for name, tensor in whole.tensors.items():
        assert torch.equal(tensor, resumed.tensors[name]), name
    assert resumed.metadata["metrics"] == whole.metadata["metrics"]
    assert resumed.metadata["chosen"] == whole.metadata["chosen"]


def test_synchronized_batch_norm_gives_the_result_of_one_process(tmp_path, one_thread):
    options = SMALL | GEOMETRIC | {"model": "convnet", "epochs": 2, "batch": 100, "sync_bn": 1}
    alone, several = train(tmp_path / "alone", 0, **options), train(tmp_path / "several", 2, **options)
    check_close(alone, several, 1e-3)
    local = train(tmp_path / "local", 2, **options | {"sync_bn": 0})
    with pytest.raises(AssertionError):
        check_close(alone, local, 1e-3)


def test_batch_norm_layers_that_cannot_be_synchronized_are_refused():
    class Other(torch.nn.BatchNorm2d):
        pass

    with pytest.raises(ValueError, match=r"sync_bn is for the layers BatchNorm1d, .* got Other \(0\): set sync_bn to 0"):
        synchronize(torch.nn.Sequential(Other(3)), Ranks())
    with pytest.raises(ValueError, match="accumulate must be 1 with sync_bn, got 2"):
        outspan.train(out="unused", data="digits", sync_bn=1, accumulate=2)


def test_a_run_resumes_with_another_number_of_ranks(tmp_path, one_thread):
    options = SMALL | GEOMETRIC | {"epochs": 2}
    whole = train(tmp_path / "whole", 0, **options)
    ranks.run([Train(tmp_path / "run", on_step=StopAt(9, rank=0), **options)] * 2)
    with pytest.warns(UserWarning, match=r"will not be bit-identical \(world 2 then, 1 now\)"):
        resumed = train(tmp_path / "run", 0, **options)
    check_close(whole, resumed, 1e-4)


def test_only_rank_0_needs_the_folder_of_the_run(tmp_path):
    """It is stopped, resumed, finished, and read again."""
    options = SMALL | {"policy": "none", "epochs": 1}
    stopped = ranks.run([Apart(tmp_path, on_step=StopAt(5, rank=1), **options)] * 2)
    assert all("stopped at step 5 of 14" in result for result in stopped), stopped
    summaries = [summary for _ in range(2) for summary in ranks.run([Apart(tmp_path, **options)] * 2)]
    assert len({(summary.loss, summary.accuracy, summary.steps) for summary in summaries}) == 1
    assert [path.name for path in (tmp_path / "1").iterdir()] == []


@pytest.mark.slow
def test_image_files_and_texts_are_divided_over_ranks(tmp_path, one_thread, tiny_model):
    make_folder(tmp_path / "images", train=10, test=5)
    with open(tmp_path / "reviews.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *make_reviews(40)])
    common = {"epochs": 2, "batch": 6, "policy": "random", "lr": 1e-3}
    images = {"data": str(tmp_path / "images"), "model": "mlp", "size": 8, "crop": "resized", "transforms": "geometric"}
    for name, options in {
        "images": images,
        "texts": {"data": str(tmp_path / "reviews.csv"), "model": str(tiny_model), "length": 16},
    }.items():
        alone = train(tmp_path / f"{name}0", 0, **common, **options)
        several = train(tmp_path / f"{name}2", 2, **common, **options)
        for before, after in zip(alone.metadata["metrics"], several.metadata["metrics"], strict=True):
            assert after["train_loss"] == pytest.approx(before["train_loss"], rel=1e-3), name  # dropout has its own draws
            assert after["test_accuracy"] == before["test_accuracy"], name


def test_every_rank_names_the_unreadable_files_that_it_has_read(tmp_path):
    make_folder(tmp_path / "images", train=10, test=5)
    damaged = next((tmp_path / "images" / "train").glob("*/*_3.JPEG"))
    damaged.write_bytes(b"no image")
    keys = ("--model", "mlp", "--policy", "none", "--set", "size=8", "--set", "batch=4", "--set", "epochs=2")
    command = Command(tmp_path / "log", "train", "--data", tmp_path / "images", *keys, "--skip-bad", 1, "-o", tmp_path / "run")
    assert ranks.run([command] * 2) == [0, 0]
    for rank in (0, 1):
        assert f"{damaged}: cannot be read as an image; another one" in (tmp_path / f"log{rank}").read_text()


def test_a_loss_that_is_not_finite_on_one_rank_stops_all_at_the_same_step(tmp_path):
    results = ranks.run([Broken("loss", 1, tmp_path / "run", **SMALL, policy="none", epochs=2)] * 3)
    assert results == ["Diverged: the loss is nan at step 5, epoch 0: try a smaller lr"] * 3


def test_a_full_disk_on_rank_0_stops_all(tmp_path):
    first, *others = ranks.run([Broken("disk", 0, tmp_path / "run", **SMALL, policy="none", save_every=0)] * 3)
    assert first == "OSError: [Errno 28] No space left on device"
    assert others == ["RankFailed: rank 0 failed: [Errno 28] No space left on device"] * 2


def test_an_error_in_the_setup_of_a_rank_is_raised_on_all(tmp_path, tiny):
    good = Train(tmp_path / "run", **SMALL, policy="none")
    bad = Train(tmp_path / "run", **SMALL | {"data": str(tmp_path / "gone.npz")}, policy="none")
    results = ranks.run([good, bad, bad])
    assert results[1].startswith("ValueError: ")
    problem = results[1].removeprefix("ValueError: ")
    assert [results[0], results[2]] == [f"RankFailed: rank 1 failed: {problem}"] * 2


def test_a_rank_that_fails_alone_stops_all(tmp_path):
    first, second = ranks.run([Broken("read", 1, tmp_path / "run", **SMALL, policy="none")] * 2)
    assert second == "ValueError: cannot read"
    assert first.startswith("RuntimeError: another rank has ended or does not answer (")
    assert first.endswith("); the same command resumes the run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.2}, "all ranks must have the same lr, got 0.1 on rank 0 and 0.2 on rank 1: start them with the same command"),
        ({"data": "other"}, "all ranks must have the same test_digest of the data, got"),
        ({"compile": True}, "all ranks must have the same compiled, got False on rank 0 and True on rank 1"),
    ],
)
def test_ranks_that_differ_are_refused(change, message, tmp_path, tiny):
    options = SMALL | {"policy": "none", "data": str(tiny), "fraction": 1.0, "batch": 30}
    with np.load(tiny) as file:
        np.savez(tmp_path / "other.npz", **dict(file) | {"test_images": 255 - file["test_images"]})
    change = {"data": str(tmp_path / "other.npz")} if "data" in change else change
    first, second = ranks.run([Train(tmp_path / "run", **options), Train(tmp_path / "run", **options | change)])
    assert first.startswith(f"ValueError: {message}")
    assert second.startswith(f"RankFailed: {message}")  # rank 0 reports it
    assert not (tmp_path / "run").exists()


def test_another_version_of_torch_is_refused():
    """Another number of threads is not."""
    data = DataProvenance(60, (1, 28, 28), ("0", "1"), (0.5,), (0.2,))
    newer = Provenance(outspan.Recipe(), data, Environment("cpu", 2, "2.10", False, False, False, 2))
    older = replace(newer, environment=replace(newer.environment, torch="2.9", threads=1))

    class Both(Ranks):
        def gather_objects(self, value):
            return [older.to_metadata(), value]

    with pytest.raises(RankFailed, match=r"the same torch, got '2.9' on rank 0 and '2.10' on rank 1"):
        check_same_start(Both(1, 2, True), newer)


@pytest.mark.parametrize(
    ("batch", "world", "hint"), [(128, 3, "start 2, or use --set batch=129"), (100, 8, "start 10, or use --set batch=104")]
)
def test_a_world_size_that_does_not_divide_the_batch_is_refused(batch, world, hint):
    with pytest.raises(ValueError, match=f"must divide the batch, got {world} processes and batch {batch}: {hint}"):
        check_divides(batch, world)
    check_divides(128, 4)


LEFT = """
import os, time
import outspan
outspan.train(out="run", device="cpu", data="digits", model="mlp", fraction=0.1, epochs=1)
end = time.monotonic() + 10
while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < end:  # the system may list a thread that has just ended
    time.sleep(0.01)
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs Linux")
def test_no_thread_of_the_process_group_is_left(tmp_path):
    """Such a thread aborts a process that ends. torch._dynamo, which the optimizer imports, must not keep the group alive."""
    both = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ranks.free_port()), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", LEFT],
            cwd=tmp_path,
            env=os.environ | both | {"RANK": rank},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    assert [process.communicate(timeout=120)[0] for process in started] == ["1\n", "1\n"]
    assert [process.returncode for process in started] == [0, 0]


def wait_for_checkpoint(folder):
    end = time.monotonic() + 60
    while not checkpoint.has_checkpoints(folder):
        assert time.monotonic() < end
        time.sleep(0.05)


def command(tmp_path, *arguments):
    return Command(
        tmp_path / "log", "train", "--data", "digits", "--model", "mlp", "--policy", "none", "--set", "batch=126", *arguments
    )


def test_sigterm_saves_once_and_every_rank_exits_with_0(tmp_path):
    """The signal reaches one rank only, and a second signal changes nothing: all agree on a step."""
    started = ranks.start([Slow(command(tmp_path, "--set", "epochs=100000", "-o", tmp_path / "run"))] * 2)
    wait_for_checkpoint(tmp_path / "run")
    os.kill(started[1][0].pid, signal.SIGTERM)
    os.kill(started[1][0].pid, signal.SIGTERM)
    assert [ranks.receive(*rank) for rank in started] == [0, 0]
    text = (tmp_path / "log0").read_text()
    assert "stopped at step" in text
    assert "run the same command again to resume" in text
    assert (tmp_path / "log1").read_text() == ""
    loaded = checkpoint.load(tmp_path / "run")
    assert loaded is not None
    assert f"stopped at step {loaded.metadata['step']} of" in text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_torchrun_saves_once(number, tmp_path):
    """torchrun passes SIGTERM on to the ranks. Ctrl-C reaches all processes."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(ranks.free_port())]
    arguments = command(tmp_path, "--set", "epochs=100000", "-o", tmp_path / "run").arguments
    process = subprocess.Popen(
        [sys.executable, *launcher, "-m", "outspan", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 300
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    (os.kill if number == signal.SIGTERM else os.killpg)(process.pid, number)
    error = process.communicate(timeout=300)[1]
    messages = re.findall("^outspan: (.*)$", error, re.MULTILINE)
    loaded = checkpoint.load(tmp_path / "run")
    assert loaded is not None, error
    steps = loaded.metadata["step"]
    assert messages[-1:] == [f"stopped at step {steps} of 4000000; run the same command again to resume"], error
    assert len(messages) == 1, error


def test_a_killed_rank_ends_the_others_with_one_line(tmp_path):
    started = ranks.start([Slow(command(tmp_path, "--set", "epochs=100000", "-o", tmp_path / "run"))] * 3)
    wait_for_checkpoint(tmp_path / "run")
    os.kill(started[1][0].pid, signal.SIGKILL)
    assert [ranks.receive(*rank, 60) for rank in started] == [2, None, 2]
    for rank in (0, 2):
        line = (tmp_path / f"log{rank}").read_text().splitlines()[-1]
        assert line.startswith(f"outspan: {f'rank {rank}: ' if rank else ''}another rank has ended or does not answer (")
        assert line.endswith("); the same command resumes the run")
        assert "third_party" not in line
        assert "Traceback" not in (tmp_path / f"log{rank}").read_text()


def test_an_error_that_all_ranks_have_is_printed_once(tmp_path):
    started = ranks.start([command(tmp_path, "--set", "lr=1e6", "-o", tmp_path / "run")] * 3)
    assert [ranks.receive(*rank) for rank in started] == [2, 2, 2]
    first, *others = [(tmp_path / f"log{rank}").read_text() for rank in range(3)]
    assert first.splitlines()[-1].startswith("outspan: the loss is nan at step")
    assert others == ["", ""]


def test_each_machine_shows_why_the_run_has_ended(tmp_path):
    """On the first one a rank reports the error, and on another one its first rank."""
    same, other = (command(tmp_path, "-o", tmp_path / "run", *change) for change in ((), ("--set", "lr=0.2")))
    elsewhere = Elsewhere(other.log, *other.arguments)
    started = ranks.start([same, other, elsewhere])
    assert [ranks.receive(*rank) for rank in started] == [2, 2, 2]
    message = "all ranks must have the same lr, got 0.1 on rank 0 and 0.2 on rank 1: start them with the same command, data"
    lines = [(tmp_path / f"log{rank}").read_text() for rank in range(3)]
    assert lines[0].startswith(f"outspan: {message}")
    assert lines[1] == ""
    assert lines[2].splitlines()[-1].startswith(f"outspan: rank 2: {message}")  # torch may warn before that the store is gone


def test_a_rank_that_no_longer_gives_signs_of_life_is_found_by_all(monkeypatch):
    monkeypatch.setattr(waiting, "_BEAT", 0.0)
    store = torch.distributed.HashStore()
    neighbors = [waiting._Neighbor(store, rank, 3) for rank in range(3)]
    for _ in range(2 * waiting._MISSED):
        assert [neighbor.lost() for neighbor in neighbors] == [None] * 3
    for _ in range(waiting._MISSED):  # rank 1 has ended after its last count, which rank 0 reads first
        assert [neighbors[rank].lost() for rank in (0, 2)] == [None, None]
    assert [neighbors[rank].lost() for rank in (0, 2)] == [1, 1]


@pytest.mark.slow
def test_ranks_end_without_a_signal_if_one_does_not_answer(tmp_path):
    """A machine that fails does not close its connections. A stopped process does not, either."""
    started = ranks.start([Slow(command(tmp_path, "--set", "epochs=100000", "-o", tmp_path / "run"))] * 3)
    wait_for_checkpoint(tmp_path / "run")
    os.kill(started[1][0].pid, signal.SIGSTOP)
    # Rank 0, which has the store here, may be the first to end. Then rank 2 also finds its connections closed.
    closed = r"another rank has ended or does not answer \(.*\)"
    for rank, problem in ((0, "rank 1 does not answer"), (2, f"(rank [01] does not answer|{closed})")):
        assert ranks.receive(*started[rank], 60) in ((None,) if rank == 0 else (None, 2))
        text = (tmp_path / f"log{rank}").read_text()
        assert re.fullmatch(f"outspan: rank {rank}: {problem}; the same command .*", text.splitlines()[-1])
    started[1][0].kill()


@pytest.mark.slow
def test_a_rank_that_gets_sigterm_waits_20_seconds_for_one_that_does_not_answer(tmp_path):
    started = ranks.start([Slow(command(tmp_path, "--set", "epochs=100000", "-o", tmp_path / "run"))] * 2)
    wait_for_checkpoint(tmp_path / "run")
    os.kill(started[1][0].pid, signal.SIGSTOP)
    os.kill(started[0][0].pid, signal.SIGTERM)
    began = time.monotonic()
    started[0][0].join(60)
    assert 15 < time.monotonic() - began < 30
    assert "rank 0: the other ranks do not answer; the same command resumes the run" in (tmp_path / "log0").read_text()
    started[1][0].kill()
