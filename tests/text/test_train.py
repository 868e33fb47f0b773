"""Training on texts: it learns, a killed run resumes to identical bits, and wrong settings are refused."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

import outspan
from outspan.comparison import timing
from outspan.comparison.grid import build_grid, grid_search
from outspan.config import DEFAULTS, KEYS, Recipe, build_recipe, read_recipe, with_values, write_recipe
from outspan.data.sets import load, noun_of
from outspan.data.tables import read_text
from outspan.measurement.measure import measure
from outspan.measurement.recipes import measurable
from outspan.text import documents
from outspan.text.models import load_classifier
from outspan.text.tokens import encode
from outspan.training import Stopped, checkpoint, compositions
from outspan.training.description import describe_defaults
from outspan.training.logits import accuracy
from outspan.training.step import Learner
from outspan.training.train import train
from reviews import make_reviews, write_model
from trained_runs import load_run

RECIPES = Path(__file__).parent.parent.parent / "recipes"
pytestmark = pytest.mark.usefixtures("one_thread")


def small(corpus, folder, **changes) -> Recipe:
    """Return a recipe for texts that trains in a second."""
    values = {"data": corpus, "model": folder, "length": 48, "batch": 8, "epochs": 2, "lr": 0.01} | changes
    return build_recipe(None, {key: str(value) for key, value in values.items()}, noun_of)


def state(folder) -> tuple[dict, dict]:
    tensors, meta = checkpoint.load(folder)
    return tensors, {key: value for key, value in meta.items() if key != "seconds"}


def assert_same(one, other) -> None:
    (left, metadata), (right, other_metadata) = state(one), state(other)
    assert metadata == other_metadata
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    for file in ("metrics.jsonl", "compositions.jsonl"):
        assert (one / file).read_bytes() == (other / file).read_bytes()


def test_a_text_model_learns_predicts_and_evaluates(corpus, tiny_model, tmp_path, run):
    summary = train(small(corpus, tiny_model, policy="none", epochs=14, lr=0.005), out=tmp_path / "run")
    assert summary.accuracy > 0.9
    trained, tested = load_run(tmp_path / "run")
    assert accuracy(trained.model, tested.split, trained.preprocess, "cpu") == summary.accuracy
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(ValueError, match=r"empty\.txt: an empty document"):
        read_text(tmp_path / "empty.txt")
    (tmp_path / "new.txt").write_text("the plot is wonderful. a superb film.")
    assert "new.txt  1  " in run("predict", tmp_path / "run", tmp_path / "new.txt")
    assert run("evaluate", tmp_path / "run").startswith(f"tested on the test split of {corpus}, 20 texts\n")


def test_all_rows_of_a_table_are_tested_unless_the_run_was_trained_on_it(tiny_model, tmp_path, run):
    def table(name: str, count: int, seed: int) -> Path:
        rows = [{"text": text, "label": label} for text, label in make_reviews(count, seed)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / name

    own, other = table("reviews.jsonl", 60, 0), table("test.jsonl", 30, 1)
    held_out = len(load(str(own)).test)
    train(small(own, tiny_model, epochs=1, batch=4, policy="none", fraction=0.9, validation=5), out=tmp_path / "run")
    tested_count = len(load_run(tmp_path / "run")[1].split)
    assert tested_count < held_out < 30
    moved = tmp_path / "moved.jsonl"
    moved.write_bytes(own.read_bytes())
    for arguments, tested in (
        ((), f"the {tested_count} texts that the run held out of {own}"),
        (("--data", own), f"the {tested_count} texts that the run held out of {own}"),
        (("--data", moved), f"the {tested_count} texts that the run held out of {moved}"),
        (("--data", other), f"all 30 texts of {other}"),
    ):
        assert run("evaluate", tmp_path / "run", *arguments).splitlines()[0] == f"tested on {tested}"
    result = json.loads(run("evaluate", tmp_path / "run", "--data", other, "--json"))
    assert result["tested"] == {"data": str(other), "part": "whole", "count": 30, "trained_on": 0}
    assert sum(map(sum, result["confusion"])) == 30
    one_class = [line for line in other.read_text().splitlines() if json.loads(line)["label"] == 1]
    other.write_text("\n".join(one_class))  # a test set may have one class only
    assert run("evaluate", tmp_path / "run", "--data", other).startswith(f"tested on all {len(one_class)} texts of {other}\n")
    seen = len(load(str(own)).train)
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text(own.read_text() + "\n".join(one_class))
    out = run("evaluate", tmp_path / "run", "--data", mixed)
    trained_on = int(
        out.splitlines()[0]
        .removeprefix(f"tested on all {60 + len(one_class)} texts of {mixed}; the run was trained on ")
        .split()[0]
    )
    assert 0.7 * seen < trained_on < seen  # a fraction of them, without the validation texts


def test_a_run_stopped_after_every_step_has_the_same_result(corpus, tiny_model, cache, tmp_path):
    changes = {"transforms": "paper3", "cache": cache, "select": "proportional", "validation": 6, "accumulate": 2}
    recipe = small(corpus, tiny_model, policy="uncertain", **changes)
    train(recipe, out=tmp_path / "whole")
    stops = 0
    while True:
        try:
            train(recipe, out=tmp_path / "parts", on_step=lambda progress: True)
            break
        except Stopped:
            stops += 1
    assert stops == 9  # two epochs of 34 reviews in batches of 8; the final step is not stopped
    assert_same(tmp_path / "whole", tmp_path / "parts")
    chosen = compositions.read(tmp_path / "whole")[-1]["compositions"]
    assert set(chosen) <= {"switchout", "word_replacement", "back_translation"}
    assert sum(entry["count"] for entry in chosen.values()) == 34


RUN = """
import signal, sys
from pathlib import Path
import torch
from safetensors.torch import load_file, save_file
from outspan.config import Recipe
from outspan.training.train import train
torch.set_num_threads(1)
steps = []
def on_step(progress):
    print(progress.step, flush=True)
    steps.append(1)
    if len(steps) == 8:  # of 20 steps, so the kill always comes before the end
        signal.pause()
