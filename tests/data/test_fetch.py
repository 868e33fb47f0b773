"""Downloads from a server that interrupts transfers, ignores ranges, and sends wrong files."""

import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from outspan.data import fetch as module
from outspan.data.dataset import DataSetEntry
from outspan.data.fetch import fetch
from outspan.data.sets import SETS
from outspan.downloads import Source

BODY = bytes(range(256)) * 4000


def toy(source: Source) -> dict[str, DataSetEntry]:
    return {"toy": DataSetEntry(SETS["digits"].read, folder="toy", sources=(source,))}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.requests.append(self.headers.get("Range"))
        if self.path not in server.files:
            return self.send_error(404)
        body, start = server.files[self.path], 0
        if self.headers.get("Range") and server.resumes:
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : start + server.at_most])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """Start a local server, and define a data set of one file on it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.files, made.requests, made.resumes, made.at_most = {"/a.bin": BODY}, [], True, len(BODY)
        thread = threading.Thread(target=made.serve_forever)
        thread.start()

        def publish(path: str, body: bytes, digest: str | None = None) -> None:
            made.files[path] = body
            source = Source(f"http://127.0.0.1:{made.server_port}{path}", digest or hashlib.sha256(body).hexdigest())
            monkeypatch.setattr(module, "SETS", toy(source))

        made.publish = publish
        publish("/a.bin", BODY)
        yield made
        made.shutdown()
        thread.join()


def test_a_data_set_is_downloaded(server, tmp_path):
    seen = []
    folder = fetch("toy", tmp_path / "deep" / "er", on_bytes=lambda *counts: seen.append(counts))
    assert (folder / "a.bin").read_bytes() == BODY
    assert seen[-1] == ("a.bin", len(BODY), len(BODY))
    assert [path.name for path in folder.parent.iterdir()] == ["toy"]
    assert fetch("toy", folder.parent) == folder
    assert len(server.requests) == 1  # the file existed already


def test_an_interrupted_download_resumes(server, tmp_path):
    server.at_most = 300_000
    for here in (300_000, 600_000, 900_000):
        with pytest.raises(
            ValueError, match=f"download interrupted after {here:,} bytes .*; run the same command again to resume"
        ):
            fetch("toy", tmp_path)
        assert not (tmp_path / "toy").exists()
    assert (fetch("toy", tmp_path) / "a.bin").read_bytes() == BODY
    assert server.requests == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_a_server_without_ranges_sends_the_whole_file(server, tmp_path):
    server.at_most, server.resumes = 300_000, False
    with pytest.raises(ValueError, match="download interrupted after 300,000 bytes"):
        fetch("toy", tmp_path)
    server.at_most = len(BODY)
    assert (fetch("toy", tmp_path) / "a.bin").read_bytes() == BODY


def test_a_complete_partial_file_is_used(server, tmp_path):
    (tmp_path / "toy.partial").mkdir()
    (tmp_path / "toy.partial" / "a.bin.partial").write_bytes(BODY)
    assert (fetch("toy", tmp_path) / "a.bin").read_bytes() == BODY


def test_a_file_with_a_wrong_digest_is_refused_and_removed(server, tmp_path):
    server.publish("/a.bin", BODY, digest="0" * 64)
    with pytest.raises(ValueError, match=r"its SHA-256 is [0-9a-f]{64}, expected 0{64}; it was removed"):
        fetch("toy", tmp_path)
    assert list((tmp_path / "toy.partial").iterdir()) == []


def test_the_status_of_the_server_is_in_the_message(server, tmp_path):
    server.files.clear()
    with pytest.raises(ValueError, match=r"/a\.bin: the server answered 404"):
        fetch("toy", tmp_path)


def test_a_missing_server_raises_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SETS", toy(Source("http://127.0.0.1:9/a.bin", "0" * 64)))
    with pytest.raises(ValueError, match="download interrupted after 0 bytes"):
        fetch("toy", tmp_path)


def test_archives_are_unpacked_inside_the_data_folder_only(server, tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("set/one.bin", "set/deep/two.bin", "../../three.bin", "/four.bin", "set/../../five.bin", "set"):
            entry = tarfile.TarInfo(name)
            entry.size = 3
            archive.addfile(entry, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("set/link.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    server.publish("/set.tar.gz", buffer.getvalue())
    fetch("toy", tmp_path / "a" / "b")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.bin")) == [
        f"a/b/toy/{name}" for name in ("deep/two.bin", "four.bin", "one.bin")
    ]
    server.publish("/cut.tar.gz", buffer.getvalue()[:60])
    with pytest.raises(ValueError, match=r"cut\.tar\.gz: not a complete archive"):
        fetch("toy", tmp_path / "c")


def test_a_kill_after_unpacking_needs_no_second_download(server, tmp_path, monkeypatch):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("set/one.bin"), io.BytesIO())
    server.publish("/set.tar.gz", buffer.getvalue())
    calls, replace = [], module.os.replace

    def killed(source, target):
        if target == tmp_path / "toy" and "killed" not in calls:
            calls.append("killed")
            raise KeyboardInterrupt
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(module.os, "replace", killed)
    monkeypatch.setattr(module.os, "sync", lambda: calls.append("sync"))
    with pytest.raises(KeyboardInterrupt):
        fetch("toy", tmp_path)
    folder = fetch("toy", tmp_path)
    assert calls == ["rename", "sync", "killed", "sync", "rename"]  # for the archive, then for the folder
    assert len(server.requests) == 1
    assert [path.name for path in folder.iterdir()] == ["one.bin"]

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")  # a read-only mount raises it also for a missing file

    monkeypatch.setattr(module.Path, "unlink", refuse)
    assert fetch("toy", tmp_path) == folder


def test_a_full_disk_raises_an_error_with_the_path(server, tmp_path, monkeypatch):
    def fill(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", fill)
    with pytest.raises(ValueError, match=r"a\.bin\.partial: cannot be written \(No space left on device\)"):
        fetch("toy", tmp_path)


def test_unknown_sets_are_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown data set to fetch 'cifar', did you mean 'cifar10'"):
        fetch("cifar", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_address_is_https_with_a_digest():
    for sources in (entry.sources for entry in SETS.values()):
        for source in sources:
            assert source.url.startswith("https://")
            assert len(bytes.fromhex(source.sha256)) == 32
