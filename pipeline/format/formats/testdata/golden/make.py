#!/usr/bin/env python3
"""Writes the shards of this directory, each with a program that is none of ours, and golden.json.

golden.json says how each was made, and what of it is to be found: the SHA-256 of its decoded bytes (by zcat and
zstd -dc), the number of its records, and the SHA-256 of where they lie, "offset size\n" for each (tars by Python's
tarfile, lines by their ends). It needs GNU tar, bsdtar, gzip, pigz,
zstd, pzstd, lz4; Go for the module zstd-seekable-format-go and node for the package tfrecord, which have no program
(SEEKABLE and TFRECORD below). What is here was written by GNU tar 1.34, bsdtar 3.6.2, gzip 1.12, pigz 2.6, zstd 1.5.4, lz4 1.9.4, Python 3.11.
"""

import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WHEN = 1700000000
LONG = "/".join(["a directory with a rather long name"] * 4)  # more than 100 bytes, and its prefix fits ustar

FILES = {
    "LICENSE": b"free",
    "a/s1.cls": b"1",
    "a/s1.jpg": b"\xff\xd8" + bytes(range(256)) * 3,
    "a/s2.cls": b"2" * 513,
    "a/s2.jpg": b"",
    "b.c/s3.seg.png": b"png" * 200,
    "b.c/s3.txt": b"3",
    f"{LONG}/s4.cls": b"4",
    f"{LONG}/s4.jpg": b"jpg" * 300,
    "z/\u00e9t\u00e9.txt": "\u00e9t\u00e9\n".encode(),
}
SHORT = [name for name in FILES if not name.startswith(LONG[:10])]
LINES = b"".join(b'{"n": %d, "text": "%s"}\n' % (i, b"word " * (i % 17)) for i in range(400))

# Go: each 4000 bytes of stdin are a frame of a file in zstd's seekable format.
SEEKABLE = """package main

import (
	"io"
	"os"

	seekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/klauspost/compress/zstd"
)

func main() {
	data, _ := io.ReadAll(os.Stdin)
	encoder, _ := zstd.NewWriter(nil)
	w, _ := seekable.NewWriter(os.Stdout, encoder)
	for ; len(data) > 0; data = data[min(4000, len(data)):] {
		w.Write(data[:min(4000, len(data))])
	}
	w.Close()
}
"""

# node: each line of stdin is a record of a TFRecord file.
TFRECORD = """
const { RecordWriter } = require("tfrecord/lib/record_writer");
(async () => {
  const lines = require("fs").readFileSync(0).toString().split("\\n");
  const w = await RecordWriter.create("out.tfrecord");
  for (const line of lines) await w.writeRecord(Buffer.from(line));
  await w.close();
})();
"""

golden = {}


def run(*command, cwd=None, stdin=None):
    return subprocess.run(command, cwd=cwd, input=stdin, check=True, stdout=subprocess.PIPE).stdout


def tree(where, names):
    for name in names:
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(FILES[name])
    os.symlink("s1.jpg", where / "a/s1.link")
    os.link(where / "a/s1.jpg", where / "a/s1.zhard")
    for path in [where, *where.rglob("*")]:
        os.utime(path, (WHEN, WHEN), follow_symlinks=False)


def key(name):
    """pipeline/format/TAR.md: the path up to the first dot of the base name, None where the member is not eligible."""
    directory, _, base = name.rpartition("/")
    if base.find(".") < 1:
        return None
    return name[: len(name) - len(base) + base.index(".")]


def samples(archive):
    """Where runs of members with one key lie."""
    records, last = [], None
    for m in tarfile.open(fileobj=io.BytesIO(archive)):
        k = key(m.name) if m.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE) else None
        if k is None:
            continue
        if k != last:
            records.append([m.offset, 0])
        records[-1][1] = m.offset_data + (m.size + 511) // 512 * 512 - records[-1][0]
        last = k
    return records


def lines(text):
    records, at = [], 0
    for line in text.splitlines(keepends=True):
        records.append([at, len(line)])
        at += len(line)
    return records


def frames(data):
    records, at = [], 0
    while at < len(data):
        records.append([at, 16 + int.from_bytes(data[at : at + 8], "little")])
        at += records[-1][1]
    return records


def keep(name, how, raw, decoded, records):
    (HERE / name).write_bytes(raw)
    places = records(decoded)
    golden[name] = {
        "how": how,
        "decoded_sha256": hashlib.sha256(decoded).hexdigest(),
        "records": len(places),
        "records_sha256": hashlib.sha256("".join(f"{at} {size}\n" for at, size in places).encode()).hexdigest(),
    }