print("start", flush=True)
train(Recipe(**eval(sys.argv[2])), out=Path(sys.argv[1]), save_every=0.0, on_step=on_step)
"""


@pytest.mark.parametrize(("runs", "kills"), [(1, 1), pytest.param(10, 2, marks=pytest.mark.slow)])
def test_a_run_killed_at_random_times_has_the_same_result(runs, kills, corpus, tiny_model, cache, tmp_path):
    recipe = small(corpus, tiny_model, policy="uncertain", transforms="paper3", cache=cache, epochs=4)
    values = repr({key: getattr(recipe, key) for key in KEYS})
    train(recipe, out=tmp_path / "whole")
    draw = np.random.Generator(np.random.Philox(3))
    for run in range(runs):
        folder = tmp_path / str(run)
        for _ in range(kills):
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", RUN, str(folder), values],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert process.stdout is not None
            for _ in range(int(draw.integers(2, 6))):
                process.stdout.readline()
            time.sleep(float(draw.uniform(0, 0.05)))
            assert process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.communicate()
        train(recipe, out=folder)
        assert_same(tmp_path / "whole", folder)


def test_accumulated_parts_of_a_batch_give_the_same_gradient(tiny_model):
    model = load_classifier(str(tiny_model), 2, 48).eval()
    tokens = torch.randint(7, 30, (10, 12), generator=torch.Generator().manual_seed(0))
    targets = torch.eye(2)[torch.arange(10) % 2]
    results = []
    for parts in (1, 3):
        loss = Learner(model, 0.0, graphs=False, parts=parts)(tokens, targets)
        results.append((loss, [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(results[0][1], results[1][1], strict=True))


@pytest.mark.parametrize(("name", "expected"), [("paper/imdb-bert-large", "95.96"), ("imdb-minilm-uncertain", "93.70 ± 0.09")])
def test_the_published_recipe_starts_on_a_tiny_bert(name, expected, corpus, cache, tmp_path):
    write_model(tmp_path / "bert", positions=512)
    recipe = read_recipe(RECIPES / f"{name}.toml")
    assert (recipe.depth, recipe.candidates, recipe.keep, recipe.length, recipe.truncate) == (1, 4, 1, 512, "tail")
    own = replace(recipe, data=str(corpus), model=str(tmp_path / "bert"), cache=str(cache), epochs=1)
    assert train(own, out=tmp_path / "run").steps == -(-40 // recipe.batch)
    header = (RECIPES / f"{name}.toml").read_text()
    assert "# Expected" in header
    assert expected in header


@pytest.mark.slow
def test_a_grid_is_chosen_on_held_out_texts(corpus, tiny_model, cache, tmp_path):
    recipe, axes = build_grid(RECIPES / "imdb-bert-large-grid.toml")
    assert {key: len(values) for key, values in axes.items()} == {"epochs": 9, "batch": 2, "lr": 3}
    own = replace(
        recipe, data=str(corpus), model=str(tiny_model), cache=str(cache), length=48, validation=8, batch=8, policy="none"
    )
    assert grid_search(own, {"lr": [1e-9], "epochs": [14]}, out=tmp_path / "grid").chosen == "lr=1e-09,epochs=14"
    result = grid_search(own, {"lr": [1e-9, 0.01], "epochs": [14]}, out=tmp_path / "grid")  # a grid may be extended
    assert result.chosen == "lr=0.01,epochs=14"
    assert result.points["lr=0.01,epochs=14"] > result.points["lr=1e-09,epochs=14"]
    assert json.loads((tmp_path / "grid" / "grid.json").read_text()) == asdict(result)


def test_measure_works_for_text(corpus, tiny_model, cache, tmp_path):
    recipe = small(corpus, tiny_model, cache=cache, epochs=1)
    names = measurable(recipe.data, recipe.cache)
    assert names[:3] == ("switchout", "word_replacement", "back_translation")
    assert not {"synonym_replacement", "casing"} & {*names}  # they need more than a cache
    assert measurable(recipe.data) == (*names[:2], *names[3:])
    names = names[:3]
    result = measure(recipe, transforms=names, seeds=2, out=tmp_path / "measured")
    assert result.info.noun == "texts"
    assert result.info.settings.recipe.probability == 1  # the default for text
    assert set(result.transforms) == set(names)
    assert result.info.samples == 20
    assert "40 texts" in json.loads((tmp_path / "measured" / "settings.json").read_text())["train"]


def test_a_csv_is_trained_by_one_command(tiny_model, tmp_path, run):
    rows = "".join(f'"{text}",{("bad", "good")[label]}\n' for text, label in make_reviews(60))
    (tmp_path / "mine.csv").write_text("review,mood\n" + rows)
    sets = ["text_column=review", "label_column=mood", "length=48", "lr=0.01", "epochs=2"]
    options = ["--data", tmp_path / "mine.csv", "--model", tiny_model, *(x for one in sets for x in ("--set", one))]
    assert "test accuracy" in run("train", *options, "-o", tmp_path / "run")
    assert state(tmp_path / "run")[1]["data"]["classes"] == ["bad", "good"]


def test_tokens_are_shared_by_all_seeds(corpus, tiny_model):
    data, again = load(str(corpus)), load(str(corpus))
    recipe = small(corpus, tiny_model)
    assert data.test.prepared(recipe) is again.test.prepared(replace(recipe, seed=3))
    assert data.test.prepared(recipe) is not data.test.prepared(replace(recipe, length=20))
    relabelled = replace(data.test, labels=1 - data.test.labels)
    assert relabelled.prepared(recipe).labels.tolist() == relabelled.labels.tolist()


def test_a_comparison_and_a_grid_tokenize_their_documents_once(corpus, tiny_model, tmp_path, run, monkeypatch):
    encoded = []
    monkeypatch.setattr(documents, "encode", lambda first, *rest, **more: encoded.append(first) or encode(first, *rest, **more))
    lines = [f"data={corpus}", f"model={tiny_model}", "length=46", "epochs=1"]
    changes = [x for one in lines for x in ("--set", one)]
    (tmp_path / "grid.toml").write_text("lr = [0.1, 0.2, 0.3]\nbatch = 8\npolicy = 'none'\nvalidation = 6\n")
    for arguments, expected in (
        (["compare", *changes, "--policies", "none,random", "--seeds", "2"], [40, 20, 40]),  # the last ones for the report
        (["grid", tmp_path / "grid.toml", *changes], [34, 6]),  # the other texts are cached from the comparison
    ):
        encoded.clear()
        run(*arguments, "-o", tmp_path / arguments[0])
        assert [len(documents) for documents in encoded] == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"policy": "randaugment"},
            "policy 'randaugment' is not for texts: use one of none, random, auto, uncertain, sequence",
        ),
        ({"defaults": "cifar"}, "defaults for texts must be one of none, got 'cifar'"),
        ({"transforms": "rotate"}, "transform 'rotate' is not for texts: use one of switchout"),
        ({"transforms": "paper3"}, r"'back_translation' needs a cache.*outspan text backtranslate"),
        ({"transforms": "paper3", "cache": "none.jsonl"}, r"none\.jsonl: No such file"),
        ({"length": 65}, "length must be at most the 64 positions of .*, got 65"),
        ({"model": "no/such/folder"}, r"model 'no/such/folder' cannot be loaded"),
        ({"text_column": "body"}, r"train\.jsonl, line 1: no column 'body' \(it has text, label\)"),
    ],
)
def test_wrong_settings_are_refused(changes, message, corpus, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=message):
        train(small(corpus, tiny_model, **changes), out=tmp_path / "run")


def test_a_model_for_images_is_refused_before_texts_are_read(corpus, tmp_path):
    recipe = build_recipe(None, {"data": str(corpus), "model": "wide_resnet-28-2"}, noun_of)
    with pytest.raises(
        ValueError, match="model 'wide_resnet-28-2' is for images; for texts use a Hugging Face Hub name or a local folder"
    ):
        train(recipe, out=tmp_path / "run")


def test_a_recipe_for_texts_has_the_defaults_of_texts(corpus, tmp_path):
    (tmp_path / "r.toml").write_text(f'data = "{corpus}"\nepochs = 7\n')
    made = build_recipe(tmp_path / "r.toml", {"batch": 5}, noun_of)
    values = {"data": str(corpus), "epochs": 7, "min_steps": 0, "batch": 5}
    assert made == with_values(Recipe(), {**DEFAULTS["texts"], **values})
    for recipe in (made, replace(made, optimizer="sgd", depth=2, clip=0.0)):  # the defaults of texts, and those of images
        (tmp_path / "w.toml").write_text(write_recipe(recipe))
        assert build_recipe(tmp_path / "w.toml", {}, noun_of) == recipe


def test_few_texts_are_trained_for_the_least_number_of_steps_and_resume(corpus, tiny_model, tmp_path):
    recipe = small(corpus, tiny_model, policy="uncertain", min_steps=12)  # 40 texts: 5 steps per epoch
    whole = train(recipe, out=tmp_path / "whole")
    assert (whole.steps, [row["step"] for row in whole.metrics]) == (15, [5, 10, 15])
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "halves", on_step=lambda progress: progress.step == 11)
    train(tmp_path / "halves" / "recipe.toml", out=tmp_path / "halves")
    assert_same(tmp_path / "whole", tmp_path / "halves")
    exact = small(corpus, tiny_model, policy="uncertain", epochs=3)
    train(exact, out=tmp_path / "exact")
    assert all(torch.equal(state(tmp_path / "exact")[0][name], value) for name, value in state(tmp_path / "whole")[0].items())


def test_a_run_of_a_version_without_min_steps_resumes_with_its_epochs(corpus, tiny_model, tmp_path):
    recipe = small(corpus, tiny_model, policy="uncertain")
    assert recipe.min_steps == 0
    train(recipe, out=tmp_path / "whole")
    with pytest.raises(Stopped):
        train(recipe, out=tmp_path / "old", on_step=lambda progress: progress.step == 7)
    tensors, metadata = checkpoint.load(tmp_path / "old")
    del metadata["recipe"]["min_steps"]
    checkpoint.save(tmp_path / "old", tensors, metadata)
    lines = (tmp_path / "old" / "recipe.toml").read_text().splitlines()
    (tmp_path / "old" / "recipe.toml").write_text("\n".join(line for line in lines if not line.startswith("min_steps")))
    train(tmp_path / "old" / "recipe.toml", out=tmp_path / "old")
    assert_same(tmp_path / "whole", tmp_path / "old")


def test_the_defaults_of_a_run_on_texts_are_printed_with_their_reasons(corpus, tiny_model, tmp_path, run_command, monkeypatch):
    monkeypatch.setattr(timing, "_ROUND_SECONDS", 0.0)

    def lines(*changes: str) -> list[str]:
        sets = [x for one in (f"data={corpus}", "policy=none", "batch=8", *changes) for x in ("--set", one)]
        _, out, _ = run_command("train", "--model", tiny_model, *sets, "-o", tmp_path / "run", "--dry-run")
        return [line for line in out.splitlines() if line.startswith("defaults: ")]

    least = DEFAULTS["texts"]["min_steps"]
    rest = "lr 0.0001, for the size of the model; length 64, at most the positions of the model"
    following = ". Next step: `outspan grid` compares other values on held-out texts (docs/text.md)"
    assert lines() == [f"defaults: {-(-least // 5)} epochs, for at least {least} steps; {rest}{following}"]
    assert lines("batch=1") == [f"defaults: {-(-least // 40)} epochs, for at least {least} steps; {rest}{following}"]
    assert lines("epochs=4") == [f"defaults: {rest}{following}"]
    assert lines("epochs=4", "lr=1e-3", "length=32") == []
    built = build_recipe(None, {"model": str(tiny_model)}, lambda name: "texts")
    assert describe_defaults(built, "texts", 100_000) == [f"defaults: 2 epochs, for the size of the model; {rest}{following}"]
    assert describe_defaults(Recipe(), "images", 10) == []


def test_a_policy_for_images_is_refused_before_training(corpus, tiny_model, tmp_path, run):
    sets = [x for one in ("length=48", "epochs=1", f"model={tiny_model}", f"data={corpus}") for x in ("--set", one)]
    message = run("compare", *sets, "--policies", "none,randaugment", "-o", tmp_path / "compared", code=2)
    assert "is not for texts: use one of" in message
    assert not (tmp_path / "compared").exists()


@pytest.mark.slow
def test_the_commands_of_studies_accept_texts(corpus, tiny_model, tmp_path, run):
    sets = [x for one in ("length=48", "epochs=1", f"model={tiny_model}", f"data={corpus}") for x in ("--set", one)]
    run("compare", *sets, "--policies", "none,uncertain", "--seeds", "2", "-o", tmp_path / "compared")
    options = ["--transforms", "switchout,word_replacement", "--seeds", "2", "--probability", "1"]
    out = run("measure", *sets, *options, "-o", tmp_path / "measured")
    run("compositions", tmp_path / "compared" / "uncertain-0", "-o", tmp_path / "chosen.png")
    assert "Values in %, 2 seeds, 20 test texts." in out
    assert "word_replacement" in out
    assert (tmp_path / "chosen.png").exists()


def test_theory_rank_refuses_texts(corpus, tmp_path, run):
    message = run("theory", "rank", "--data", corpus, "-o", tmp_path / "rank.json", code=2)
    assert "theory rank needs images, got texts" in message


@pytest.mark.filterwarnings("ignore:the cache of back-translations has")
@pytest.mark.parametrize(
    ("name", "changed"), [("train.jsonl", "train_digest"), ("test.jsonl", "test_digest"), ("cache", "cache")]
)
def test_a_run_is_not_resumed_with_other_texts(name, changed, corpus, tiny_model, cache, tmp_path):
    recipe = small(corpus, tiny_model, cache=cache, transforms="paper3", epochs=1)
    train(recipe, out=tmp_path / "run")
    path = cache if name == "cache" else corpus / name
    path.write_text(path.read_text().replace("wonderful", "superb"))
    with pytest.raises(ValueError, match=rf"the data has changed since \({changed} "):
        train(recipe, out=tmp_path / "run")
    if name == "test.jsonl":
        with pytest.raises(ValueError, match=r"the data has changed since \(test_digest "):
            load_run(tmp_path / "run")
    else:
        assert len(load_run(tmp_path / "run")[1].split) == 20


def test_a_run_is_loaded_from_any_folder(corpus, tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(corpus.parent)
    (tmp_path / "bert").symlink_to(tiny_model)
    train(small("reviews", "bert", epochs=1), out=tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(load_run(tmp_path / "run")[1].split) == 20


def test_trackers_get_metrics_of_texts_without_examples(corpus, tiny_model, tmp_path):
    reports = []
    train(small(corpus, tiny_model, policy="random", epochs=1), out=tmp_path / "run", track=reports.append)
    assert [(report.metrics["epoch"], report.examples) for report in reports] == [(0, ())]


def test_texts_with_several_labels(tiny_model, tmp_path):
    """They are trained on with all transforms that need labels, and the macro F1 is that of scikit-learn."""
    texts = {"train": make_reviews(64), "test": make_reviews(40, 1)}
    for name, reviews in texts.items():
        rows = [
            {"text": text, "label": ["good" if label else "bad"] + ["music"] * ("music" in text)} for text, label in reviews
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = {"data": str(tmp_path), "model": str(tiny_model), "length": 48, "device": "cpu", "label_separator": ";"}
    options = {"policy": "uncertain", "transforms": "word_swap,protected_replacement", "epochs": 2, "lr": 0.02, "batch": 16}
    outspan.train(**keys, **options, out=tmp_path / "run")
    metrics = outspan.evaluate(tmp_path / "run").metrics
    predicted = outspan.predict(tmp_path / "run", [text for text, _ in texts["test"]])
    found = [[name in row for name in predicted.class_names] for row in predicted.labels()]
    expected = [[label == 0, label == 1, "music" in text] for text, label in texts["test"]]
    assert predicted.class_names == ("bad", "good", "music")
    assert metrics.macro_f1 == pytest.approx(f1_score(expected, found, average="macro", zero_division=0))
