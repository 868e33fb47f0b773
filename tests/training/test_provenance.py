"""The provenance of a run: a folder is resumed only with the same recipe and data."""

import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from made import make_folder
from outspan.config import read_recipe
from outspan.data.sets import Data
from outspan.data.splits import InMemory
from outspan.training import Stopped, checkpoint
from outspan.training.train import train
from outspan.training.trained import load as load_model
from trained_runs import SMALL, equal, few, final, load_run, published


def test_a_run_needs_its_weights_file_only_at_the_start(timm, tmp_path, monkeypatch):
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


def test_a_run_resumes_if_its_data_has_moved(tmp_path):
    make_folder(tmp_path / "set", train=6, test=3)
    (tmp_path / "set" / "val").rename(tmp_path / "set" / "test")
    shutil.copytree(tmp_path / "set" / "test", tmp_path / "set" / "val")
    recipe = replace(SMALL, data=str(tmp_path / "set"), size=8, batch=5, epochs=2)
    messages = []
    train(recipe, out=tmp_path / "whole", on_begin=messages.append)
    samples, model = "12 train and 6 test images, 6 for validation, 2 classes, 3 x 8 x 8", "model mlp, 19,502 parameters"
    assert messages == [f"{samples}; {model}; policy none; device cpu"]
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "run", on_step=lambda progress: progress.step == 4)
    (tmp_path / "set").rename(tmp_path / "moved")
    train(replace(recipe, data=str(tmp_path / "moved")), out=tmp_path / "run", on_begin=messages.append)
    assert messages[1].endswith("; resuming at step 4 of 6")
    assert all(torch.equal(one, final(tmp_path / "run")[0][name]) for name, one in final(tmp_path / "whole")[0].items())
    assert "validation_accuracy" in final(tmp_path / "run")[1]["metrics"][-1]
    train(replace(recipe, data=str(tmp_path / "moved")), out=tmp_path / "run", on_begin=messages.append)
    assert len(messages) == 2  # the run is finished
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
    turned = InMemory(data.train.images.flip(0), data.train.labels)  # the same mean, but other labels
    with pytest.raises(ValueError, match=r"the data has changed since \(train_digest"):
        train(recipe, out=tmp_path, splits=replace(data, train=turned))
    train(recipe, out=tmp_path, splits=data)
    with pytest.raises(ValueError, match=r"the data has changed since \(test_digest"):
        load_run(tmp_path)  # reads all digits


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
    assert load_model(tmp_path / "run").recipe.policy_file == str(tmp_path / folder / "policy.txt")  # an absolute path
    (tmp_path / folder / "policy.txt").write_text("[[['Invert', 1.0, 0.5], ['Rotate', 0.5, 0.9]]]")
    with pytest.raises(ValueError, match="the file of policy_file has changed since"):
        train(recipe, out=tmp_path / "run", splits=few(40))


def test_a_checkpoint_with_an_old_key_is_read_and_resumed(tmp_path):
    recipe = replace(SMALL, epochs=1, fraction=0.5)
    summary = train(recipe, out=tmp_path, splits=few(40))
    tensors, metadata = checkpoint.load(tmp_path)
    metadata["recipe"]["share"] = metadata["recipe"].pop("fraction")
    checkpoint.save(tmp_path, tensors, metadata)
    assert load_model(tmp_path).recipe == recipe
    assert train(recipe, out=tmp_path, splits=few(40)).accuracy == summary.accuracy


def test_a_folder_of_another_recipe_is_refused(tmp_path):
    train(replace(SMALL, epochs=1), out=tmp_path, splits=few(40))
    with pytest.raises(ValueError, match=r"a run of another recipe \(lr 0.1 there, 0.5 requested\)"):
        train(replace(SMALL, epochs=1, lr=0.5), out=tmp_path, splits=few(40))


def test_changed_data_is_refused(tmp_path):
    train(replace(SMALL, epochs=1), out=tmp_path, splits=few(40))
    with pytest.raises(ValueError, match="the data has changed since"):
        train(replace(SMALL, epochs=1), out=tmp_path, splits=few(60))


def test_an_unfinished_run_warns_of_another_number_of_threads(tmp_path):
    with pytest.raises(Stopped):
        train(SMALL, out=tmp_path, splits=few(40), on_step=lambda state: True)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with pytest.warns(UserWarning, match=rf"will not be bit-identical \(threads {before} then, {before + 1} now\)"):
            train(SMALL, out=tmp_path, splits=few(40))
        torch.set_num_threads(before)
        train(SMALL, out=tmp_path, splits=few(40))  # the run is finished; a warning would be an error here
    finally:
        torch.set_num_threads(before)
