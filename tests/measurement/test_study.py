"""The folder of a measurement: it is resumed, two runs give the same bytes, and a folder of other settings is refused."""

import io
import json
import multiprocessing
import shutil
import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from outspan.config import Recipe
from outspan.data.sets import load
from outspan.measurement import runs, study
from outspan.measurement.margins import compute_margins
from outspan.measurement.measure import measure
from outspan.measurement.predictions import save_predictions
from outspan.measurement.recipes import BASELINE, baseline_recipe, measurable, single_transforms
from outspan.policies.table import build_policy
from outspan.training import Stopped, lock, processes
from outspan.training.logits import compute_logits
from outspan.training.pool import Pool
from outspan.training.train import train
from outspan.training.trained import load as load_model
from outspan.transforms.normalize import Normalize

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Recipe:
    """Return a recipe for 100 training and 60 test digits, in a file."""
    path, digits = tmp_path_factory.mktemp("data") / "few.npz", load("digits")
    arrays = {"train_images": digits.train.images[:100], "train_labels": digits.train.labels[:100]}
    arrays |= {"test_images": digits.test.images[:60], "test_labels": digits.test.labels[:60]}
    np.savez(path, **{name: tensor.numpy() for name, tensor in arrays.items()})
    return Recipe(data=str(path), model="mlp-10", epochs=2, batch=25)


def watcher(seen: list[str], stop_at: int = -1):
    """Return a function that records every title and stops the n-th run after its first step."""

    @contextmanager
    def watch(title):
        seen.append(title)
        number = len(seen) - 1
        yield lambda state: number == stop_at

    return watch


def test_each_transform_is_used_alone_at_uniform_signed_levels(recipe):
    result = single_transforms(baseline_recipe(recipe, 0.25), ["rotate", "cutout"])
    assert list(result) == [BASELINE, "rotate", "cutout"]
    data = load(recipe.data)
    preprocess = Normalize(*data.train.statistics())
    images, labels = data.train.images, data.train.labels
    for name, low in (("rotate", -1.0), ("cutout", 0.0)):
        plans = [
            build_policy(result[name], torch.nn.Identity(), data, preprocess)(images, labels, step=step).plan
            for step in range(40)
        ]
        ops = torch.cat([plan.ops for plan in plans])
        levels = torch.cat([plan.levels for plan in plans])[ops >= 0]
        assert plans[0].names == (name,)
        assert ops.shape == (4000, 1)
        assert 0.22 < (ops == 0).double().mean() < 0.28
        assert low <= levels.min() < low + 0.05
        assert 0.95 < levels.max() <= 1
        assert levels.mean() == pytest.approx((low + 1) / 2, abs=0.06)
    assert not build_policy(result[BASELINE], torch.nn.Identity(), data, preprocess)(images, labels, step=0).plan.ops.numel()
    for changes in ({"defaults": "cifar", "same_class": 0.5}, {"policy": "pba", "policy_file": "schedule.txt"}):
        assert single_transforms(baseline_recipe(replace(recipe, **changes), 0.25), ["rotate", "cutout"]) == result
    assert "mixup" not in measurable()
    assert {"rotate", "blur", "resized_crop"} <= set(measurable())


def assert_close(classes, margin, other_classes, other_margin) -> None:
    """Compare models that were trained in different groups of models.

    Float32 sums are then rounded differently, by an amount that depends on the CPU, so no bits are promised. After a few steps
    the margins agree to 1e-4, and a class may differ only if the margin is similarly small.
    """
    assert torch.allclose(margin.double(), other_margin.double(), atol=1e-4)
    sure = margin > 1e-3
    assert sure.double().mean() > 0.9
    assert torch.equal(classes[sure], other_classes[sure])


def test_predictions_equal_those_of_single_runs(recipe, tmp_path):
    recipes = single_transforms(baseline_recipe(recipe, 0.5), ["rotate"])
    result = study.Study(recipes[BASELINE], seeds=[0, 3], out=tmp_path / "measured").run(recipes)
    test = load(recipe.data).test
    for name, configuration in recipes.items():
        for i, seed in enumerate((0, 3)):
            train(replace(configuration, seed=seed), out=tmp_path / f"{name}-{seed}")
            run = load_model(tmp_path / f"{name}-{seed}")
            logits = compute_logits(run.model, test, run.preprocess, "cpu")
            assert_close(
                result.predictions[name].classes[i], result.margins[name][i], logits.argmax(1), compute_margins(logits)
            )


