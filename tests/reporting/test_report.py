"""Reports of small results: what they show, hostile names, damaged files and missing data."""

import json
import shutil

import numpy as np
import pytest
import torch

import outspan
from html_pages import read_page
from made import pixels
from outspan.comparison.stored import load_comparison
from outspan.data.dataset import Data
from outspan.data.splits import InMemory
from outspan.reporting.chosen import candidate_rows

KEYS = {"model": "mlp", "epochs": 2, "batch": 20, "transforms": "rotate,invert,shear_x"}
HOSTILE = '<script>document.title="hacked"</script>"\'\x1b[31m\n</script>'


def page_of(folder, **options):
    return read_page(outspan.report(folder, **options).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path, data = tmp_path_factory.mktemp("data") / "few.npz", outspan.load_data("digits")
    arrays = {"train_images": data.train.images[:100], "train_labels": data.train.labels[:100]}
    arrays |= {"test_images": data.test.images[:60], "test_labels": data.test.labels[:60]}
    np.savez(path, **{name: tensor.numpy() for name, tensor in arrays.items()})
    return path


@pytest.fixture(scope="module")
def trained(digits, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    outspan.train(data=digits, policy="uncertain", out=out, device="cpu", **KEYS)
    return out


@pytest.fixture
def run_folder(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def test_the_page_of_a_run_has_all_sections(run_folder):
    page = page_of(run_folder)
    for title in (
        "Curves", "Accuracy by class", "Confusion", "Calibration", "What was chosen", "Chosen most often",
        "Candidates, their losses and the choice", "Time and cost", "Recipe and provenance",
    ):  # fmt: skip
        assert title in page.text, title
    accuracy = outspan.evaluate(run_folder).accuracy
    assert f"{100 * accuracy:.2f} % test accuracy" in page.text
    wrong = min(48, round(60 * (1 - accuracy)))
    assert f"The {wrong} test images with the worst predictions" in page.text
    assert all(one["alt"] and (one["src"] or "").startswith("data:image/png;base64,") for one in page.of("img"))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert not [one for one in page.of("a") if not (one["href"] or "").startswith("#")]  # nothing is loaded


def test_the_worst_predictions_are_those_with_the_highest_loss(run_folder):
    evaluation = outspan.evaluate(run_folder)
    losses = -evaluation.probabilities.gather(1, evaluation.labels[:, None])[:, 0].log()
    wrong = [
        row
        for row in losses.argsort(descending=True).tolist()
        if evaluation.probabilities[row].argmax() != evaluation.labels[row]
    ]
    text = page_of(run_folder).text
    places = [text.index(f"image {row} ") for row in wrong[:48]]
    assert places == sorted(places)


def test_losses_before_and_after_are_those_of_the_model(run_folder):
    """The loss before is that of the training image itself."""
    run, data = outspan.load(run_folder), outspan.load_data(outspan.load(run_folder).recipe.data)
    losses = torch.nn.functional.cross_entropy(
        run.model(run.preprocess(data.train.images)), data.train.labels, reduction="none"
    ).tolist()
    text = page_of(run_folder).text
    shown = {part.split(" →")[0] for part in text.split(": loss ")[1:] if " →" in part[:8]}
    assert shown
    assert shown <= {f"{loss:.2f}" for loss in losses}


def test_a_page_about_several_runs_shows_fewer_samples_of_each(run_folder):
    alone = len(page_of(run_folder).of("img"))
    for i in range(8):
        shutil.copytree(run_folder, run_folder.parent / f"run{i}")
    page = page_of(run_folder.parent)
    assert len(page.of("section")) == 6
    assert 0 < len(page.of("img")) < 6 * alone / 2


def test_a_damaged_line_is_shown_and_the_rest_is_drawn(run_folder):
    path = run_folder / "metrics.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text(f'{first}\n{{<img src=x onerror=alert(1)>\n[1]\n{second[:-1]}, "x": NaN}}\n')
    page = page_of(run_folder)
    assert "metrics.jsonl, line 2: {<img src=x" in page.text
    assert "metrics.jsonl, line 3" in page.text
    assert "metrics.jsonl, line 4" in page.text
    assert not [one for one in page.of("img") if one.get("src") == "x"]
    assert f"{100 * outspan.evaluate(run_folder).accuracy:.2f} % test accuracy after 2 epochs," in page.text  # the checkpoint's
    lines = path.read_text()
    path.unlink()
    assert "metrics.jsonl: No such file" in page_of(run_folder).text
    path.write_text(lines)
    for checkpoint in run_folder.glob("step-*"):
        checkpoint.unlink()
    text = page_of(run_folder).text
    assert f"{100 * json.loads(first)['test_accuracy']:.2f} % test accuracy after 1 epoch:" in text
    assert "these may be the numbers of an earlier epoch" in text


def test_missing_data_and_weights_are_named_with_what_to_do(run_folder, digits):
    moved = digits.with_name("moved.npz")
    shutil.copy(digits, moved)
    settings = outspan.load(run_folder)
    other = run_folder.with_name("other")
    data = Data("mine", *(InMemory(split.images, split.labels) for split in _splits(settings)), settings.classes)
    outspan.train(splits=data, policy="random", out=other, device="cpu", **KEYS)
    text = page_of(other).text
    assert "Not in this report: " in text
    assert text.count(f"outspan report {other} --data PATH") == 1
    assert "Accuracy after each epoch" in text
    assert "Confusion Rows" in page_of(other, data=moved).text
    for path in run_folder.glob("step-*"):
        path.unlink()
    text = page_of(run_folder).text
    assert "Not in this report: " in text
    assert "The page needs the weights of the run: train it again" in text
    assert "--data PATH" not in text
    assert "Fraction of each composition" in text


def test_auto_shows_samples_before_and_after_the_policy_at_the_end_of_the_run(digits, tmp_path):
    keys = {**KEYS, "epochs": 30, "transforms": "rotate"}
    outspan.train(data=digits, policy="auto", out=tmp_path / "run", device="cpu", **keys)
    page = page_of(tmp_path / "run")
    strength = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["strength"]
    assert strength > 0.3
    assert "Training samples before and after the policy" in page.text
    drawn = [one["alt"] or "" for one in page.of("img") if ", after " in (one["alt"] or "")]
    assert len(drawn) == 12
    assert any("rotate" in alt for alt in drawn)
    assert not [alt for alt in drawn if "invert" in alt]
    outspan.train(data=digits, policy="auto", out=tmp_path / "short", device="cpu", **KEYS)  # 2 epochs: strength 0
    assert "the policy changes none of the samples" in page_of(tmp_path / "short").text


def test_several_labels_have_the_samples_with_the_worst_predictions(digits, tmp_path):
    """Each digit has two labels, whether it is even and whether it is above 4."""
    data, arrays = outspan.load_data(str(digits)), {}
    for name, one in (("train", data.train), ("test", data.test)):
        arrays[f"{name}_images"] = one.images.numpy()
        arrays[f"{name}_labels"] = np.stack([one.labels % 2 == 0, one.labels > 4], 1).astype(np.uint8)
    np.savez(tmp_path / "d.npz", **arrays)
    outspan.train(data=tmp_path / "d.npz", policy="random", out=tmp_path / "run", device="cpu", **KEYS)
    text, labels = page_of(tmp_path / "run").text, arrays["test_labels"].astype(bool)
    probabilities = outspan.evaluate(tmp_path / "run").probabilities.numpy()
    wrong = ((probabilities > 0.5) != labels).any(1)
    assert f"The {min(48, wrong.sum())} test images with the worst predictions" in text
    assert "Accuracy: the fraction of the samples whose labels are all right." in text
    losses = -np.log(np.where(labels, probabilities, 1 - probabilities)).sum(1) * wrong
    truth = ", ".join(np.array(data.classes[:2])[labels[losses.argmax()]]) or "no class"
    begin = text.index("true: ")
    assert text[begin:].startswith(f"true: {truth} predicted: ")
    assert text.index(f"image {losses.argmax()} ") == text.index("image ", begin)


def test_a_model_that_learned_nothing_is_named(digits, tmp_path):
    outspan.train(data=digits, policy="random", out=tmp_path / "run", device="cpu", **{**KEYS, "lr": 1e-9})
    labels = outspan.load_data(str(digits)).test.labels
    text = f"Not above the majority-class baseline ({100 * max(labels.bincount().tolist()) / len(labels):.2f} %)"
    assert text in page_of(tmp_path / "run").text


def _splits(run):
    data = outspan.load_data(run.recipe.data)
    return data.train, data.test


def test_names_from_outside_are_text(tmp_path, digits):
    data = outspan.load_data(str(digits))
    classes = (HOSTILE, *map(str, range(1, 10)))
    out = tmp_path / '<img src=x onerror=alert(1)>"'
    outspan.train(splits=Data("d", data.train, data.test, classes), policy="random", out=out, device="cpu", **KEYS)
    data = Data("d", data.train, data.test, classes)
    page = page_of(out)
    assert len(page.of("script")) == 1
    assert not [one for one in page.of("img") if one.get("src") == "x"]
    assert "\x1b" not in page.text
    outspan.train(data=digits, policy="random", out=tmp_path / "runs" / HOSTILE.replace("/", "-"), device="cpu", **KEYS)
    assert len(page_of(tmp_path / "runs").of("script")) == 1


@pytest.fixture(scope="module")
def compared(digits, tmp_path_factory):
    out = tmp_path_factory.mktemp("compared") / "all"
    outspan.compare(data=digits, policies=["none", "random"], seeds=2, out=out, device="cpu", **KEYS)
    return out


def test_the_page_of_a_comparison(compared, tmp_path):
    page = page_of(compared, out=tmp_path / "page.html")
    comparison = load_comparison(compared)
    for sentence in comparison.verdicts:
        assert sentence.replace("`", "") in page.text.replace(" .", ".").replace("  ", " ") or "`" in sentence
    assert "Accuracy against epochs" in page.text
    assert "Accuracy against seconds" in page.text
    for one in comparison.policies.values():
        assert f"{100 * one.mean:.2f}" in page.text
    assert "significant" in page.text
    assert f"Run: {max(comparison.policies, key=lambda name: comparison.policies[name].mean)}-0 of all" in page.text
    assert "One run does not tell" not in page.text


def test_a_stored_comparison_is_the_same(digits, tmp_path):
    result = outspan.compare(data=digits, policies=["none", "random"], seeds=2, out=tmp_path / "c", device="cpu", **KEYS)
    stored = load_comparison(tmp_path / "c")
    assert stored.verdicts == result.verdicts
    assert stored.chance == result.chance
    for name, one in result.policies.items():
        assert (stored.policies[name].curves, stored.policies[name].evaluated) == (one.curves, one.evaluated)
        assert (stored.policies[name].mean, stored.policies[name].steps) == (one.mean, one.steps)


def test_short_times_are_stored_and_shown_with_three_digits(compared, tmp_path):
    """Two runs of 0.122 s and 0.149 s do not have the same time."""
    stored = json.loads((compared / "comparison.json").read_text())
    stored |= {"equal": "time", "budgets": {"2": stored["policies"]}}
    for one, seconds in zip(stored["policies"].values(), (0.122, 0.149), strict=True):
        one["seconds"] = seconds
    (tmp_path / "comparison.json").write_text(json.dumps(stored))
    page, result = page_of(tmp_path), load_comparison(tmp_path)
    assert "The training times differ by more than 10 %" in page.text
    assert "0.122" in page.text
    assert "0.149" in page.text
    assert f"outspan report {tmp_path / 'budget-2' / 'none-0'}" in page.text
    assert result.as_dict()["policies"]["none"]["seconds"] == 0.122  # pyright: ignore[reportIndexIssue]


def test_a_comparison_without_its_runs_has_its_table(compared, tmp_path):
    (tmp_path / "only").mkdir()
    shutil.copy(compared / "comparison.json", tmp_path / "only")
    text = page_of(tmp_path / "only").text
    assert "No curves: the metrics of the runs of none, random are missing or damaged." in text
    assert "Results" in text


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"recipe": {}, "policies": {}}', '{"recipe": 1, "policies": 2}', "[" * 10**5]
)
def test_a_damaged_comparison_is_an_error_that_names_the_file(tmp_path, content):
    (tmp_path / "comparison.json").write_text(content)
    with pytest.raises(ValueError, match=r"comparison\.json: damaged"):
        outspan.report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["comparison.json"]


def test_a_folder_that_is_no_result_is_refused(tmp_path, digits, unchecked):
    with pytest.raises(ValueError, match=r"contains no result of outspan; pass the folder of a comparison \(outspan compare\)"):
        outspan.report(tmp_path)
    with pytest.raises(ValueError, match="no such folder; pass the folder"):
        outspan.report(tmp_path / "missing")
    with pytest.raises(ValueError, match="not a folder; pass the folder"):
        outspan.report(digits)
    with pytest.raises(ValueError, match=r"must be a \.html file, got '\.pdf'"):
        outspan.report(tmp_path, out="a.pdf")
    with pytest.raises(ValueError, match="folder must be a path, got 3"):
        outspan.report(3)  # pyright: ignore[reportArgumentType]


def test_the_command_writes_the_page(compared, tmp_path, run):
    assert run("report", compared, "-o", tmp_path / "page.html") == f"wrote {tmp_path / 'page.html'}\n"
    assert read_page((tmp_path / "page.html").read_text()).of("main")
    assert "pass the folder of" in run("report", tmp_path, code=2)
    assert json.loads((compared / "comparison.json").read_text())["chance"] > 0


def test_there_is_no_heading_without_compositions(digits, tmp_path):
    outspan.train(
        data=digits, policy="uncertain", out=tmp_path / "run", device="cpu", **{**KEYS, "transforms": "rotate", "depth": 1}
    )
    text = page_of(tmp_path / "run").text
    assert "Chosen most often" in text
    assert "Chosen least often" not in text


def test_a_picture_of_candidates_and_their_losses(trained, digits, tmp_path, run):
    run("candidates", trained, "-o", tmp_path / "c.png", "--count", 3)
    assert pixels(tmp_path / "c.png").shape[0] > 300
    loaded = outspan.load(trained)
    rows = candidate_rows(loaded, outspan.load_data(str(digits)), 3)
    for row in rows:
        assert row.kept.count(True) == loaded.recipe.keep
        assert row.losses[row.kept.index(True)] == max(row.losses)
    assert any((row.candidates[0] != row.original).any() for row in rows)
    for row in rows:
        for picture, name in zip(row.candidates, row.names, strict=True):
            assert name != "unchanged" or (picture == row.original).all()
    assert "must be a .png file" in run("candidates", trained, "-o", "c.pdf", code=2)
    outspan.train(data=digits, policy="random", out=tmp_path / "run", device="cpu", **KEYS)
    assert "policy random of the run keeps all" in run("candidates", tmp_path / "run", "-o", tmp_path / "d.png", code=2)
