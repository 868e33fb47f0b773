"""Tables and folders of texts: they are read, or refused with the number of the wrong row."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outspan.data.sets import load
from outspan.data.tables import is_text, read_documents


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_the_division_of_a_csv_is_reproducible(tmp_path):
    rows = "".join(f'"good, ""really"" {i}",pos\nbad {i},neg\n' for i in range(50))
    path = write(tmp_path / "mine.csv", "review,mood\n" + rows)
    train, test, classes = read_documents(path, text="review", label="mood")
    again = read_documents(path, text="review", label="mood")
    assert classes == ("neg", "pos")
    assert 10 <= len(test) <= 30
    assert sorted([*train.texts, *test.texts]) == sorted([t for i in range(50) for t in (f'good, "really" {i}', f"bad {i}")])
    assert list(again[1].texts) == list(test.texts)
    assert all(text.startswith("good") == bool(label) for text, label in zip(train.texts, train.labels, strict=True))


def test_new_rows_do_not_change_the_split_of_old_rows(tmp_path):
    rows = [f"text {i},{i % 2}\n" for i in range(300)]
    sides = []
    for some in (rows[:100], rows[::-1], rows[:100] + rows[40:60]):
        train, test, _ = read_documents(write(tmp_path / "a.csv", "text,label\n" + "".join(some)))
        assert not set(train.texts) & set(test.texts)
        sides.append((set(train.texts), set(test.texts)))
    assert sides[0][0] <= sides[1][0]
    assert sides[0][1] <= sides[1][1]
    assert sides[2] == sides[0]
    assert len(sides[1][1]) == pytest.approx(60, abs=21)  # three standard deviations


@given(st.integers(5, 40), st.integers(0, 10**6))
def test_a_class_keeps_a_row_in_train(tmp_path_factory, count, salt):
    path = tmp_path_factory.getbasetemp() / "rare.csv"
    write(path, "text,label\n" + "".join(f"text {salt} {i},{i % 2}\n" for i in range(2 * count)) + f"rare {salt},2\n")
    with pytest.warns(UserWarning, match="1 label with only one row: 2"):
        train, test, classes = read_documents(path)
    assert classes == ("0", "1", "2")
    assert len(test) >= 1
    assert 2 in train.labels


@pytest.mark.parametrize("form", ["official", "jsonl.gz", "tsv"])
def test_all_formats_of_imdb_give_the_same_data(form, tmp_path, monkeypatch):
    reviews = {
        ("train", "pos"): "Fine.<br /><br />Yes",
        ("train", "neg"): "Dull",
        ("test", "pos"): "Good",
        ("test", "neg"): "Bad",
    }
    home = tmp_path / ("aclImdb" if form == "official" else "imdb")
    for part in ("train", "test"):
        rows = [(text, mood) for (split, mood), text in reviews.items() if split == part]
        if form == "official":
            for text, mood in rows:
                (home / part / mood).mkdir(parents=True)
                write(home / part / mood / "0_9.txt", text)
            (home / part / "unsup").mkdir()
            continue
        home.mkdir(exist_ok=True)
        if form == "tsv":
            write(home / f"{part}.tsv", "text\tlabel\n" + "".join(f"{text}\t{mood}\n" for text, mood in rows))
        else:
            lines = "".join(json.dumps({"text": text, "label": mood}) + "\n" for text, mood in rows)
            (home / f"{part}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    data = load("imdb")
    assert data.classes == ("neg", "pos")
    assert dict(zip(data.train.texts, data.train.labels.tolist(), strict=True)) == {"Fine.\nYes": 1, "Dull": 0}
    assert sorted(data.test.texts) == ["Bad", "Good"]


def test_classes_that_are_numbers_are_sorted_by_value(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(f"t{i},{i % 11}\n" for i in range(110)))
    assert read_documents(path)[2] == tuple(map(str, range(11)))
    spellings = ["0.5", "-1", "10", "2", "nan", "b", "-10", "a"]
    write(path, "text,label\n" + "".join(f"t{i},{spellings[i % 8]}\n" for i in range(160)))
    assert read_documents(path)[2] == ("-10", "-1", "0.5", "2", "10", "a", "b", "nan")
    labels = (1, 1.0, 0, 0.5)
    rows = [{"text": f"t{i}", "label": labels[i % 4]} for i in range(40)]
    assert read_documents(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))))[2] == ("0", "0.5", "1")
    write(path, "text,label\n" + "".join(f"t{i},{labels[i % 4]}\n" for i in range(40)))
    assert read_documents(path)[2] == ("0", "0.5", "1")
    write(path, "text,label\n" + "".join(f"t{i},{('01', '002', '10')[i % 3]}\n" for i in range(30)))
    assert read_documents(path)[2] == ("01", "002", "10")  # the spelling of numbers is kept
    rows = [{"text": f"t{i}", "label": (1, 1.0, "other")[i % 3]} for i in range(30)]
    assert read_documents(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))))[2] == ("1", "other")
    write(path, "text,label\n" + "".join(f"t{i},{('-0.0', '0', '1')[i % 3]}\n" for i in range(30)))
    assert read_documents(path)[2] == ("0", "1")
    (tmp_path / "both").mkdir()
    for split, names in (("train", "01"), ("test", ("0.0", "1.0"))):  # a column with missing values is written as floats
        write(tmp_path / "both" / f"{split}.csv", "text,label\n" + "".join(f"t{i},{names[i % 2]}\n" for i in range(8)))
    train, test, classes = read_documents(tmp_path / "both")
    assert (classes, train.labels.tolist()) == (("0", "1"), test.labels.tolist())


def test_booleans_and_names_in_brackets_are_classes(tmp_path):
    rows = [{"text": f"t{i}", "label": i % 2 == 0} for i in range(20)]
    assert read_documents(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))))[2] == ("False", "True")
    path = write(tmp_path / "a.csv", "text,label\n" + "".join(f"t{i},{('[spam]', '{ham}')[i % 2]}\n" for i in range(20)))
    assert read_documents(path)[2] == ("[spam]", "{ham}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "text,label\na,1\nb,nan\n" + "x,0\ny,1\n" * 9,
            r"line 3: the label must be a number, as the others are, got 'nan'",
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": NaN}\n{"text": "b", "label": 1}\n' * 9,
            "line 1: the column 'label' must be text or a finite number",
        ),
        (
            "a.csv",
            "text,label\ngood,1\n ,0\n" + "x,0\ny,1\n" * 9,
            r"a\.csv: 1 of 20 rows have nothing in the column 'text', lines 3; .* --skip-bad 1",
        ),
        ("a.csv", "review,label\ngood,1\n", r"line 2: no column 'text' \(it has review, label\).*set text_column to another"),
        ("a.csv", "text,mood\ngood,1\n", r"no column 'label' .*set label_column to another"),
        ("a.csv", "text,label\n" + "".join(f"a{i},b{i}\n" for i in range(20)), r"20 different values in 20 rows, not classes"),
        ("a.csv", "text,label\n" + "a,1\n" * 20, "the labels are 1 different values"),
        ("a.csv", "text,label\n" + "a,1\nb,\n" * 20, r"20 of 40 rows .* lines 3, 5, .*, 21, …; .* --skip-bad 20"),
        ("a.csv", "text,label\ngood,pos\nbad,neg\n", "no row can be held out for testing, because every label is in one row"),
        ("a.csv", "text,label\na,b,1\n", "line 2: more fields than the header has; quote the text"),
        ("a.csv", 'text,label\na,1\n"a,1\n', r"a\.csv, line 3: not CSV"),
        ("a.csv", "text;label\na, b;1\n", r"a\.csv, line 1: its fields are separated by ';', expected ','"),
        ("a.csv", "text,label\n", r"a\.csv: there are no rows to train on"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "a"\n', r"a\.jsonl, line 2: not JSON"),
        ("a.csv", "text,label\ngood\n", r"1 of 1 rows have nothing in the column 'label', lines 2"),
        ("a.jsonl", '{"text": "a", "label": null}\n', r"1 of 1 rows have nothing in the column 'label', lines 1"),
        ("a.jsonl", '{"text": ["a"], "label": 1}\n', r"line 1: the column 'text' must be text, got list"),
        ("a.jsonl", '{"text": "a", "label": [1]}\n', r"line 1: the column 'label' must hold one label, .* got the list \[1\]"),
        ("a.jsonl", '{"text": "a", "label": {"b": 1}}\n', r"line 1: the column 'label' must hold one label, .* got the list"),
        ("a.csv", "text,label\na,spam\n" + "b,\"['a', 'b']\"\n" * 20, r"line 3: .* must hold one label, .* got the list"),
        ("a.csv", 'text,label\na,"[""a""]"\nb,"[]"\n' * 9, "line 2: .* must hold one label"),
        ("a.csv", 'text,label\na,"{""a"": 1}"\nb,c\n' * 9, "line 2: .* must hold one label"),
        (
            "a.jsonl",
            '{"text": "a", "label": true}\n{"text": "b", "label": 1}\n' * 9,
            "line 2: the labels must be true and false",
        ),
        ("a.jsonl", '{"text": "a", "label": "b"}\n{"text": "b", "label": NaN}\n' * 9, "line 2: .* a finite number, got nan"),
        ("a.jsonl", '{"text": "a\\ud800", "label": 1}\n', r"line 1: half a character"),
        ("a.jsonl", "[1]\n", "line 1: expected an object with a text and a label, got list"),
    ],
)
def test_invalid_tables_are_refused_by_name(name, content, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_documents(write(tmp_path / name, content))


def test_a_wrong_encoding_is_refused_with_its_line(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\ngood,1\ncafé,0\n", "latin-1")
    with pytest.raises(ValueError, match=r"a\.csv, line 3: not UTF-8 \(byte 0xe9\)"):
        read_documents(path)
    folder = tmp_path / "set"
    for split in ("train", "test"):
        for mood in ("neg", "pos"):
            (folder / split / mood).mkdir(parents=True)
            write(folder / split / mood / "1.txt", "café", "latin-1" if mood == "pos" else "utf-8")
    assert is_text(folder)
    with pytest.raises(ValueError, match=r"pos/1\.txt: not UTF-8"):
        read_documents(folder)


def test_a_test_label_that_is_not_in_train_is_refused(tmp_path):
    write(tmp_path / "train.csv", "text,label\n" + "a,x\nb,y\n" * 3)
    write(tmp_path / "test.csv", "text,label\na,x\nb,z\n")
    with pytest.raises(ValueError, match=r"test\.csv, line 3: label 'z' is not among the classes of train \(x, y\)"):
        read_documents(tmp_path)
    (tmp_path / "test.csv").unlink()
    with pytest.raises(ValueError, match=r"test\.csv: no such file"):
        read_documents(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(b"text,label\n" + data)
    try:
        read_documents(path)
    except ValueError as error:
        assert "any.csv" in str(error)  # noqa: PT017


def test_bad_rows_are_left_out_on_request(tmp_path):
    rows = "".join(f"good {i},pos\nbad {i},neg\n" for i in range(20))
    path = write(tmp_path / "a.csv", "text,label\n" + rows + " ,pos\nfine,\n,\n")
    with pytest.warns(
        UserWarning, match=r"2 of 43 rows .*'text', lines 42, 44; 2 of 43 rows .*'label', lines 43, 44; these rows"
    ):
        train, test, _ = read_documents(path, skip_bad=3)
    assert len(train) + len(test) == 40
    with pytest.raises(ValueError, match="--skip-bad 3"):
        read_documents(path, skip_bad=2)


def test_a_label_with_one_row_is_named(tmp_path):
    rows = "".join(f"good {i},pos\nbad {i},neg\n" for i in range(20))
    with pytest.warns(UserWarning, match="1 label with only one row: odd; such a row is trained on, not tested"):
        read_documents(write(tmp_path / "a.csv", "text,label\n" + rows + "strange,odd\n"))