def test_a_resumed_measurement_has_the_same_result(recipe, tmp_path, monkeypatch):
    whole = measure(recipe, transforms=["rotate", "invert"], seeds=range(3), out=tmp_path / "whole")
    seen: list[str] = []
    with pytest.raises(Stopped, match="training 3 models at once"):
        measure(recipe, transforms=["rotate", "invert"], seeds=range(3), out=tmp_path / "parts", watch=watcher(seen, 1))
    assert sorted(path.name for path in (tmp_path / "parts" / "models").iterdir()) == [f"baseline-{i}.npy" for i in range(3)]
    parts = measure(recipe, transforms=["rotate", "invert"], seeds=range(3), out=tmp_path / "parts", watch=watcher(seen))
    assert seen == [
        *("baseline, 3 models (1 of 3)", "rotate, 3 models (2 of 3)"),
        *("rotate, 3 models (1 of 2)", "invert, 3 models (2 of 2)"),
    ]
    again = measure(recipe, transforms=["rotate", "invert"], seeds=range(3), out=tmp_path / "parts", watch=watcher(seen))
    assert len(seen) == 4  # there is nothing left to train
    for other in (parts, again):
        assert json.dumps(other.as_dict()) == json.dumps(whole.as_dict())
    for folder, result in (("whole", whole), ("parts", parts)):
        save_predictions(tmp_path / f"{folder}.npz", result.predictions, result.info.seeds)
    assert (tmp_path / "whole.npz").read_bytes() == (tmp_path / "parts.npz").read_bytes()
    # More seeds and transforms in the same folder: only these are trained. The memory limit allows two at once.
    monkeypatch.setattr(study, "members_at_once", lambda *_: 2)
    more = measure(recipe, transforms=["rotate", "blur"], seeds=range(4), out=tmp_path / "parts", watch=watcher(seen))
    titles = ("baseline, 1 models", "rotate, 1 models", "blur, 2 models", "blur, 2 models")
    assert seen[4:] == [f"{title} ({i} of 4)" for i, title in enumerate(titles, 1)]
    assert torch.equal(more.predictions["rotate"].classes[:3], whole.predictions["rotate"].classes)


@pytest.mark.parametrize("model", ["mlp", "convnet"])
@pytest.mark.parametrize("at", range(4))
def test_a_kill_before_predictions_are_stored_loses_no_work(at, model, recipe, tmp_path, monkeypatch):
    """Two models of a group have one file each. After a kill between the two files the second must not be trained again."""
    plain = replace(recipe, model=model, epochs=1)
    whole = measure(plain, transforms=["invert"], seeds=range(2), out=tmp_path / "whole")
    writes, write_whole, rmtree = [], runs.write_whole, shutil.rmtree

    def kill_at(call):
        writes.append(call)
        if len(writes) == at + 1:
            raise KeyboardInterrupt

    def write(path, function):
        write_whole(path, function)
        if path.name != "settings.json":
            kill_at(path.name)

    def remove(path, **options):
        kill_at(path.name) if path.exists() else None
        rmtree(path, **options)

    monkeypatch.setattr(runs, "write_whole", write)
    monkeypatch.setattr(runs.shutil, "rmtree", remove)
    with pytest.raises(KeyboardInterrupt):
        measure(plain, transforms=["invert"], seeds=range(2), out=tmp_path / "m")
    monkeypatch.undo()
    seen = []
    result = measure(plain, transforms=["invert"], seeds=range(2), out=tmp_path / "m", watch=watcher(seen))
    assert all(
        torch.equal(result.predictions[name].classes, configuration.classes)
        for name, configuration in whole.predictions.items()
    )
    assert not list((tmp_path / "m" / "running").iterdir())
    assert not any("baseline, 1 models" in title or "baseline, seed 0" in title for title in seen)


