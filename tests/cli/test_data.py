"""Data sets from the command line."""


def test_fetch_leaves_alone_what_is_there(tmp_path, run, monkeypatch):
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "readme").touch()
    assert "train-images-idx3-ubyte: no such file" in run("data", "fetch", "mnist", code=2)
    assert "unknown data set to fetch 'mnst', did you mean 'mnist'" in run("data", "fetch", "mnst", code=2)


def test_data_lists_what_is_here(tmp_path, run, monkeypatch):
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    said = run("data", "list")
    assert "5,000 train and 1,000 test images, 10 classes" in said
    assert f"not available: {tmp_path / 'mnist' / 'train-images-idx3-ubyte'}: no such file" in said