def tars():
    stable = ["--sort=name", f"--mtime=@{WHEN}", "--owner=0", "--group=0", "--numeric-owner", "-b1"]
    for format in ["gnu", "posix", "ustar", "v7", "oldgnu"]:
        with tempfile.TemporaryDirectory() as d:
            tree(pathlib.Path(d), SHORT if format == "v7" else FILES)
            more = ["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"] if format == "posix" else []
            out = run("tar", f"--format={format}", *stable, *more, "-cf", "-", ".", cwd=d)
            keep(f"gnutar-{format}.tar", f"tar --format={format} {' '.join(stable + more)} -cf - .", out, out, samples)
    for format in ["pax", "ustar", "gnutar"]:
        with tempfile.TemporaryDirectory() as d:
            tree(pathlib.Path(d), FILES)
            flags = [f"--format={format}", "--uid=0", "--gid=0", "--numeric-owner", "-b", "1"]
            out = run("bsdtar", *flags, "-cf", "-", *sorted(os.listdir(d)), cwd=d)
            keep(f"bsdtar-{format}.tar", f"bsdtar {' '.join(flags)} -cf - *", out, out, samples)
    for name, format in [("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)]:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=format) as t:
            for path, data in sorted(FILES.items()):
                m = tarfile.TarInfo(path)
                m.size, m.mtime = len(data), WHEN + (0.5 if name == "pax" else 0)
                t.addfile(m, io.BytesIO(data))
        archive = out.getvalue()[: t.offset + 1024]
        keep(f"python-{name}.tar", f"tarfile.open(…, format=tarfile.{name.upper()}_FORMAT)", archive, archive, samples)


def compressed():
    half = LINES.index(b"\n", len(LINES) // 2) + 1
    large = LINES * 400  # pzstd cuts at some MiB
    with tempfile.TemporaryDirectory() as d:
        path = pathlib.Path(d) / "named.jsonl"
        path.write_bytes(LINES)
        os.utime(path, (WHEN, WHEN))
        one, two = (run("gzip", "-nc", stdin=part) for part in (LINES[:half], LINES[half:]))
        shards = {
            "gzip-named.jsonl.gz": ("gzip -9c named.jsonl", run("gzip", "-9c", path)),
            "gzip-members.jsonl.gz": ("two of gzip -nc, one behind the other", one + two),
            "gzip-zeros.jsonl.gz": ("gzip -nc, and a block of zeros", run("gzip", "-nc", stdin=LINES) + bytes(512)),
            "pigz.jsonl.gz": ("pigz -nc", run("pigz", "-nc", stdin=LINES)),
            "pigz-zopfli.jsonl.gz": ("pigz -11nc", run("pigz", "-11nc", stdin=LINES)),
            "zstd-file.jsonl.zst": ("zstd -19c of a file: with its size", run("zstd", "-q19c", path)),
            "zstd-pipe.jsonl.zst": ("zstd -c of a pipe: without it", run("zstd", "-qc", stdin=LINES)),
            "zstd-unchecked.jsonl.zst": ("zstd --no-check -c", run("zstd", "-q", "--no-check", "-c", stdin=LINES)),
            "zstd-long.jsonl.zst": ("zstd --long=24 --ultra -22 -c", run("zstd", "-q", "--long=24", "--ultra", "-22", "-c", stdin=LINES)),
            "zstd-frames.jsonl.zst": ("two of zstd -c, one behind the other", b"".join(run("zstd", "-qc", stdin=p) for p in (LINES[:half], LINES[half:]))),
        }
        for name, (how, raw) in shards.items():
            keep(name, how, raw, run("zstd" if name.endswith("zst") else "gzip", "-dcq", stdin=raw), lines)
        path.write_bytes(large)
        run("pzstd", "-q", "-p", "4", "-1", "-f", path, "-o", str(path) + ".zst")
        keep("pzstd.jsonl.zst", "pzstd -p 4 -1 of 400 times the lines", pathlib.Path(str(path) + ".zst").read_bytes(), large, lines)
        module = pathlib.Path(d) / "seekable"
        module.mkdir()
        (module / "go.mod").write_text("module seekable\n")
        (module / "main.go").write_text(SEEKABLE)
        run("go", "get", "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg@v0.7.1", "github.com/klauspost/compress@v1.18.0", cwd=module)
        run("go", "mod", "tidy", cwd=module)
        raw = run("go", "run", ".", cwd=module, stdin=LINES)
        keep("seekable.jsonl.zst", "zstd-seekable-format-go 0.7.1, frames of 4000 bytes", raw, run("zstd", "-dcq", stdin=raw), lines)
        whole = run("lz4", "-qc", stdin=LINES)
        keep("lz4.jsonl.lz4", "lz4 -c", whole, LINES, lines)
        raw = b"".join(run("lz4", "-qc", "-BD", "-BX", stdin=p) for p in (LINES[:half], LINES[half:]))
        keep("lz4-frames.jsonl.lz4", "two of lz4 -BD -BX -c, one behind the other", raw, run("lz4", "-dcq", stdin=raw), lines)
        module = pathlib.Path(d) / "tfrecord"
        module.mkdir()
        run("npm", "install", "--prefix", ".", "tfrecord@0.2.0", cwd=module)
        run("node", "-e", TFRECORD, cwd=module, stdin=LINES[:half])
        raw = (module / "out.tfrecord").read_bytes()
        keep("node.tfrecord", "tfrecord 0.2.0 of npm, each line a record, and an empty one", raw, raw, frames)
        keep("node.tfrecord.gz", "the same, gzip -nc", run("gzip", "-nc", stdin=raw), raw, frames)
        archive = (HERE / "gnutar-posix.tar").read_bytes()
        keep("gnutar-posix.tar.zst", "zstd -c of gnutar-posix.tar", run("zstd", "-qc", stdin=archive), archive, samples)
        keep("gnutar-posix.tar.lz4", "lz4 -c of gnutar-posix.tar", run("lz4", "-qc", stdin=archive), archive, samples)
        keep("gnutar-posix.tar.gz", "gzip -nc of gnutar-posix.tar", run("gzip", "-nc", stdin=archive), archive, samples)


def main():
    for program in ["tar", "bsdtar", "gzip", "pigz", "zstd", "pzstd", "lz4", "go", "npm"]:
        if not shutil.which(program):
            raise SystemExit(f"make.py: there is no {program}")
    os.environ.update(LC_ALL="C.UTF-8", TZ="UTC")
    tars()
    compressed()
    text = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in golden.items())
    (HERE / "golden.json").write_text("{\n" + text + "\n}\n")


main()