def test_only_one_process_at_a_time_uses_a_folder(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "patience", 0.0)
    measure(recipe, transforms=["invert"], seeds=range(2), out=tmp_path)
    (tmp_path / "models" / ".baseline-0.npy.123.partial").touch()  # left by a killed write
    with lock.locked(tmp_path), pytest.raises(ValueError, match="another process is training there"):
        measure(recipe, transforms=["invert"], seeds=range(2), out=tmp_path)
    measure(recipe, transforms=["invert"], seeds=range(2), out=tmp_path)
    assert not list((tmp_path / "models").glob("*.partial"))


def test_models_that_cannot_be_batched_run_alone_and_resume(recipe, tmp_path):
    plain, seen = replace(recipe, model="convnet"), []
    with pytest.raises(Stopped, match="step 1 of 8"):
        measure(plain, transforms=["invert"], seeds=range(2), out=tmp_path / "m", watch=watcher(seen, 1))
    assert [path.name for path in (tmp_path / "m" / "running").iterdir()] == ["baseline-1"]
    result = measure(plain, transforms=["invert"], seeds=range(2), out=tmp_path / "m", watch=watcher(seen))
    assert seen[:2] == ["baseline, seed 0 (1 of 4)", "baseline, seed 1 (2 of 4)"]
    assert seen[2:] == ["baseline, seed 1 (1 of 3)", "invert, seed 0 (2 of 3)", "invert, seed 1 (3 of 3)"]
    assert not list((tmp_path / "m" / "running").iterdir())  # predictions are kept, models are not
    alone = train(replace(plain, policy="none", seed=1), out=tmp_path / "alone")
    one = result.predictions[BASELINE]
    assert (one.classes[1] == one.labels).double().mean() == pytest.approx(alone.accuracy)


def test_several_processes_give_the_same_predictions(recipe, tmp_path, side_by_side):
    plain, seen = replace(recipe, model="convnet", epochs=1), []

    @contextmanager
    def watch(title):
        assert title == "2 runs at a time"
        yield lambda state: seen.append(state)

    result = measure(plain, transforms=["invert"], seeds=range(2), out=tmp_path / "m", jobs=2, watch=watch)
    assert seen[-1].message == "4 of 4 runs"
    assert seen[-1].step == 4
    alone = train(replace(plain, policy="none", seed=1), out=tmp_path / "alone")
    one = result.predictions[BASELINE]
    assert (one.classes[1] == one.labels).double().mean() == pytest.approx(alone.accuracy)


_turn = threading.Lock()


def in_turn(*arguments, **options):
    """Run one job at a time: threads share one random generator, processes do not."""
    with _turn:
        return runs.run(*arguments, **options)


def test_mlps_are_grouped_by_transform_in_several_processes(recipe, tmp_path, monkeypatch):
    """Threads replace the processes."""
    started = []

    def start():
        ours, theirs = multiprocessing.Pipe()
        started.append(threading.Thread(target=processes._serve, args=(theirs,)))
        started[-1].start()
        return ours, started[-1]

    monkeypatch.setattr(processes, "_start", start)
    monkeypatch.setattr(study, "run", in_turn)
    recipe = replace(recipe, fraction=0.7)  # the processes must read the same part of the data
    result = measure(recipe, transforms=["invert"], seeds=range(2), out=tmp_path / "m", jobs=5)
    assert len(started) == 2  # one for the seeds of the baseline, one for those of invert
    alone = measure(recipe, transforms=["invert"], seeds=range(2), out=tmp_path / "alone")
    for name, one in alone.predictions.items():
        assert torch.equal(result.predictions[name].classes, one.classes)
    none, other = (single_transforms(baseline_recipe(recipe, 0.5), ["invert"])[name] for name in (BASELINE, "invert"))
    study.Study(none, seeds=range(2), out=tmp_path / "own", pool=Pool(5), data=load(recipe.data)).run({"a": none, "b": other})
    assert len(started) == 2  # data passed as an object is used in this process only


