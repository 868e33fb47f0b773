"""Data sets from the command line."""


def test_fetch_keeps_existing_files(tmp_path, run, monkeypatch):
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "readme").touch()
    assert "train-images-idx3-ubyte: no such file" in run("data", "fetch", "mnist", code=2)
    assert "unknown data set to fetch 'mnst', did you mean 'mnist'" in run("data", "fetch", "mnst", code=2)


def test_data_lists_available_and_missing_sets(tmp_path, run, monkeypatch):
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path))
    output = run("data", "list")
    assert "5,000 train and 1,000 test images, 10 classes" in output
    assert f"not available: {tmp_path / 'mnist' / 'train-images-idx3-ubyte'}: no such file" in output
