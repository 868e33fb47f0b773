"""The loop: it learns, it resumes to the bit from anywhere, and it refuses what it cannot run."""

import errno
import math
import os
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from made import make_folder
from outspan import files, models
from outspan.config import Recipe, read_recipe
from outspan.data.sets import Data, hold_out, load, load_for
from outspan.data.splits import InMemory
from outspan.policies.table import POLICIES
from outspan.training import Stopped, checkpoint, compositions, saving
from outspan.training.logits import accuracy
from outspan.training.setup import algorithms
from outspan.training.train import train
from outspan.training.trained import load as load_model
from trained_runs import load_run

SMALL = Recipe(data="digits", model="mlp", policy="none", epochs=3, batch=20, transforms="geometric")


def few(count: int = 200) -> Data:
    digits = load("digits")
    return Data(
        "digits",
        InMemory(digits.train.images[:count], digits.train.labels[:count]),
        InMemory(digits.test.images[:100], digits.test.labels[:100]),
        digits.classes,
    )


def final(folder) -> tuple[dict, dict]:
    tensors, meta = checkpoint.load(folder)
    return tensors, {key: value for key, value in meta.items() if key != "seconds"}


def equal(one: tuple[dict, dict], other: tuple[dict, dict]) -> bool:
    assert one[1] == other[1]
    return one[0].keys() == other[0].keys() and all(torch.equal(one[0][name], other[0][name]) for name in one[0])


def test_it_learns_digits(tmp_path):
    summary = train(replace(SMALL, epochs=4, batch=64), out=tmp_path)
    assert summary.accuracy > 0.85
    assert len(summary.metrics) == 4
    assert summary.accuracy == summary.metrics[-1]["test_accuracy"]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 4
    run, data = load_run(tmp_path)
    assert accuracy(run.model, data.test, run.preprocess, "cpu") == summary.accuracy
    assert run.recipe.epochs == 4


def test_a_run_needs_its_weights_once(timm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "w.safetensors"
    save_file({"1.weight": torch.full((2, 16), 0.5)}, file)
    digits = few()
    small = [InMemory(split.images[:, :, 10:14, 10:14], split.labels) for split in (digits.train, digits.test)]
    data = Data("digits", *small, digits.classes)
    recipe = replace(SMALL, model="timm:small", weights="w.safetensors", lr=1e-6)
    train(recipe, out=tmp_path / "whole", splits=data)
    assert load_model(tmp_path / "whole").model[1].weight.sub(0.5).abs().max() < 1e-3
    for out in ("run", "later"):
        with pytest.raises(Stopped):
            train(recipe, out=tmp_path / out, splits=data, on_step=lambda progress: progress.step == 7)
    file.unlink()
    train(recipe, out=tmp_path / "run", splits=data)
    assert equal(final(tmp_path / "run"), final(tmp_path / "whole"))
    with pytest.raises(ValueError, match=r"weights '.*w\.safetensors': no such file"):
        train(recipe, out=tmp_path / "anew", splits=data)
    save_file({"1.weight": torch.full((2, 16), 0.4)}, file)
    with pytest.raises(ValueError, match="the file of weights has changed since"):
        train(recipe, out=tmp_path / "later", splits=data)


def test_a_run_goes_on_where_its_data_has_moved(tmp_path):
    make_folder(tmp_path / "set", train=6, test=3)
    (tmp_path / "set" / "val").rename(tmp_path / "set" / "test")
    shutil.copytree(tmp_path / "set" / "test", tmp_path / "set" / "val")
    recipe = replace(SMALL, data=str(tmp_path / "set"), size=8, batch=5, epochs=2)
    said = []
    train(recipe, out=tmp_path / "whole", on_begin=said.append)
    samples, model = "12 train and 6 test images, 6 for validation, 2 classes, 3 x 8 x 8", "model mlp, 19,502 parameters"
    assert said == [f"{samples}; {model}; policy none; device cpu"]
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "run", on_step=lambda progress: progress.step == 4)
    (tmp_path / "set").rename(tmp_path / "moved")
    train(replace(recipe, data=str(tmp_path / "moved")), out=tmp_path / "run", on_begin=said.append)
    assert said[1].endswith("; resuming at step 4 of 6")
    assert all(torch.equal(one, final(tmp_path / "run")[0][name]) for name, one in final(tmp_path / "whole")[0].items())
    assert "validation_accuracy" in final(tmp_path / "run")[1]["metrics"][-1]
    train(replace(recipe, data=str(tmp_path / "moved")), out=tmp_path / "run", on_begin=said.append)
    assert len(said) == 2  # it is finished
    assert read_recipe(tmp_path / "run" / "recipe.toml") == recipe
    next((tmp_path / "moved" / "train").rglob("*.JPEG")).unlink()
    with pytest.raises(ValueError, match="the data has changed since"):
        train(replace(recipe, data=str(tmp_path / "moved")), out=tmp_path / "run")
    with pytest.raises(ValueError, match=r"a run of another recipe \(data '.*' there, 'digits' requested"):
        train(replace(recipe, data="digits"), out=tmp_path / "run")


