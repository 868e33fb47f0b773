"""Malicious image files: each causes a ValueError with the name of the file, and nothing is written."""

import io
import os
import socket
import struct
import subprocess
import sys
import zlib
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from outspan.data.image import read_image
from outspan.data.image_files import Files
from outspan.files import write_whole


def png(width: int, height: int, data: bytes) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(60_000, 60_000), (2**31 - 1, 1), (100_000, 1000), (2**31 - 1, 2**31 - 1)])
def test_a_decompression_bomb_is_refused_before_it_is_unpacked(width, height, tmp_path):
    path = tmp_path / "bomb.png"
    path.write_bytes(png(width, height, b"\0" * 1000))
    with pytest.raises(ValueError, match=r"bomb\.png: cannot be read as an image"):
        read_image(path)


def test_unsupported_image_formats_are_refused_by_name(tmp_path):
    """An unknown DDS texture, PostScript, which Pillow would pass to another program, and pixels that are real numbers."""
    dds = struct.pack("<4s7I44x2I4s5I16x", b"DDS ", 124, 0x1007, 4, 4, 0, 0, 0, 32, 4, b"ZZZZ", 0, 0, 0, 0, 0)
    (tmp_path / "dds.png").write_bytes(dds + bytes(64))
    (tmp_path / "eps.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    Image.fromarray(np.ones((10, 10), dtype=np.float32)).save(tmp_path / "real.tiff")
    Image.fromarray(np.ones((10, 10), dtype=np.int32)).save(tmp_path / "whole.tiff")
    deep = "pixels of 32 bits"
    for name, message in (("dds.png", "cannot be"), ("eps.png", "cannot be"), ("real.tiff", deep), ("whole.tiff", deep)):
        with pytest.raises(ValueError, match=rf"{name}: .*{message}"):
            read_image(tmp_path / name)


def made(form: str) -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").resize((16, 16)).save(file, form)
    return file.getvalue()


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"])
def test_a_damaged_file_is_read_or_raises_a_value_error(form, tmp_path):
    path = tmp_path / "broken"
    whole = made(form)

    @given(
        cut=st.integers(0, len(whole)),
        flips=st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(1, 255)), max_size=4),
    )
    def check(cut, flips):
        data = bytearray(whole)
        for position, change in flips:
            data[position] ^= change
        path.write_bytes(bytes(data[:cut]))
        with suppress(ValueError):
            assert read_image(path).ndim == 4

    check()


def test_a_file_is_written_completely_or_not_at_all(tmp_path):
    path = tmp_path / "out.png"
    path.write_bytes(b"before")

    def write(partial):
        partial.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match=r"out\.png: cannot be written \(No space left on device\)"):
        write_whole(path, write)
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["out.png"]


def test_a_tiff_with_offsets_that_are_not_numbers_is_refused(tmp_path):
    """Pillow raises a TypeError for offsets that are text."""
    data = bytearray(made("TIFF"))
    start = struct.unpack_from("<I", data, 4)[0]
    entries = [start + 2 + 12 * i for i in range(struct.unpack_from("<H", data, start)[0])]
    offsets = next(entry for entry in entries if struct.unpack_from("<H", data, entry)[0] == 273)
    struct.pack_into("<H", data, offsets + 2, 2)
    (tmp_path / "odd.tiff").write_bytes(data)
    with pytest.raises(ValueError, match=r"odd\.tiff: cannot be read as an image"):
        read_image(tmp_path / "odd.tiff")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here")
def test_files_that_are_not_regular_are_refused_without_waiting(tmp_path, monkeypatch):
    """Opening a FIFO waits for a writer, and /dev/zero has no end. The test runs in a child process, which has a time limit."""
    folder = tmp_path / "data" / "train" / "cat"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "fifo.png")
    os.symlink("/dev/zero", folder / "device.png")
    os.symlink(folder / "fifo.png", folder / "link.png")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(folder)  # the path of a socket must be short
        server.bind("socket.png")
    Image.new("RGB", (4, 4)).save(tmp_path / "real.png")
    os.symlink(tmp_path / "real.png", folder / "good.png")
    code = """
import sys
from pathlib import Path
from outspan.data.decode import read_cropped, read_fitted
from outspan.data.readers import read_npz
from outspan.policies.files import fast_autoaugment
from outspan.data.tables import read_documents, read_text
folder = Path(sys.argv[1])
readers = [lambda p: read_fitted(p, 2, 2), lambda p: read_cropped(p, 2, [0.5] * 4), read_npz, read_text, read_documents]
for read in (*readers, lambda p: fast_autoaugment(str(p))):
    for name in ("fifo", "device", "link", "socket"):
        try:
            read(folder / f"{name}.png")
        except ValueError as error:
            assert f"{name}.png: not a regular file" in str(error), error
        else:
            raise AssertionError(name)
assert read_fitted(folder / "good.png", 2, 2).shape == (3, 2, 2)
"""
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=300)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here")
def test_a_fifo_in_an_image_folder_is_skipped(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "real.png")
    os.mkfifo(tmp_path / "fifo.png")
    paths, labels = [tmp_path / "fifo.png", tmp_path / "real.png"], torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"fifo\.png: not a regular file"):
        list(Files(paths, labels, 4).batches([torch.arange(2)], torch.device("cpu")))
    with pytest.warns(UserWarning, match=r"fifo\.png"):
        ((images, _),) = Files(paths, labels, 4, skip_bad=1).batches([torch.arange(2)], torch.device("cpu"))
    assert len(images) == 2
