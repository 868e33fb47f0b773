"""Previews of transforms of texts: in Python, and in the terminal."""

import csv
import json
import re

import numpy as np
import pytest

from outspan.text.preview import differences, transform_texts
from outspan.transforms.table import TEXT_TRANSFORMS

TEXTS = ["The film was wonderful, don't you think?\nI liked the music a lot!", "Über-dull plot; it's boring 😀."]


def test_level_zero_returns_the_texts_and_draws_are_reproducible():
    for name, transform in TEXT_TRANSFORMS.items():
        if transform.needs in ("", "case") and name != "protected_replacement":
            same = transform_texts(TEXTS, [name], [0.0])
            assert [text.split() for text in same] == [text.split() for text in TEXTS]
            once = transform_texts(TEXTS, [name], [1.0], seed=4)
            assert transform_texts(TEXTS, [name], [1.0], seed=4) == once
            assert transform_texts(TEXTS[:1], [name], [1.0], seed=4)[:1] == once[:1] or "replace" in name or name == "switchout"
    assert len({tuple(transform_texts(TEXTS, ["word_swap"], [1.0], seed=seed)) for seed in range(5)}) > 1


def test_the_differences_make_both_texts():
    changed = transform_texts(TEXTS, ["word_deletion", "keyboard_typos"], [1.0, 1.0])
    for old, new in zip(TEXTS, changed, strict=True):
        pieces = differences(old, new)
        assert "".join(before for _, before, _ in pieces) == old
        assert "".join(after for *_, after in pieces) == new


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a film", r"texts must be a list of strings, got 'a film': pass a single text as \[text\]"),
        (7, "texts must be a list of strings, got 7"),
        ([], "texts must be a list of strings, got an empty list"),
        (["a", " "], "texts must be strings that are not empty, got ' ' at position 1: leave it out"),
        (["a", None], "got None at position 1"),
        (["a\0b"], "pairs of texts cannot be shown"),
    ],
)
def test_wrong_texts_are_refused(unchecked, texts, message):
    with pytest.raises(ValueError, match=message):
        transform_texts(texts, ["word_swap"], [1.0])


def test_wrong_names_labels_and_caches_are_refused(unchecked, tmp_path):
    for name in ("back_translation", "masked_replacement"):
        with pytest.raises(ValueError, match=f"{name} needs a cache of sentences: pass it .* with cache="):
            transform_texts(TEXTS, [name], [1.0])
    with pytest.raises(ValueError, match="unknown transform 'rotate'"):
        transform_texts(TEXTS, ["rotate"], [1.0])
    with pytest.raises(ValueError, match="protected_replacement needs the labels of the texts: pass them with labels="):
        transform_texts(TEXTS, ["protected_replacement"], [1.0])
    for labels, got in (([1], "1 of them"), ("ab", "'ab'"), (5, "5")):
        with pytest.raises(ValueError, match=f"labels must be one per text, got {got} for 2 texts"):
            transform_texts(TEXTS, ["protected_replacement"], [1.0], labels=labels)
    with pytest.raises(ValueError, match="`outspan text backtranslate` makes a cache"):
        transform_texts(TEXTS, ["back_translation"], [1.0], cache=tmp_path / "missing.jsonl")


@pytest.mark.parametrize("container", [list, np.array, "pandas"])
def test_texts_and_labels_can_be_in_arrays_and_series(container):
    container = pytest.importorskip("pandas").Series if container == "pandas" else container
    expected = transform_texts(TEXTS * 2, ["protected_replacement"], [1.0], labels=[0, 1, 0, 1])
    labels = container(["good", "bad", "good", "bad"])
    assert transform_texts(container(TEXTS * 2), ["protected_replacement"], [1.0], labels=labels) == expected