def test_other_images_are_refused(tmp_path):
    data = few()
    recipe = replace(SMALL, epochs=1)
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path, splits=data, on_step=lambda progress: progress.step == 3)
    turned = InMemory(data.train.images.flip(0), data.train.labels)  # the same mean, other labels
    with pytest.raises(ValueError, match=r"the data has changed since \(train_digest"):
        train(recipe, out=tmp_path, splits=replace(data, train=turned))
    train(recipe, out=tmp_path, splits=data)
    with pytest.raises(ValueError, match=r"the data has changed since \(test_digest"):
        load_run(tmp_path)  # all of digits


def test_a_slow_save_is_made_less_often(tmp_path, monkeypatch):
    """By a clock of its own: a step takes a second, and so does a save."""
    clock, saves = [0.0], []
    monkeypatch.setattr(saving.time, "perf_counter", lambda: clock[0])

    def tick(progress: dict) -> None:
        clock[0] += 1.0

    def slowly(folder, step, *_) -> None:
        saves.append(step)
        clock[0] += 1.0

    monkeypatch.setattr(checkpoint, "save", slowly)
    train(replace(SMALL, epochs=1, batch=5), out=tmp_path, splits=few(), save_every=0.001, on_step=tick)
    assert saves == [2, 22, 40]  # at once; a save takes a twentieth of the time at most; at the end


def published(folder, policy: str) -> dict[str, str]:
    """Return the recipe's keys for a policy, with a small file for one that is read from a file."""
    texts = {
        "fastautoaugment": "[[['Invert', 1.0, 0.5], ['Rotate', 0.5, 1.0]]]",
        "pba": repr(["1", "1", 1, 1, [10, 5] * 30, [5, 5] * 30]),
    }
    if policy not in texts:
        return {"policy": policy}
    (folder / "policy.txt").write_text(texts[policy])
    return {"policy": policy, "policy_file": str(folder / "policy.txt")}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_trains(policy, tmp_path):
    recipe = replace(SMALL, **published(tmp_path, policy), epochs=1, defaults="cifar")
    summary = train(recipe, out=tmp_path / "run", splits=few(40))
    assert math.isfinite(summary.loss)


def test_another_function_of_a_policy_file_is_another_run(tmp_path):
    file = tmp_path / "archive.py"
    one = "    p = [[['Invert', 1.0, 0.5], ['Rotate', 0.5, 0.9]]]\n    return p\n"
    file.write_text(f"def first():\n{one}\ndef second():\n{one}")
    recipe = replace(SMALL, policy="fastautoaugment", policy_file=f"{file}#first", epochs=1)
    train(recipe, out=tmp_path / "run", splits=few(40))
    with pytest.raises(ValueError, match=r"a run of another recipe \(policy_file '.*#first' there, '.*#second' requested\)"):
        train(replace(recipe, policy_file=f"{file}#second"), out=tmp_path / "run", splits=few(40))


@pytest.mark.parametrize("folder", ["files", "a#b"])
def test_a_policy_file_that_has_changed_is_another_run(folder, tmp_path, monkeypatch):
    (tmp_path / folder).mkdir()
    published(tmp_path / folder, "fastautoaugment")
    recipe = replace(SMALL, policy="fastautoaugment", policy_file=f"{folder}/policy.txt", epochs=1)
    monkeypatch.chdir(tmp_path)
    train(recipe, out=tmp_path / "run", splits=few(40))
    assert load_model(tmp_path / "run").recipe.policy_file == str(tmp_path / folder / "policy.txt")  # from any folder
    (tmp_path / folder / "policy.txt").write_text("[[['Invert', 1.0, 0.5], ['Rotate', 0.5, 0.9]]]")
    with pytest.raises(ValueError, match="the file of policy_file has changed since"):
        train(recipe, out=tmp_path / "run", splits=few(40))