def test_on_one_gpu_all_compatible_models_train_in_one_batch(recipe, tmp_path):
    mine = study.Study(single_transforms(baseline_recipe(recipe, 0.5), ["rotate"])[BASELINE], seeds=range(3), out=tmp_path)
    recipes = single_transforms(baseline_recipe(recipe, 0.5), ["rotate", "invert"])
    recipes["decayed"] = replace(recipes["rotate"], weight_decay=0.1)
    tasks = {(name, seed): replace(configuration, seed=seed) for name, configuration in recipes.items() for seed in range(3)}
    assert [len(one) for one in mine._batches(tasks)] == [3, 3, 3, 3]
    mine.device = torch.device("cuda")
    assert [len(one) for one in mine._batches(tasks)] == [9, 3]  # another weight decay needs another batch
    mine.pool = Pool(2)
    assert [len(one) for one in mine._batches(tasks)] == [5, 4, 2, 1]
    assert [task for one in mine._batches(tasks) for task in one] == list(tasks)
    for one, title in zip(mine._batches(tasks)[1:3], ("rotate and 1 others, 4 models", "decayed, 2 models"), strict=True):
        assert runs.title_of(one) == title
    mine.pool = Pool(engine="ray", address="auto")  # of many GPUs
    assert [len(one) for one in mine._batches(tasks)] == [3, 3, 3, 3]


def test_an_image_folder_is_measured(tmp_path):
    for part, name, shade in [
        (part, name, shade) for part in ("train", "val") for name, shade in (("dark", 40), ("light", 200))
    ]:
        (tmp_path / "data" / part / name).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (10 + i, 9), (shade, shade + i, shade)).save(tmp_path / "data" / part / name / f"{i}.png")
    recipe = Recipe(data=str(tmp_path / "data"), model="mlp-5", size=8, epochs=8, batch=4)
    result = measure(recipe, transforms=["rotate"], seeds=range(2), out=tmp_path / "m")
    assert list(result.baseline.by_class) == ["dark", "light"]
    Image.new("RGB", (10, 9), (1, 2, 3)).save(tmp_path / "data" / "val" / "dark" / "0.png")  # another image with the same name
    with pytest.raises(ValueError, match=r"a measurement with other settings \(test '8 images, "):
        measure(recipe, transforms=["invert"], seeds=range(2), out=tmp_path / "m")
    assert result.baseline.accuracy.value == 1


def test_shared_batches_are_stored_in_the_settings(recipe, tmp_path):
    result = measure(recipe, transforms=["rotate"], seeds=2, out=tmp_path, shared_batches=True).as_dict()
    assert result["settings"]["shared_batches"]
    assert "not that of independent runs" in result["note"]
    with pytest.raises(ValueError, match="shared_batches True there, False requested"):
        measure(recipe, transforms=["rotate"], seeds=range(2), out=tmp_path)


