"""Small datasets for the tests to mount, and what all tests share."""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import json
import os
import pathlib
import re
import struct
import sys
import tarfile
import tempfile
import threading
import time
import unittest

import lsiofs

PATIENCE = 90  # seconds to wait for something that is certain to happen


def make_jsonl(root, records=240, shards=4):
    """Writes lines {"x": [...], "y": n}, with n from 0."""
    for shard in range(shards):
        numbers = range(shard * records // shards, (shard + 1) * records // shards)
        text = "".join(json.dumps({"x": [n % 7, n % 3], "y": n}) + "\n" for n in numbers)
        pathlib.Path(root, f"{shard}.jsonl").write_text(text)


def make_tar(root, records=60, size=700):
    """Writes samples n01/000 … of two members each."""
    with tarfile.open(os.path.join(root, "all.tar"), "w") as archive:
        for n in range(records):
            for extension, data in ("jpg", bytes([n]) * (size + n)), ("cls", str(n).encode()):
                member = tarfile.TarInfo(f"n0{n % 2}/{n:03}.{extension}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def make_lines(root):
    pathlib.Path(root, "a.txt").write_bytes(b"one\ntwo\r\n\xff three\n" * 20)


def make_fixed(root, records=300):
    pathlib.Path(root, "tokens.bin").write_bytes(b"".join(struct.pack("<4H", n, n + 1, n + 2, 7) for n in range(records)))


def make_images(root):
    for name in "dog", "cat", "emu":
        directory = pathlib.Path(root, name, "more")
        directory.mkdir(parents=True)
        for i in range(5):
            (directory / f"{i}.ppm").write_bytes(name.encode() * (i + 1))


class Case(unittest.TestCase):
    """A test with datasets and an index cache of its own, which are removed at its end."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.index = self.made("index")
        before = mount_points()
        self.addCleanup(lambda: self.assertEqual(mount_points() - before, set(), "mount points are left"))

    def made(self, name, make=lambda root: None, **sizes):
        path = os.path.join(self.directory, name)
        os.mkdir(path)
        make(path, **sizes)
        return path

    def mount(self, make, *args, sizes=None, **flags):
        """Mounts a dataset made by `make` until the end of the test."""
        root = os.path.join(self.directory, make.__name__)
        if not os.path.isdir(root):
            self.made(make.__name__, make, **(sizes or {}))
        mount = lsiofs.mount(root, *args, index_dir=self.index, **flags)
        self.addCleanup(mount.close)
        return mount

    def until(self, what, holds):
        end = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > end:
                self.fail(f"it has not come about that {what}")
            time.sleep(0.005)


@contextlib.contextmanager
def windows_of(size):
    """Makes windows small, so that small data has many of them."""
    from lsiofs import stream

    before, stream.WINDOW = stream.WINDOW, size
    try:
        yield
    finally:
        stream.WINDOW = before


@contextlib.contextmanager
def web_server(root):
    """Serves the files in root, and yields the server's URL."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *args):  # a client may disconnect before the end of a response
            pass

    with Server(("127.0.0.1", 0), functools.partial(Quiet, directory=root)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def reading_threads():
    return [t for t in threading.enumerate() if t.name == "lsiofs-read-ahead"]


def mount_points():
    """Returns the mount points that this program has made."""
    return {name for name in os.listdir(tempfile.gettempdir()) if re.fullmatch(r"lsiofs-[a-z0-9_]{8}", name)}


def is_mount(path):
    with open("/proc/self/mountinfo") as f:
        return any(line.split(" ")[4] == path for line in f)


def is_running(pid):
    """Reports whether a process that is not our child is running."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def in_child(body):
    """Runs body in a fork, and returns its result, or the name of its error, after a round trip through JSON."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            result = body()
        except BaseException as e:
            result = type(e).__name__
        with open(writer, "w") as f:
            json.dump(result, f)
        os._exit(0)
    os.close(writer)
    with open(reader) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text)


PYTHON = sys.executable
