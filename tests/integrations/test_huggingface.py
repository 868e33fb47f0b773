"""Export to a folder for the Hugging Face Hub: transformers and outspan load it, and the card has the results."""

import json
import re
import shutil
from dataclasses import replace

import pytest
import safetensors.torch
import torch

import outspan
from outspan.config import read_recipe
from outspan.data.dataset import Data
from outspan.data.inputs import make_inputs
from outspan.data.splits import InMemory
from outspan.text.executor import PadTokens
from outspan.training import Stopped, checkpoint
from outspan.training.train import train
from reviews import make_reviews
from trained_runs import SMALL, few

TEXTS = ["A wonderful film.", "Dull, boring plot.", "great " * 60 + "awful", "[SEP] the [MASK]"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Return the folder of a finished run with averaged weights and chosen compositions."""
    folder = tmp_path_factory.mktemp("huggingface") / "digits"
    train(replace(SMALL, model="convnet", policy="uncertain", ema=0.9, seed=3), out=folder, splits=few(), device="cpu")
    return folder


def read_card(folder) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def test_an_image_model_is_loaded_again_with_the_same_predictions(digits, tmp_path):
    result = outspan.export(digits, tmp_path / "new" / "my-model", format="huggingface", splits=few())
    assert sorted(path.name for path in result.path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    run, again = outspan.load(digits), outspan.load(result.path)
    images = few().test.images
    assert torch.equal(again.predict(images).probabilities, run.predict(images).probabilities)
    assert (again.classes, again.shape, again.mean, again.step) == (run.classes, run.shape, run.mean, run.step)
    assert again.is_finished
    assert outspan.evaluate(again, splits=few()).accuracy == outspan.evaluate(run, splits=few()).accuracy
    stored = checkpoint.load(digits)
    assert stored is not None
    weights = safetensors.torch.load_file(result.path / "model.safetensors")
    assert all(torch.equal(tensor, stored.tensors[f"ema.{name}"]) for name, tensor in weights.items())
    config = json.loads((result.path / "config.json").read_text())
    assert config["architecture"] == "convnet"
    assert config["label_names"] == [str(digit) for digit in range(10)]
    assert config["pretrained_cfg"]["input_size"] == [1, 28, 28]


def test_the_card_has_data_recipe_accuracy_and_compositions(digits, tmp_path):
    result = outspan.export(digits, tmp_path / "my-model", format="huggingface", splits=few())
    card, evaluation = read_card(result.path), outspan.evaluate(digits, splits=few())
    assert card.startswith("---\nlibrary_name: outspan\npipeline_tag: image-classification\n")
    assert "Trained on 200 images of digits. Size of a sample: 1 x 28 x 28." in card
    assert f"Test accuracy {100 * evaluation.accuracy:.2f} % (95 % interval" in card
    for name, accuracy in evaluation.by_class.items():
        count = int((few().test.labels == int(name)).sum())
        assert f"| {name} | {count} | {100 * accuracy:.2f} |" in card
    assert "Seed 3, 30 steps. The weights are an exponential moving average with decay 0.9." in card
    assert f"outspan {outspan.__version__} and torch {torch.__version__}" in card
    recipe = re.search(r"```toml\n(.*?)```", card, re.DOTALL)
    (tmp_path / "recipe.toml").write_text(recipe[1])
    assert read_recipe(tmp_path / "recipe.toml") == outspan.load(digits).recipe
    lines = [json.loads(line)["compositions"] for line in (digits / "compositions.jsonl").read_text().splitlines()]
    totals = [sum(entry["count"] for entry in line.values()) for line in lines]
    unchanged = [line.get("none", {"count": 0})["count"] / total for line, total in zip(lines, totals, strict=True)]
    assert f"| none | {100 * sum(unchanged) / 3:.2f} | {100 * unchanged[-1]:.2f} |" in card


@pytest.fixture
def run_code(monkeypatch, capsys):
    """Return a function that runs the code of a model card and returns what it prints."""

    def execute(folder) -> str:
        monkeypatch.chdir(folder.parent)
        code = re.search(r"```python\n(.*?)```", read_card(folder), re.DOTALL)
        capsys.readouterr()
        exec(code[1], {})  # noqa: S102
        return capsys.readouterr().out

    return execute


def test_the_code_of_the_card_runs(digits, tmp_path, run_code):
    result = outspan.export(digits, tmp_path / "my-model", format="huggingface", splits=few())
    outspan.write_image(few().test.images, tmp_path / "photo.jpg")
    assert run_code(result.path) == f"{outspan.predict(digits, ['photo.jpg']).top(3)}\n"


def test_names_are_escaped_and_folders_of_the_machine_are_not_published(tiny, tmp_path):
    from outspan.data.sets import load

    data = load(str(tiny))
    named = Data(data.name, data.train, data.test, ("<b>|x", "two\n# lines"))
    keys = {"data": str(tiny), "model": "mlp", "epochs": 1, "batch": 20}
    outspan.train(**keys, splits=named, out=tmp_path / "run", device="cpu")
    result = outspan.export(tmp_path / "run", format="huggingface", splits=named)
    assert result.path == tmp_path / "run" / "huggingface"
    card = read_card(result.path)
    assert "&lt;b&gt;&#124;x" in card
    assert "\n# lines" not in card
    assert "of tiny.npz" in card
    assert "The policy in the last epoch" in card  # auto: its strength
    for file in result.path.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file.name
    assert outspan.load(result.path).classes == named.classes


def test_a_run_whose_data_is_gone_has_a_card_without_accuracy(digits, tmp_path):
    result = outspan.export(digits, tmp_path / "model", format="huggingface")  # the run has other data than digits
    assert result.report[0].startswith("The model card has no accuracy, because the test data cannot be read (")
    assert "| class |" not in read_card(result.path)


def test_an_unfinished_run_is_exported_and_named(tmp_path, run):
    with pytest.raises(Stopped):
        outspan.train(
            data="digits", model="mlp", fraction=0.04, out=tmp_path / "run", on_step=lambda progress: progress.step == 3
        )
    out = run("export", tmp_path / "run", "--format", "huggingface", "-o", tmp_path / "model")
    assert f"wrote {tmp_path / 'model'}" in out
    assert "The run is not finished: this is step 3." in read_card(tmp_path / "model")


@pytest.mark.parametrize("name", ["timm:small", "convnet"])
def test_timm_gets_its_own_keys(name, tmp_path, timm):
    splits = Data(
        "small",
        *[InMemory(split.images[:40, :, 8:12, 8:12], split.labels[:40]) for split in (few().train, few().test)],
        few().classes,
    )
    outspan.train(data="small", splits=splits, model=name, policy="none", epochs=1, out=tmp_path / "run", device="cpu")
    result = outspan.export(tmp_path / "run", format="huggingface", splits=splits)
    config = json.loads((result.path / "config.json").read_text())
    is_timm = name.startswith("timm:")
    assert config["architecture"] == ("small" if is_timm else "convnet")
    assert config["model_args"] == {"in_chans": 1}
    assert config["pretrained_cfg"].get("classifier") == ("2" if is_timm else None)
    assert read_card(result.path).startswith(f"---\nlibrary_name: {'timm' if is_timm else 'outspan'}\n")
    assert (
        outspan.evaluate(outspan.load(result.path), splits=splits).accuracy
        == outspan.evaluate(tmp_path / "run", splits=splits).accuracy
    )


def test_a_failure_leaves_no_folder(digits, tmp_path, monkeypatch, run):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    message = run("export", digits, "--format", "huggingface", "-o", tmp_path / "full", code=2)
    assert "already exists; choose another folder, or remove it" in message
    assert (tmp_path / "full" / "notes.txt").read_text() == "mine"

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", fail)
    with pytest.raises(ValueError, match=r"cannot be written \(No space left on device\)"):
        outspan.export(digits, tmp_path / "model", format="huggingface", splits=few())
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_damaged_folders_are_refused(digits, tmp_path):
    folder = outspan.export(digits, tmp_path / "model", format="huggingface", splits=few()).path
    config = json.loads((folder / "config.json").read_text())

    def check(message: str, **changes) -> None:
        changed = json.loads(json.dumps(config))
        for path, value in changes.items():
            parent, _, key = path.rpartition("__")
            (changed["outspan"][parent] if parent else changed["outspan"])[key] = value
        (folder / "config.json").write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=message):
            outspan.load(folder)

    check("metadata 'step' must be an integer of at least 0", step=-1)
    check("metadata 'data.classes' must be a list of two names or more", data__classes=["one"])
    check("metadata 'data.mean'", data__mean=[])
    check("unknown model", recipe__model="convnett")
    check(r"model\.safetensors does not fit model 'mlp'", recipe__model="mlp")
    check(r"model\.safetensors does not fit", data__shape=[1, 40000, 40000], recipe__model="mlp")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read"):
        outspan.load(folder)
    (folder / "config.json").write_text("[" * 5000)
    with pytest.raises(ValueError, match="no complete checkpoint"):
        outspan.load(folder)


@pytest.mark.parametrize(("truncate", "truncates_before"), [("head", True), ("tail", True), ("tail", False)])
def test_transformers_gives_the_probabilities_of_the_run(truncate, truncates_before, tmp_path, tiny_model, run_code):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    if not truncates_before:  # a tokenizer whose file does not tell the side that is cut off, as most
        tiny_model = shutil.copytree(tiny_model, tmp_path / "tiny")
        published = json.loads((tiny_model / "tokenizer.json").read_text())
        (tiny_model / "tokenizer.json").write_text(json.dumps(published | {"truncation": None}))
    (tmp_path / "data").mkdir()
    for split, seed in (("train", 0), ("test", 1)):
        rows = [json.dumps({"text": text, "label": "good" if label else "bad"}) for text, label in make_reviews(24, seed)]
        (tmp_path / "data" / f"{split}.jsonl").write_text("\n".join(rows))
    keys = {"data": str(tmp_path / "data"), "model": str(tiny_model), "length": 32, "truncate": truncate, "lr": 0.01}
    outspan.train(**keys, policy="none", epochs=1, batch=8, out=tmp_path / "run", device="cpu")
    folder = outspan.export(tmp_path / "run", tmp_path / "model", format="huggingface").path
    expected = outspan.predict(tmp_path / "run", TEXTS, device="cpu").probabilities
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.inference_mode():
        logits = model(**tokenizer(TEXTS, truncation=True, padding=True, return_tensors="pt")).logits
    assert torch.allclose(logits.softmax(1), expected, atol=1e-5)
    _, read = make_inputs(TEXTS, "texts", (32,), outspan.load(tmp_path / "run").recipe)
    assert read is not None
    [(passages, _)] = read.batches([torch.arange(len(TEXTS))], torch.device("cpu"))
    for ours, theirs in zip(PadTokens()(passages).tolist(), tokenizer(TEXTS, truncation=True)["input_ids"], strict=True):
        assert [token for token in ours if token] == theirs
    assert model.config.id2label == {0: "bad", 1: "good"}
    assert torch.allclose(outspan.load(folder).predict(TEXTS).probabilities.cpu(), expected, atol=1e-5)
    card = read_card(folder)
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: text-classification\n")
    assert "| good | 12 |" in card
    assert sum(map(float, re.findall(r"0\.\d+", run_code(folder)))) == pytest.approx(1, abs=1e-3)
    for file in folder.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file.name
        assert str(tiny_model.parent).encode() not in file.read_bytes(), file.name