def test_a_last_batch_of_one_that_cannot_be_normalised_is_refused_at_once(tmp_path):
    images = torch.randint(0, 256, (9, 3, 4, 4), dtype=torch.uint8)
    data = Data("digits", InMemory(images, torch.arange(9) % 2), InMemory(images, torch.arange(9) % 2), ("a", "b"))
    recipe = Recipe(model="wide_resnet-10-1", epochs=1, batch=4, policy="none")  # its last layers see 1 x 1 of 4 x 4
    with pytest.raises(ValueError, match="'wide_resnet-10-1' cannot normalise a single sample of 3 x 4 x 4: use another batch"):
        train(recipe, out=tmp_path / "run", splits=data)
    for batch, parts in ((9, 8), (6, 3), (9, 4)):  # 9 in parts of 2; the last 3 in parts of 1; 9 in parts of 3, which would do
        changed = replace(recipe, batch=batch, accumulate=parts)
        if (batch, parts) == (9, 4):
            train(changed, out=tmp_path / "parts", splits=data)
            continue
        with pytest.raises(ValueError, match=r"or a part of it, has one sample.*a smaller accumulate"):
            train(changed, out=tmp_path / "run", splits=data)
    assert not (tmp_path / "run").exists()
    train(replace(recipe, batch=5), out=tmp_path / "other", splits=data)


def test_a_trained_model_says_what_the_run_did(tmp_path):
    """Batch normalisation tells: a model that still trains would go by the batch.

    Images one by one are summed in another order than in a batch, so a prediction on the border may change: one of 100 may.
    """
    done = train(replace(SMALL, model="convnet"), out=tmp_path, splits=(data := few(100)))
    trained = load_model(tmp_path)
    with torch.no_grad():
        alone = torch.cat([trained.model(trained.preprocess(data.test.images[i : i + 1])) for i in range(len(data.test))])
    assert (alone.argmax(1) == data.test.labels).double().mean() == pytest.approx(done.accuracy, abs=0.011)


def test_stopped_after_every_step_it_ends_the_same(tmp_path):
    """29 stops in a run of 30 steps, with batch normalisation, selection and mixing in it."""
    recipe = replace(SMALL, policy="uncertain", select="proportional", defaults="cifar", model="convnet", validation=20)
    data = few(220)
    train(recipe, out=tmp_path / "whole", splits=data)
    stops = 0
    while True:
        try:
            train(recipe, out=tmp_path / "parts", splits=data, on_step=lambda progress: True)
            break
        except Stopped:
            stops += 1
    assert stops == 29
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))
    for file in ("compositions.jsonl", "metrics.jsonl"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "parts" / file).read_bytes()


@pytest.mark.parametrize("model", ["shake_shake-26-2x4d", "pyramidnet-11-8"])
def test_noise_inside_a_model_is_the_same_after_a_stop(model, tmp_path):
    recipe = replace(SMALL, model=model, epochs=1)
    train(recipe, out=tmp_path / "whole", splits=few(60))
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "parts", splits=few(60), on_step=lambda progress: progress.step == 1)
    train(recipe, out=tmp_path / "parts", splits=few(60))
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))


def test_the_adversary_is_the_same_after_every_stop(tmp_path):
    """12 steps, three rounds of the controller, stopped after each."""
    recipe = replace(SMALL, policy="adversarial", adversaries=3, controller_lr=0.05, model="convnet", defaults="cifar")
    train(recipe, out=tmp_path / "whole", splits=few(80))
    while True:
        try:
            train(recipe, out=tmp_path / "parts", splits=few(80), on_step=lambda progress: True)
            break
        except Stopped:
            continue
    whole = final(tmp_path / "whole")
    assert equal(whole, final(tmp_path / "parts"))
    assert int(whole[0]["policy.adam.step.lstm.weight_hh"]) == 3


def test_every_chosen_image_is_counted(tmp_path):
    train(replace(SMALL, policy="uncertain", keep=2, epochs=2), out=tmp_path, splits=few())
    for epoch, line in enumerate(compositions.read(tmp_path)):
        assert line["epoch"] == epoch
        assert sum(entry["count"] for entry in line["compositions"].values()) == 2 * 200
        assert all(entry["loss"] >= 0 for entry in line["compositions"].values())


