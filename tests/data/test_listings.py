"""Stored listings of folders: they equal new listings after any change, and a file that cannot be trusted is ignored."""

import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outspan import files
from outspan.data import folders, listings

SECOND = 10**9


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Store listings of small folders, too. Return where they are stored."""
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(folders, "_WORTH_STORING", 1)
    return tmp_path / "cache" / "listings"


@pytest.fixture
def later(monkeypatch):
    """Let the clock be a minute ahead, so that all folders have settled."""
    clock = listings.time.time_ns
    monkeypatch.setattr(listings.time, "time_ns", lambda: clock() + 60 * SECOND)


def make(root: Path) -> Path:
    for name in ("cats/1.png", "cats/b/2.JPG", "cats/b.c/3.png", "cats/b-c.png", "dogs/4.png", "dogs/notes.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def listed(root: Path) -> list[tuple[str, int]]:
    paths, labels = folders.list_whole(root, ("cats", "dogs"))
    return [(path.relative_to(root).as_posix(), label) for path, label in zip(paths, labels.tolist(), strict=True)]


def expected(root: Path) -> list[tuple[str, int]]:
    paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in (".png", ".jpg"))
    return [(path.relative_to(root).as_posix(), ["cats", "dogs"].index(path.relative_to(root).parts[0])) for path in paths]


def test_a_stored_listing_is_used(tmp_path, stored, later, monkeypatch):
    root = make(tmp_path / "data")
    assert listed(root) == expected(root)
    assert len(list(stored.iterdir())) == 1

    def refuse(folder):
        raise AssertionError(f"{folder} is listed again")

    monkeypatch.setattr(folders, "_read_class", refuse)
    assert listed(root) == expected(root)
    (root / "dogs" / "5.png").touch()
    with pytest.raises(AssertionError, match="dogs is listed again"):  # cats, which has not changed, comes first
        listed(root)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "rename", "move folder"]),
        st.sampled_from(["cats", "cats/b", "cats/b.c", "cats/b/d", "dogs"]),
        st.integers(0, 3),
    ),
    max_size=6,
)


def test_every_change_is_noticed(tmp_path, stored, monkeypatch):
    """The modification times of changed folders are set here, because two changes may follow within one step of the clock."""
    for module in (listings, folders):
        monkeypatch.setattr(module, "take_stamp", lambda path: [os.stat(path).st_mtime_ns, 0, 0])
    monkeypatch.setattr(listings, "_SETTLED", -60 * SECOND)
    monkeypatch.setattr(files.os, "fsync", lambda handle: None)  # slow
    times, trees = iter(range(10**18, 2 * 10**18, SECOND)), iter(range(1000))

    @settings(max_examples=30)  # each writes many files
    @given(steps=st.lists(CHANGES, min_size=1, max_size=4))
    def check(steps):
        root = make(tmp_path / str(next(trees)))
        for changes in steps:
            for change in changes:
                apply_change(root, *change)
                for name in {change[1], str(Path(change[1]).parent)}:
                    if (root / name).exists():
                        os.utime(root / name, ns=(0, next(times)))
            assert listed(root) == expected(root)

    check()


def apply_change(root: Path, change: str, folder: str, number: int) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    path, other = root / folder / f"{number}.png", root / folder / f"{number + 1}.png"
    if change == "add":
        path.touch()
    elif change == "move folder":
        if folder.count("/"):
            shutil.move(root / folder, root / "cats" / f"moved{sum(1 for _ in root.rglob('*'))}")
    elif path.exists() and len(list((root / folder.split("/")[0]).rglob("*.png"))) > 2:  # a class without images is refused
        path.rename(other) if change == "rename" else path.unlink()


def test_a_folder_that_was_just_modified_is_not_stored(tmp_path, stored, monkeypatch):
    root, clock = make(tmp_path / "data"), listings.time.time_ns
    for seconds, count in ((0, 0), (8, 0), (12, 1)):
        monkeypatch.setattr(listings.time, "time_ns", lambda seconds=seconds: clock() + seconds * SECOND)
        assert listed(root) == expected(root)
        assert len(list(stored.glob("*"))) == count
    shutil.rmtree(stored)
    for modified in (clock() + 3600 * SECOND, 0):  # a wrong clock, and a mount without times
        for folder in (root / "cats", root / "dogs"):
            os.utime(folder, ns=(0, modified))
        assert listed(root) == expected(root)
        assert not stored.exists()


def test_a_damaged_listing_is_ignored(tmp_path, stored, later, monkeypatch):
    root = make(tmp_path / "data")
    listed(root)
    [file] = stored.iterdir()
    complete = file.read_bytes()
    monkeypatch.setattr(listings, "_store", lambda folder, entries: None)  # the damaged file stays

    @given(position=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255), cut=st.booleans())
    def check(position, value, cut):
        data = bytearray(complete)
        at = int(position * len(data))
        data[at:] = b"" if cut else bytes([value]) + data[at + 1 :]
        file.write_bytes(data)
        assert listed(root) == expected(root)

    check()


def test_the_listing_of_another_folder_is_ignored(tmp_path, stored, monkeypatch):
    """Even if all times are equal."""
    for module in (listings, folders):
        monkeypatch.setattr(module, "take_stamp", lambda path: [SECOND, SECOND, 0])
    root, other = make(tmp_path / "data"), make(tmp_path / "other")
    (other / "cats" / "1.png").unlink()
    listed(root)
    listed(other)
    one, two = stored.iterdir()
    contents = one.read_bytes(), two.read_bytes()
    one.write_bytes(contents[1])
    two.write_bytes(contents[0])
    assert listed(root) == expected(root)
    assert listed(other) == expected(other)


def test_processes_that_store_a_listing_at_once_do_no_harm(tmp_path, stored, later):
    """Threads share even the name of the temporary file."""
    root, results = make(tmp_path / "data"), []
    threads = [threading.Thread(target=lambda: results.append(listed(root))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected(root)] * 8
    assert listed(root) == expected(root)
    assert len(list(stored.iterdir())) == 1


def test_listings_are_stored_in_the_home_folder_if_the_data_folder_is_read_only(tmp_path, stored, later, monkeypatch):
    root = make(tmp_path / "data")
    (tmp_path / "cache").write_text("not a folder: nothing can be created below it")
    assert listed(root) == expected(root)
    assert len(list((tmp_path / "home" / ".cache" / "outspan" / "listings").iterdir())) == 1
    (tmp_path / "home" / ".cache" / "outspan" / "listings").rename(tmp_path / "gone")
    (tmp_path / "home" / ".cache" / "outspan" / "listings").write_text("nothing can be created here either")
    assert listed(root) == expected(root)

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert listed(root) == expected(root)
    monkeypatch.delenv("OUTSPAN_DATA")
    assert listed(root) == expected(root)


def test_small_folders_are_not_stored(tmp_path, stored, later, monkeypatch):
    monkeypatch.setattr(folders, "_WORTH_STORING", 6)
    root = make(tmp_path / "data")
    listed(root)
    assert not stored.exists()
    (root / "cats" / "6.png").touch()
    listed(root)
    assert stored.exists()


def test_links_are_listed_as_before(tmp_path, stored, later):
    """A link to an image is an image, also if it leads nowhere. A link to a folder is not followed, except for a class."""
    root = make(tmp_path / "data")
    names = expected(root)
    (root / "cats" / "loop.png").symlink_to(root / "cats" / "loop.png")
    (root / "cats" / "folder.png").symlink_to(root / "dogs")
    shutil.move(root / "dogs", tmp_path / "elsewhere")
    (root / "dogs").symlink_to(tmp_path / "elsewhere")
    for _ in range(2):
        assert listed(root) == sorted([*names, ("cats/loop.png", 0)], key=lambda row: Path(row[0]))