def test_a_folder_of_other_settings_is_refused(recipe, tmp_path):
    out = tmp_path / "m"
    measure(recipe, transforms=["rotate"], seeds=range(2), out=out)
    for other, probability, message in [
        (replace(recipe, lr=0.2, epochs=1), 0.5, r"epochs 2 there, 1 requested, lr 0.1 there, 0.2 requested"),
        (recipe, 0.9, "probability 0.5 there, 0.9 requested"),
        (replace(recipe, data="digits"), 0.5, r"data '.*few.npz' there, 'digits' requested, .*train '100 images, \w+' there"),
    ]:
        with pytest.raises(ValueError, match=message):
            measure(other, transforms=["rotate"], seeds=range(2), out=out, probability=probability)
    measure(
        replace(recipe, seed=5, policy="augmix", transforms="geometric"), transforms=["rotate"], seeds=range(2), out=out
    )  # its own keys
    stored = json.loads((out / "settings.json").read_text())
    (out / "settings.json").write_text(json.dumps({key: stored[key] for key in stored if key != "weights"}))
    measure(recipe, transforms=["rotate"], seeds=range(2), out=out)  # a key that is missing in older files has its default
    older = {"share" if key == "fraction" else key: value for key, value in stored.items()}
    (out / "settings.json").write_text(json.dumps(older))
    measure(recipe, transforms=["rotate"], seeds=range(2), out=out)  # an old name of a key is read as the new one
    with pytest.raises(ValueError, match=r"weights '' there, 'published' requested"):
        measure(replace(recipe, weights="published"), transforms=["rotate"], seeds=range(2), out=out)
    (tmp_path / "refused" / "models").mkdir(parents=True)
    (tmp_path / "refused" / "settings.json").write_text(json.dumps(stored | {"model": "mpl"}))
    measure(recipe, transforms=["rotate"], seeds=range(2), out=tmp_path / "refused")  # no model was trained with those settings
    damaged = out / "models" / "rotate-1.npy"
    whole = damaged.read_bytes()
    for content, message in (
        (whole[:-8], "damaged"),
        (b"", "damaged"),
        (whole.replace(b"<f8", b"<i8"), "not predictions for 60 samples"),
    ):
        damaged.write_bytes(content)
        with pytest.raises(ValueError, match=rf"rotate-1.npy: {message}.*; remove it"):
            measure(recipe, transforms=["rotate"], seeds=range(2), out=out)
    damaged.unlink()
    measure(recipe, transforms=["rotate"], seeds=range(2), out=out)  # only the missing model of a group is trained
    assert_close(*(torch.from_numpy(row) for path in (damaged, io.BytesIO(whole)) for row in np.load(path)))
    (out / "settings.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"settings.json: not the settings of a measurement"):
        measure(recipe, transforms=["rotate"], seeds=range(2), out=out)
    shutil.rmtree(out)


def test_runs_and_measurements_need_different_folders(recipe, tmp_path):
    train(replace(recipe, policy="none", epochs=1), out=tmp_path / "run")
    measure(replace(recipe, epochs=1), transforms=["rotate"], seeds=range(2), out=tmp_path / "measured")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(ValueError, match="run: contains a run of `outspan train`, not a measurement"):
        measure(replace(recipe, epochs=1), transforms=["rotate"], seeds=range(2), out=tmp_path / "run")
    with pytest.raises(ValueError, match="measured: contains a measurement, not a run"):
        train(replace(recipe, policy="none", epochs=1), out=tmp_path / "measured")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_wrong_arguments_are_refused(recipe, tmp_path):
    out = tmp_path / "m"
    for seeds in ([0], [], [1, 1]):
        with pytest.raises(ValueError, match="at least 2 different seeds"):
            measure(recipe, transforms=["rotate"], seeds=seeds, out=out)
    for name in ("mixup", "cutmix"):
        with pytest.raises(ValueError, match=f"'{name}' mixes labels: only transforms that keep the label of a sample"):
            measure(recipe, transforms=["rotate", name], seeds=range(2), out=out)
    with pytest.raises(ValueError, match="unknown transform 'rotat', did you mean 'rotate'"):
        measure(recipe, transforms=["rotat"], seeds=range(2), out=out)
    with pytest.raises(ValueError, match="'identity' changes nothing: it is the baseline"):
        measure(recipe, transforms=["identity"], seeds=range(2), out=out)
    with pytest.raises(ValueError, match="unknown transform 'switchout'") as refused:
        measure(recipe, transforms=["switchout"], seeds=range(2), out=out)
    assert "word_replacement" not in str(refused.value)  # it is for texts only
    for name, message in (
        ("rotate", "unknown transform 'rotate'.*word_replacement"),
        ("back_translation", "needs a cache: set cache=FILE .allowed: switchout, word_replacement"),
    ):
        with pytest.raises(ValueError, match=message):
            single_transforms(baseline_recipe(replace(recipe, data="reviews.csv"), 0.5), [name])
    with pytest.raises(ValueError, match="no transform to measure"):
        measure(recipe, transforms=[], seeds=range(2), out=out)
    for probability in (0.0, 1.1, float("nan")):
        with pytest.raises(ValueError, match="probability must lie in"):
            measure(recipe, transforms=["rotate"], seeds=range(2), out=out, probability=probability)
    with pytest.raises(ValueError, match="shared_batches needs an mlp"):
        measure(replace(recipe, model="convnet"), transforms=["rotate"], seeds=range(2), out=out, shared_batches=True)
    assert not out.exists()
    with pytest.raises(ValueError, match=r"none, seed [01]: the loss is (nan|inf)"):
        measure(replace(recipe, lr=1e6, epochs=9), transforms=["rotate"], seeds=range(2), out=out)