def test_a_folder_of_images_trains_as_the_same_images_in_memory(tmp_path):
    data = few(60)
    listed = {}
    for kind, split in (("train", data.train), ("val", data.test)):
        for i, (image, label) in enumerate(zip(split.images, split.labels.tolist(), strict=True)):
            path = tmp_path / "set" / kind / str(label) / f"{i:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image[0].numpy()).save(path)
        listed[kind] = torch.cat([(split.labels == label).nonzero() for label in range(10)]).squeeze(1)
    rgb = [InMemory(part.images.expand(-1, 3, -1, -1), part.labels) for part in (data.train, data.test)]
    memory = Data("set", rgb[0].take(listed["train"]), rgb[1].take(listed["val"]), data.classes)
    recipe = replace(SMALL, policy="uncertain", data=str(tmp_path / "set"), size=28, validation=10)
    train(recipe, out=tmp_path / "folder")
    train(recipe, out=tmp_path / "memory", splits=memory)
    found = [final(tmp_path / name) for name in ("folder", "memory")]
    for _, meta in found:
        del meta["data"]["train_digest"], meta["data"]["test_digest"]  # of names, and of pixels
    assert equal(*found)


def test_the_compiled_model_is_what_trains_and_scores(tmp_path, monkeypatch):
    calls = []

    def compiled(model):
        wrapped = torch.nn.Sequential(model)
        wrapped.register_forward_hook(lambda *_: calls.append(wrapped.training))
        return wrapped

    monkeypatch.setattr(torch, "compile", compiled)
    recipe = replace(SMALL, policy="uncertain", epochs=1)
    train(recipe, out=tmp_path / "compiled", splits=few(), compile=True)
    assert calls == [False, True] * 10  # a score, a step
    train(recipe, out=tmp_path / "plain", splits=few())
    whole, other = final(tmp_path / "compiled"), final(tmp_path / "plain")
    assert whole[0].keys() == other[0].keys()  # what is saved is the model's own
    assert whole[1]["metrics"] == other[1]["metrics"]


def test_a_model_that_does_not_take_the_images_is_refused_before_it_trains(tmp_path, monkeypatch):
    fixed = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32 * 32, 10))
    monkeypatch.setattr(models, "build", lambda *_: fixed)
    with pytest.raises(ValueError, match=r"model 'mlp' does not take images of 1 x 28 x 28 .*shapes cannot be multiplied"):
        train(SMALL, out=tmp_path / "run", splits=few(40))
    assert not (tmp_path / "run").exists()


def test_a_share_of_the_images_is_evenly_spaced_and_at_least_two_batches(tmp_path):
    whole = load("digits")
    for fraction, batch, count in ((0.1, 20, 500), (0.001, 20, 40)):
        part = load_for(replace(SMALL, fraction=fraction, batch=batch))
        rows = torch.linspace(0, 4999, count, dtype=torch.float64).round().long()
        assert torch.equal(part.train.images, whole.train.images[rows])
        assert len(part.test) == max(40, round(fraction * 1000))
    train(replace(SMALL, fraction=0.01, epochs=1), out=tmp_path)
    assert len(load_run(tmp_path)[1].train) == 50


def test_a_folder_cropped_by_workers_trains_and_resumes_to_the_bit(tmp_path):
    make_folder(tmp_path / "set", train=6)
    recipe = replace(SMALL, data=str(tmp_path / "set"), size=16, batch=4, epochs=2, crop="resized", policy="baseline")
    train(recipe, out=tmp_path / "whole")
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "parts", on_step=lambda progress: progress.step == 4)
    train(recipe, out=tmp_path / "parts")
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))
    centred = train(replace(recipe, crop="centre"), out=tmp_path / "centred")
    assert centred.loss != train(recipe, out=tmp_path / "whole").loss
    with pytest.raises(ValueError, match="crop 'resized' is for an image folder"):
        train(replace(SMALL, crop="resized"), out=tmp_path / "digits")