def test_words_that_tell_the_label_stay_in_the_preview(tmp_path, run):
    """Each of these words is in half of the texts, those of one class."""
    names = ["dull", "lovely"] * 30
    texts = [f"The film number {i} is {name} {name} {name} indeed" for i, name in enumerate(names)]
    changed = {
        name: [transform_texts(texts, [name], [1.0], labels=names, seed=seed) for seed in range(4)]
        for name in ("word_replacement", "protected_replacement")
    }
    lost = {
        transform: sum(text.count(name) < 3 for some in of_seeds for text, name in zip(some, names, strict=True))
        for transform, of_seeds in changed.items()
    }
    assert lost["protected_replacement"] == 0
    assert lost["word_replacement"] > 0
    path = tmp_path / "reviews.csv"
    path.write_text("text,stars\n" + "".join(f"{text},{name}\n" for text, name in zip(texts, names, strict=True)))
    assert "needs the labels" in run("apply", path, "--ops", "protected_replacement:1", code=2)
    run("apply", path, "--label-column", "stars", "--ops", "protected_replacement:1", "-o", tmp_path / "new.csv")
    with open(tmp_path / "new.csv", newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == transform_texts(
            texts, ["protected_replacement"], [1.0], labels=names
        )


def test_translations_of_a_cache_are_shown(tmp_path, run):
    rows = [{"engine": "apertium", "pair": "eng-spa"}, {"text": "One film.", "back": "A movie."}]
    (tmp_path / "cache.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert transform_texts(["One film."], ["back_translation"], [1.0], cache=tmp_path / "cache.jsonl") == ["A movie."]
    (tmp_path / "a.txt").write_text("One film.")
    shown = run("gallery", tmp_path / "a.txt", "--cache", tmp_path / "cache.jsonl")
    assert "back_translation  1  [-One film-]{+A movie+}." in shown
    assert "masked_replacement  masked_replacement needs a cache of proposed words" in shown


def write_reviews(path):
    path.write_text("".join(json.dumps({"id": i, "review": text.replace("\n", " ")}) + "\n" for i, text in enumerate(TEXTS)))


def test_apply_shows_differences_without_colours(tmp_path, run):
    write_reviews(path := tmp_path / "reviews.jsonl")
    out = run("apply", path, "--text-column", "review", "--ops", "word_deletion:1,keyboard_typos:1", "--rows", "1")
    assert re.search(r"\[-[^-]+-\]", out)
    old, new = re.sub(r"\{\+.*?\+\}", "", out), re.sub(r"\[-.*?-\]", "", out)
    assert "".join(re.sub(r"\[-(.*?)-\]", r"\1", old).split()) == "".join(TEXTS[0].split())
    [expected] = transform_texts([TEXTS[0].replace("\n", " ")], ["word_deletion", "keyboard_typos"], [1.0, 1.0])
    assert "".join(re.sub(r"\{\+(.*?)\+\}", r"\1", new).split()) == "".join(expected.split())
    assert "\x1b" not in out


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_apply_writes_a_table_with_its_other_columns(suffix, tmp_path, run):
    write_reviews(path := tmp_path / "reviews.jsonl")
    arguments = ("apply", path, "--text-column", "review", "--ops", "punctuation_insertion:1")
    assert f"wrote {tmp_path / 'new'}.{suffix}: 2 texts" in run(*arguments, "-o", tmp_path / f"new.{suffix}")
    with open(tmp_path / f"new.{suffix}", newline="") as file:
        readers = {"csv": csv.DictReader, "tsv": lambda file: csv.DictReader(file, delimiter="\t")}
        rows = list(readers.get(suffix, lambda file: map(json.loads, file))(file))
    assert [str(row["id"]) for row in rows] == ["0", "1"]
    for row, text in zip(rows, TEXTS, strict=True):
        assert re.findall(r"[\w']+", row["review"]) == re.findall(r"[\w']+", text)
        assert row["review"] != text
    assert "texts are written as .csv, .tsv, .jsonl or .txt, got '.xlsx'" in run(*arguments, "-o", tmp_path / "a.xlsx", code=2)


def test_the_folder_of_a_dataset_is_shown(tmp_path, run):
    datasets = pytest.importorskip("datasets")
    split = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1]})
    datasets.DatasetDict({"train": split, "test": split}).save_to_disk(tmp_path / "hf")
    assert "[-" in run("apply", tmp_path / "hf", "--ops", "word_deletion:1")
    assert "wrote" in run("apply", tmp_path / "hf" / "train", "--ops", "word_swap:1", "-o", tmp_path / "new.csv")


def test_the_gallery_is_a_page_whose_texts_are_escaped(tmp_path, run):
    (tmp_path / "a.txt").write_text("A <script>film</script> & more. I liked the music a lot!")
    assert f"wrote {tmp_path / 'g.html'}" in run("gallery", tmp_path / "a.txt", "-o", tmp_path / "g.html")
    page = (tmp_path / "g.html").read_text()
    assert "<script>film" not in page
    assert "&lt;script&gt;" in page
    assert all(f">{name}</h3>" in page for name in TEXT_TRANSFORMS)
    assert "back_translation needs a cache" in page
    assert "<del>" in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page)
    assert "the gallery of texts must be a .html file, got '.png'" in run(
        "gallery", tmp_path / "a.txt", "-o", tmp_path / "g.png", code=2
    )


def test_the_commands_show_texts(tmp_path, run):
    write_reviews(path := tmp_path / "reviews.jsonl")
    column = ("--text-column", "review")
    run("apply", path, *column, "--ops", "word_swap:1", "-o", tmp_path / "changed.txt")
    lines = (tmp_path / "changed.txt").read_text().splitlines()
    assert sorted(re.findall(r"[\w']+", lines[0])) == sorted(re.findall(r"[\w']+", TEXTS[0]))
    assert len(lines) == 2
    shown = run("gallery", path, *column)
    assert all(name in shown for name in TEXT_TRANSFORMS)
    assert "needs a level" in run("apply", path, *column, "--ops", "word_swap", code=2)
    missing = run("apply", path, "--ops", "word_swap:1", code=2)
    assert "no column 'text' (it has id, review); name another with --text-column" in missing
    assert "-o is missing: pass the PNG file" in run("gallery", code=2)
    assert "-o is missing: pass the output image" in run("apply", "cat.png", "--ops", "invert", code=2)
