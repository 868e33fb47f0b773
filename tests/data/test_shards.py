"""Tar shards give the same images as the same files in a folder, and damaged shards are named."""

import os
import re
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from made import make_shards, png, samples, write_shard
from outspan.data import listings, sets, shards
from outspan.data.dataset import count_copies
from outspan.data.decode import read_fitted
from outspan.data.members import Member
from outspan.data.splits import fingerprint

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Store indexes in a temporary folder, also small ones, as if all shards were a minute old."""
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(shards, "_WORTH_STORING", 1)
    monkeypatch.setattr(listings, "_SETTLED", -60 * 10**9)
    return tmp_path / "cache" / "listings"


def number(member: Member) -> int:
    return int(member.name[:6])


def test_every_image_and_label_is_read(tmp_path):
    data = sets.load(make_shards(tmp_path), size=8)
    assert data.classes == ("0", "1", "2")
    seen = []
    for split in (data.train, data.test):
        assert [number(member) for member in split.paths] == sorted(map(number, split.paths))
        ((images, labels),) = split.batches([torch.arange(len(split))], CPU)
        for image, label, member in zip(images, labels, split.paths, strict=True):
            (tmp_path / "one.png").write_bytes(png(number(member)))
            assert torch.equal(image, read_fitted(tmp_path / "one.png", 8, 8))
            assert label == number(member) % 3
            seen.append(number(member))
    assert sorted(seen) == list(range(60))
    assert 3 <= len(data.test) <= 25


@pytest.mark.parametrize("crops", [None, (1, 2)])
def test_workers_read_the_same_batches_from_any_step(crops, tmp_path):
    split = sets.load(make_shards(tmp_path, 450), size=8).train
    rows = torch.randperm(len(split), generator=torch.Generator().manual_seed(1)).split(32)
    assert len(split) >= 300  # enough for workers
    whole = list(split.batches(rows, CPU, crops))
    for batch, later in zip(whole[3:], split.batches(rows[3:], CPU, crops), strict=True):
        assert all(map(torch.equal, batch, later))


def test_adding_shards_moves_no_sample_to_the_other_side(tmp_path):
    make_shards(tmp_path, 60, 3)
    one, two = (sets.load(str(tmp_path / f"shard-{{000..{last}}}.tar"), size=8) for last in ("001", "002"))
    assert {*one.train.paths} < {*two.train.paths}
    assert {*one.test.paths} < {*two.test.paths}
    assert one.train.digest != two.train.digest
    assert fingerprint(one.train) == fingerprint(sets.load(str(tmp_path / "shard-{000..001}.tar"), size=8).train)


def test_an_index_is_built_once_and_again_for_a_changed_shard(tmp_path, cache, monkeypatch):
    pattern, read, indexed = make_shards(tmp_path), shards._read_shard, []
    monkeypatch.setattr(shards, "_read_shard", lambda path: indexed.append(path.name) or read(path))
    first = sets.load(pattern, size=8)
    assert indexed == ["shard-000.tar", "shard-001.tar", "shard-002.tar"]
    assert [*sets.load(pattern, size=8).train.paths] == [*first.train.paths]
    assert len(indexed) == 3
    assert len(list(cache.iterdir())) == 1
    before = (tmp_path / "shard-001.tar").stat()
    write_shard(tmp_path / "shard-001.tar", [("x.jpg", png(1)), ("x.cls", b"2")])
    os.utime(tmp_path / "shard-001.tar", ns=(0, before.st_mtime_ns))  # the size is another one
    again = sets.load(pattern, size=8)
    assert indexed[3:] == ["shard-001.tar"]
    assert len(again.train) + len(again.test) == 41
    assert [*sets.load(pattern, size=8).train.paths] == [*again.train.paths]


def test_the_layout_is_that_of_webdataset(tmp_path):
    """The key ends at the first dot of the file name. Other files of a sample, folders and hidden files are ignored."""
    files = [
        ("./a/b.c/001.jpg", png(1)),
        ("./a/b.c/001.seg.png", png(2)),
        ("./a/b.c/001.json", b"{}"),
        ("002.CLS", b" 1 "),
        ("._001.jpg", b"of another system"),
        ("README", b"text"),
        ("./a/b.c/001.cls", b"0"),
        ("002.PNG", png(3)),
        ("long/" * 60 + "003.png", png(4)),
        ("long/" * 60 + "003.cls", b"1"),
    ]
    for tar_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = write_shard(tmp_path / f"{tar_format}.tar", files, format=tar_format)
        members, labels = shards.list_shards(path)
        assert [member.name for member in members] == ["./a/b.c/001.jpg", "002.PNG", "long/" * 60 + "003.png"]
        assert [member.read_bytes() for member in members] == [png(1), png(3), png(4)]
        assert labels.tolist() == [0, 1, 1]


def test_copies_are_found_by_content(tmp_path):
    split = sets.load(make_shards(tmp_path / "one"), size=8).train
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "shard-000.tar").unlink()
    content = bytearray((tmp_path / "two" / "shard-001.tar").read_bytes())
    first = next(member for member in split.paths if member.parent.name == "shard-001.tar")
    content[first.offset] ^= 1
    (tmp_path / "two" / "shard-001.tar").write_bytes(content)
    other, _ = shards.list_shards(tmp_path / "two" / "shard-{001..002}.tar")
    copies = [member for member in split.paths if member.parent.name != "shard-000.tar" and member != first]
    assert count_copies(split, type(split)(other, torch.zeros(len(other)).long(), 8)) == len(copies)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([("a.jpg", b"")], r"the sample 'a' has no class, a\.cls"),
        ([("a.cls", b"0")], r"the sample 'a' has no image, a\.jpg or another of"),
        ([("a.jpg", b""), ("a.png", b"")], "the sample 'a' has more than one image"),
        ([("a.cls", b"0"), ("a.cls", b"1")], "the sample 'a' has more than one class"),
        ([("a.cls", b"cat")], r"'a\.cls' must hold the number of a class, got 'cat'"),
        ([("a.cls", b"-1")], "must hold the number of a class, got '-1'"),
        ([("a.cls", b"1" * 50)], "must hold the number of a class, got '1111"),
        ([("a.jpg", b""), ("a.cls", b"999999999")], "labels must lie below 100,000, got 999999999"),
        ([("notes.txt", b"")], "has no images; a sample is an image and its class, such as 000.jpg and 000.cls"),
        ([], "has no images"),
    ],
)
def test_shards_without_complete_samples_are_refused(files, message, tmp_path):
    path = write_shard(tmp_path / "bad.tar", files)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: .*{message}") as raised:
        sets.load(str(path))
    assert "\n" not in str(raised.value)


def test_a_truncated_shard_is_refused_by_name(tmp_path):
    path = write_shard(tmp_path / "shard-000.tar", samples(range(20)))
    content = path.read_bytes()
    end = len(content.rstrip(b"\0"))  # zeros follow, of which a block marks the end

    @given(size=st.integers(0, end) | st.integers(0, end // 512).map(lambda block: 512 * block))
    @example(size=end // 512 * 512)
    def check(size):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"shard-000\.tar: cannot be read as a tar shard"):
            sets.load(str(path))

    check()


def test_a_truncated_shard_is_tolerated_up_to_a_number(tmp_path, cache):
    """Its complete samples are used. It counts as an unreadable file, and is read and named again at every start."""
    pattern = make_shards(tmp_path)
    path = tmp_path / "shard-001.tar"
    with tarfile.open(path) as archive:
        cut = archive.getmember("000027.png").offset_data + 1
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"shard-001\.tar: .*: repair the shard; --skip-bad 1 uses the 7 complete samples"):
        sets.load(pattern, size=8)
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"shard-001\.tar: cannot be read as a tar shard .*: only the 7 complete samples"):
            data = sets.load(pattern, size=8, skip_bad=1)
        splits = data.train, data.test
        assert sorted(number(member) for split in splits for member in split.paths) == [*range(27), *range(40, 60)]
        assert [split.skip_bad for split in splits] == [0, 0]
    (tmp_path / "shard-002.tar").write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="only the 7 complete samples"),
        pytest.raises(ValueError, match=r"shard-002\.tar: .*--skip-bad 2 uses the 0 complete samples"),
    ):
        sets.load(pattern, size=8, skip_bad=1)


def test_a_damaged_shard_gives_an_error_or_the_same_number_of_images(tmp_path, monkeypatch):
    monkeypatch.setattr(listings, "_load", lambda folder: {})
    path = write_shard(tmp_path / "shard-000.tar", samples(range(6)))
    complete = path.read_bytes()

    @given(position=st.integers(0, len(complete) - 1), value=st.integers(0, 255))
    def check(position, value):
        path.write_bytes(complete[:position] + bytes([value]) + complete[position + 1 :])
        message, count = "", 6
        try:
            count = len(shards.list_shards(path)[0])
        except ValueError as error:
            message = str(error)
        assert count == 6
        assert not message or message.startswith(f"{path}: ")
        assert "\n" not in message

    check()


def test_other_files_are_refused_by_name(tmp_path):
    pattern = make_shards(tmp_path)
    (tmp_path / "shard-001.tar").unlink()
    with pytest.raises(ValueError, match=r"shard-001\.tar: no such file"):
        sets.load(pattern)
    (tmp_path / "shard-001.tar").mkdir()
    with pytest.raises(ValueError, match=r"shard-001\.tar: cannot be read as a tar shard \(.*Is a directory"):
        sets.load(pattern)
    (tmp_path / "shard-001.tar").rmdir()
    os.mkfifo(tmp_path / "shard-001.tar")
    with pytest.raises(ValueError, match=r"shard-001\.tar: not a regular file"):
        sets.load(pattern)
    with tarfile.open(tmp_path / "zipped.tar", "w:gz") as archive:
        archive.add(tmp_path / "shard-000.tar", "a.jpg")
    with pytest.raises(ValueError, match=r"zipped\.tar: cannot be read as a tar shard"):
        sets.load(str(tmp_path / "zipped.tar"))


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("{0..2}.tar", ["0.tar", "1.tar", "2.tar"]),
        ("{8..10}.tar", ["8.tar", "9.tar", "10.tar"]),
        ("{008..10}.tar", ["008.tar", "009.tar", "010.tar"]),
        ("{0..1}/{0..1}.tar", ["0/0.tar", "0/1.tar", "1/0.tar", "1/1.tar"]),
        ("{a,b}.tar", ["{a,b}.tar"]),
    ],
)
def test_patterns_are_expanded_as_in_a_shell(pattern, names):
    assert [path.as_posix() for path in shards.expand(Path(pattern))] == names


@pytest.mark.parametrize(("pattern", "count"), [("{2..1}.tar", "0"), ("{0..99999999999999999}.tar", "100,000,000,000,000,000")])
def test_patterns_of_no_or_too_many_shards_are_refused(pattern, count):
    with pytest.raises(ValueError, match=rf"must name 1 to 1,000,000 shards, got {count}; write a range as"):
        sets.load(pattern)


def test_bad_images_are_tolerated_up_to_a_number(tmp_path):
    files = samples(range(60))
    files[8] = (files[8][0], b"no image")  # sample 4
    path = write_shard(tmp_path / "shard.tar", files)

    def read(skip_bad: int) -> None:
        data = sets.load(str(path), size=8, skip_bad=skip_bad)
        for split in (data.train, data.test):
            list(split.batches([torch.arange(len(split))], CPU))

    with pytest.raises(ValueError, match=r"shard\.tar/000004\.png: cannot be read as an image \(damaged, or none of BMP"):
        read(0)
    with pytest.warns(UserWarning, match=r"shard\.tar/000004\.png: cannot be read as an image; another one of its class"):
        read(1)