def test_images_that_are_none_are_allowed_by_number(tmp_path):
    make_folder(tmp_path / "set", train=6)
    bad = tmp_path / "set" / "train" / "n01440764" / "n01440764_2.JPEG"
    bad.write_bytes(bad.read_bytes()[:100])
    recipe = replace(SMALL, data=str(tmp_path / "set"), size=16, batch=4, epochs=1)
    with pytest.raises(ValueError, match=r"n01440764_2\.JPEG: cannot be read as an image"):
        train(recipe, out=tmp_path / "none")
    with pytest.warns(UserWarning, match=r"n01440764_2\.JPEG: cannot be read"):
        summary = train(recipe, out=tmp_path / "run", skip_bad=1)
    assert math.isfinite(summary.loss)
    for path in (tmp_path / "set" / "val" / "n01440764").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="n01440764: an empty or missing class folder"):
        train(recipe, out=tmp_path / "none")


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
    found = scalars(tmp_path)
    assert [step for step, _ in found["test_accuracy"]] == [10, 20, 30]
    assert [value for _, value in found["train_loss"]] == pytest.approx([row["train_loss"] for row in summary.metrics])
    assert [value for _, value in found["lr"]] == pytest.approx([row["lr"] for row in summary.metrics])
    last = 0.05 * (1 + math.cos(math.pi * (29 - 0.6) / (30 - 0.6)))  # of 30 steps, after a warm-up of 2 %
    assert summary.metrics[-1]["lr"] == pytest.approx(last)


def test_tensorboard_that_is_not_there_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"pip install 'outspan\[track\]'"):
        train(SMALL, out=tmp_path, splits=few(), tensorboard=True)


