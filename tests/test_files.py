"""Files are complete or absent, also after a power failure."""

import errno
import os
import stat
import subprocess

import numpy as np
import pytest

import outspan
from outspan import files
from outspan.files import expand_home, remove_partials, write_whole


def test_the_file_is_synced_before_its_rename_and_the_folder_after(tmp_path, monkeypatch):
    calls, fsync, replace = [], os.fsync, os.replace

    def note_sync(handle):
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def note_rename(source, target):
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", note_sync)
    monkeypatch.setattr(files.os, "replace", note_rename)
    write_whole(tmp_path / "a.txt", lambda partial: partial.write_text("whole"))
    assert calls == ["file", "rename", "folder"]
    assert (tmp_path / "a.txt").read_text() == "whole"


def test_a_folder_that_cannot_be_synced_does_not_fail_the_write(tmp_path, monkeypatch):
    """Some network file systems cannot sync a folder. Other errors of the disk are raised."""
    fsync, number = os.fsync, errno.EINVAL

    def refuse(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(handle)

    monkeypatch.setattr(files.os, "fsync", refuse)
    write_whole(tmp_path / "a.txt", lambda partial: partial.write_text("whole"))
    assert (tmp_path / "a.txt").read_text() == "whole"
    number = errno.EIO
    with pytest.raises(ValueError, match=r"a\.txt: cannot be written \(Input/output error\)"):
        write_whole(tmp_path / "a.txt", lambda partial: partial.write_text("more"))


def test_partial_files_of_killed_writes_are_removed(tmp_path):
    def kill(partial):
        partial.write_text("a part")
        os.rename(partial, tmp_path / ".a.txt.123.partial")  # the partial file of another process
        raise KeyboardInterrupt

    (tmp_path / "b.txt").write_text("b")
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a.txt", kill)
    assert len(list(tmp_path.iterdir())) == 2
    remove_partials(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]


def test_the_commit_comes_from_the_clone_or_the_variable(tmp_path, monkeypatch):
    monkeypatch.delenv("COMMIT", raising=False)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x", "-C", str(tmp_path))
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    monkeypatch.setattr(files, "HOME", tmp_path)
    log = subprocess.run([*git, "log", "--format=%H"], check=True, capture_output=True, text=True)
    assert files.commit() == log.stdout.strip() != ""
    (tmp_path / "inside").mkdir()
    monkeypatch.setattr(files, "HOME", tmp_path / "inside")  # the package is installed inside the clone of another project
    assert files.commit() == ""
    monkeypatch.setenv("COMMIT", "abc")
    assert files.commit() == "abc"


def test_a_tilde_expands_to_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    images, labels = np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2
    np.savez(tmp_path / "few.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    (tmp_path / "recipe.toml").write_text('model = "mlp"\nepochs = 1\n')
    keys = {"data": "~/few.npz", "batch": 10}
    outspan.train("~/recipe.toml", policy="none", out="~/run", **keys)
    assert outspan.load("~/run").recipe.data == str(tmp_path / "few.npz")
    assert outspan.evaluate("~/run", "~/few.npz").tested.data.name == str(tmp_path / "few.npz")
    assert len(outspan.load_data("~/few.npz").train) == 20
    outspan.compare("~/recipe.toml", policies="none,random", seeds=1, out="~/compared", **keys)
    outspan.measure("~/recipe.toml", transforms="rotate", seeds=2, out="~/measured", **keys)
    assert (tmp_path / "compared" / "comparison.json").exists()
    assert (tmp_path / "measured" / "scores.json").exists()
    assert not (tmp_path / "~").exists()
    assert str(expand_home("~nobody-of-this-name/x")) == "~nobody-of-this-name/x"