def test_it_saves_when_the_time_has_come(tmp_path, monkeypatch):
    clock, steps = [0.0], []
    monkeypatch.setattr(saving.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(checkpoint, "save", lambda folder, step, *_: steps.append(step))

    def tick(progress: dict) -> None:
        clock[0] += 1.0  # an epoch is ten steps, ten seconds

    train(replace(SMALL, epochs=7), out=tmp_path, splits=few(), save_every=25.0, on_step=tick)
    assert steps == [26, 51, 70]


def test_asking_for_the_same_bits_is_undone_afterwards(tmp_path):
    seen = []
    train(
        replace(SMALL, epochs=1),
        out=tmp_path,
        splits=few(20),
        deterministic=True,
        on_step=lambda _: seen.append(torch.are_deterministic_algorithms_enabled()),
    )
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_finished_run_is_not_run_again(tmp_path):
    first = train(SMALL, out=tmp_path, splits=few())
    steps = []
    again = train(SMALL, out=tmp_path, splits=few(), on_step=steps.append)
    assert not steps
    (tmp_path / "metrics.jsonl").unlink()  # as a kill after the last checkpoint would
    train(SMALL, out=tmp_path, splits=few())
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 3
    assert (again.accuracy, again.loss, again.metrics) == (first.accuracy, first.loss, first.metrics)


def test_a_checkpoint_with_an_old_key_is_read_and_resumed(tmp_path):
    recipe = replace(SMALL, epochs=1, fraction=0.5)
    summary = train(recipe, out=tmp_path, splits=few(40))
    tensors, metadata = checkpoint.load(tmp_path)
    metadata["recipe"]["share"] = metadata["recipe"].pop("fraction")
    checkpoint.save(tmp_path, metadata.pop("step"), tensors, metadata)
    assert load_model(tmp_path).recipe == recipe
    assert train(recipe, out=tmp_path, splits=few(40)).accuracy == summary.accuracy


def test_a_folder_of_another_recipe_is_refused(tmp_path):
    train(replace(SMALL, epochs=1), out=tmp_path, splits=few(40))
    with pytest.raises(ValueError, match=r"a run of another recipe \(lr 0.1 there, 0.5 requested\)"):
        train(replace(SMALL, epochs=1, lr=0.5), out=tmp_path, splits=few(40))


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    with pytest.raises(ValueError, match=r"the loss is (nan|inf) at step \d+, epoch \d+"):
        train(replace(SMALL, lr=1e6, warmup=0.0, epochs=30, schedule="constant"), out=tmp_path, splits=few())
    recipe = replace(SMALL, lr=1e6, batch=200, warmup=0.0, epochs=50, schedule="constant")
    with pytest.raises(ValueError, match=r"not finite|the loss is"):  # one step an epoch: a save comes before the next loss
        train(recipe, out=tmp_path / "b", splits=few(), save_every=0.0)
    found = checkpoint.load(tmp_path / "b")
    assert found is not None
    assert all(tensor.isfinite().all() for tensor in found[0].values())


def test_validation_is_in_no_statistic(tmp_path):
    data = few()
    train(replace(SMALL, epochs=1, validation=50), out=tmp_path, splits=data)
    kept, _ = hold_out(data.train, 50, 0)
    assert checkpoint.load(tmp_path)[1]["data"]["mean"] == pytest.approx([float(kept.images.double().mean() / 255)])


def test_changed_data_is_refused(tmp_path):
    train(replace(SMALL, epochs=1), out=tmp_path, splits=few(40))
    with pytest.raises(ValueError, match="the data has changed since"):
        train(replace(SMALL, epochs=1), out=tmp_path, splits=few(60))


def test_another_number_of_threads_is_warned_of_where_there_is_more_to_train(tmp_path):
    with pytest.raises(Stopped):
        train(SMALL, out=tmp_path, splits=few(40), on_step=lambda state: True)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with pytest.warns(UserWarning, match=rf"will not be bit-identical \(threads {before} then, {before + 1} now\)"):
            train(SMALL, out=tmp_path, splits=few(40))
        torch.set_num_threads(before)
        train(SMALL, out=tmp_path, splits=few(40))  # finished: a warning would be an error here
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "uncertian"}, "unknown policy 'uncertian', did you mean 'uncertain'"),
        ({"model": "mpl"}, "unknown model 'mpl', did you mean 'mlp'"),
        ({"data": "digit"}, "unknown data set 'digit', did you mean 'digits'"),
        ({"policy": "random", "transforms": "rotat"}, "did you mean 'rotate'"),
        ({"defaults": "mnist"}, "defaults for images must be one of"),
    ],
)
def test_unknown_names_are_refused(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(replace(SMALL, **change), out=tmp_path)


def test_an_interruption_amid_torch_s_imports_stays_one(monkeypatch):
    def half_imported(*_):
        raise AttributeError("module 'sympy' has no attribute 'printing'")

    monkeypatch.setattr(torch, "use_deterministic_algorithms", half_imported)
    with pytest.raises(KeyboardInterrupt), algorithms(deterministic=False):
        raise KeyboardInterrupt


def test_a_finished_run_can_be_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    finished = train(replace(SMALL, epochs=1), out=tmp_path, splits=few())
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}

    def refuse(path, *_, **__):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    read_only = SimpleNamespace(**{**vars(os), "open": refuse, "replace": refuse, "access": lambda *_: False})
    monkeypatch.setattr(checkpoint, "os", read_only)
    monkeypatch.setattr(files, "os", read_only)
    assert train(replace(SMALL, epochs=1), out=tmp_path, splits=few(), tensorboard=True) == finished
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_a_process_that_is_refused_leaves_the_files_of_the_run_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_PATIENCE", 0.0)
    with pytest.raises(Stopped):
        train(SMALL, out=tmp_path, splits=few(), on_step=lambda progress: progress.step == 15)
    (tmp_path / "metrics.jsonl").write_text("what the run that is under way wrote since\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for recipe in (SMALL, replace(SMALL, lr=0.7)):
        with checkpoint.locked(tmp_path), pytest.raises(ValueError, match="another process is training there"):
            train(recipe, out=tmp_path, splits=few())
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "new").mkdir()
    with checkpoint.locked(tmp_path / "new"), pytest.raises(ValueError, match="another process is training there"):
        train(SMALL, out=tmp_path / "new", splits=few())
    assert [path.name for path in (tmp_path / "new").iterdir()] == [".lock"]


def test_what_a_run_left_that_was_killed_before_it_saved_is_void(tmp_path):
    chosen = replace(SMALL, policy="uncertain")
    with pytest.raises(KeyboardInterrupt):
        train(chosen, out=tmp_path, splits=few(), on_step=interrupt_at(25))
    assert (tmp_path / compositions.FILE).exists()
    left = []
    train(replace(SMALL, epochs=1), out=tmp_path, splits=few(), on_begin=lambda _: left.extend(tmp_path.glob("*.jsonl")))
    assert not left
    assert not (tmp_path / compositions.FILE).exists()
    assert 'policy = "none"' in (tmp_path / "recipe.toml").read_text()
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1


def interrupt_at(step: int):
    def on_step(progress):
        if progress.step == step:
            raise KeyboardInterrupt  # as a kill: nothing is saved

    return on_step
