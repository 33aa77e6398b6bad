#!/usr/bin/env python3
"""Compare lsiofs with other ways to read the same shards.

    integration/bench/peers.py                       # all of it, some minutes
    integration/bench/peers.py --dir DIR --rounds 7 tar-parallel jsonl-gz/cat
    integration/bench/peers.py --dir DIR --table     # of what has been measured

It makes seeded data with `go run ./integration/bench --make`, reads it into the page cache,
runs each row --rounds times, in turn with the others of its group, after a
round that does not count, and prints a table in Markdown. Rows may be named, so
that it can be run in parts: DIR/results.json collects them.

A row is a fresh process. Of Python programs the loop is measured, not the start
of the interpreter and its imports; of lsiofs, a fresh mount with its index
stored, from when it is mounted. CPU is that of all processes, the server's too.
A shuffle is one with a buffer of 16384 samples, the default of lsiofs.

--check runs each row once and does not measure: it compares the numbers of
samples and the checksums of all their bytes with those of the shards.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib

import crops
import loaders
import table

HERE = pathlib.Path(__file__).resolve().parent
EPOCH = "epoch-0"


class Row:
    """A measurement: a way to read a dataset, with a shell line or a loader.

    In a line, {shards} are the dataset's files, {streams} the files of a mount with that many
    workers. sums is what a line's output can be compared with, flags are more flags of the mount.
    """

    def __init__(self, name, text, shuffled, line=None, loader=None, workers=0, processes=False, sums="samples", flags=()):
        self.name, self.text, self.shuffled, self.flags = name, text, shuffled, list(flags)
        self.line, self.loader, self.workers, self.processes, self.sums = line, loader, workers, processes, sums


def streams(workers, text, loader):
    return [
        Row(f"cat-{workers}", f"lsiofs, `cat` of {workers} files at once", True, line="cat", workers=workers),
        Row(f"{loader}-{workers}", f"lsiofs, {text}, {workers} processes", True, loader=loader, workers=workers, processes=True),
    ]


TAR = [
    Row("tar", "GNU `tar -xO` of all shards", False, line="tar -xO", sums="members"),
    Row("tarfile", "Python `tarfile`", False, loader="tarfile"),
    Row("reservoir-tarfile", "Python `tarfile`, shards at random, a reservoir", True, loader="reservoir-tarfile"),
    Row("reservoir-parser", "ten lines of Python, shards at random, a reservoir", True, loader="reservoir-parser"),
    Row("cat", "lsiofs, `cat` of one file", True, line="cat", workers=1),
    Row("stream-tarfile", "lsiofs, Python `tarfile`", True, loader="tarfile", workers=1),
    Row("parser", "lsiofs, ten lines of Python", True, loader="parser", workers=1),
    Row("samples", "lsiofs, its Python package: samples", True, loader="samples", workers=1),
    Row("records", "lsiofs, its Python package: records", True, loader="records", workers=1),
]
FIXED = [
    Row("blocks", "Python, `read` of 8 KiB", False, loader="blocks"),
    Row("reservoir-blocks", "Python, shards at random, a reservoir", True, loader="reservoir-blocks"),
    Row("cat", "lsiofs, `cat` of one file", True, line="cat", workers=1),
    Row("records", "lsiofs, its Python package: records", True, loader="records", workers=1),
]
TORCH = [
    Row("torch-reservoir", "torch DataLoader, 2 workers, over the `tarfile` reservoir", True, loader="torch-reservoir"),
    Row("torch-lsiofs", "torch DataLoader, 2 workers, each reads a file of lsiofs", True, loader="torch-lsiofs", workers=2),
]
CROPS = [
    Row("zarr-python", "zarr-python, two processes that hand crops over", True, loader="zarr-python"),
    Row("streams-random", "lsiofs, `--shuffle full`, `--memory 64MiB`", True, loader="crop-streams", workers=2, flags=["--shuffle", "full", "--memory", "64MiB"]),
    Row("streams-block", "lsiofs, `--shuffle block`, of 1024", True, loader="crop-streams", workers=2, flags=["--shuffle", "block", "--shuffle-size", "1024"]),
]


def jsonl(decoder):
    return [
        Row("decoder", f"`{decoder}` of all shards", False, line=decoder, sums="lines"),
        Row("reservoir-lines", "Python lines, shards at random, a reservoir", True, loader="reservoir-lines"),
        Row("cat", "lsiofs, `cat` of one file", True, line="cat", workers=1),
        Row("lines", "lsiofs, Python lines", True, loader="lines", workers=1),
        *streams(2, "Python lines", "lines"),
    ]


class Group:
    def __init__(self, title, dataset, rows):
        self.title, self.dataset, self.rows = title, dataset, rows


GROUPS = {
    "tar": Group("tar, samples of 12.5 KB", "tar", TAR),
    "tar-parallel": Group("tar, in parallel", "tar", [*streams(2, "ten lines of Python", "parser"), *streams(4, "ten lines of Python", "parser"), *TORCH]),
    "fixed": Group("fixed records of 8 KiB", "fixed", FIXED),
    "jsonl": Group("JSONL of 1.2 KB", "jsonl", jsonl("cat")),
    "jsonl-zst": Group("JSONL of 1.2 KB, `.zst`", "jsonl-zst", jsonl("zstd -dcq")),
    "jsonl-gz": Group("JSONL of 1.2 KB, `.gz`", "jsonl-gz", jsonl("gzip -dc")),
    "zarr": Group("crops of 24 × 128 × 128 of a Zarr array, blosc of lz4", "sat.zarr", CROPS),
}

DATASETS = {  # arguments of --make
    "tar": ["tar", "--records", "40000", "--bytes", "12500"],
    "fixed": ["fixed", "--records", "60000", "--bytes", "8192"],
    "jsonl": ["jsonl", "--records", "300000", "--bytes", "1200", "--shards", "8"],
    "jsonl-zst": ["jsonl", "--records", "300000", "--bytes", "1200", "--shards", "8", "--zst"],
    "jsonl-gz": ["jsonl", "--records", "300000", "--bytes", "1200", "--shards", "8", "--gz"],
}
ARRAYS = {"sat.zarr": (256, 768, 768)}  # edges; crops.py makes them
FLAGS = {"fixed": ["--format", "fixed", "--record-bytes", "8192"], "sat.zarr": crops.FLAGS}  # of lsiofs, for a dataset
ENDINGS = {"tar": ".tar", "fixed": ".bin", "sat.zarr": ".npy"}  # of streams, if not .jsonl
PLAIN = {"tar": "tarfile", "fixed": "blocks", "sat.zarr": "crops"}  # loader of shards; else lines
TINY = {"--records": "400", "--shards": "3"}
TINY_ARRAY = (48, 192, 256)


class Missing(Exception):
    """A row can't be run on this machine."""


class Bench:
    def __init__(self, a):
        self.dir, self.check, self.memory = pathlib.Path(a.dir), a.check, a.memory
        self.python, self.torch = find_python()
        self.zarr = subprocess.run([self.python, "-c", "import zarr"], stderr=subprocess.DEVNULL).returncode == 0
        self.lsiofs = a.lsiofs or self.build()
        self.flags = ["--index-dir", str(self.dir / "index")]
        self.ready, self.totals = {}, {}  # by dataset

    def build(self):
        out = self.dir / "lsiofs"
        subprocess.run(["go", "build", "-o", out, "./cmd/lsiofs"], cwd=HERE.parents[1], check=True, env={**os.environ, "CGO_ENABLED": "0"})
        return str(out)

    def make(self, *args):
        """Makes a dataset: a format, its flags, and where."""
        subprocess.run(["go", "run", "./integration/bench", "--make", *args], cwd=HERE.parents[1], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "CGO_ENABLED": "0"})

    def shards(self, dataset):
        """Makes the dataset if it does not exist, indexes it, and reads it."""
        if dataset in self.ready:
            return self.ready[dataset]
        where = self.dir / dataset
        if dataset in ARRAYS:
            return self.array(dataset, where)
        if not where.exists():
            flags = list(DATASETS[dataset])
            if self.check:
                for flag, value in TINY.items():
                    if flag in flags:
                        flags[flags.index(flag) + 1] = value
                    else:
                        flags += [flag, value]
            self.make(*flags, str(where))
        subprocess.run([self.lsiofs, "index", str(where), *self.flags, *FLAGS.get(dataset, [])], check=True, stdout=subprocess.DEVNULL)
        shards = sorted(str(p) for p in where.iterdir() if p.is_file())
        for shard in shards:
            with open(shard, "rb") as f:
                while f.read(1 << 22):
                    pass
        self.ready[dataset] = shards
        return shards

    def array(self, dataset, where):
        """Does the same for an array, which is one path."""
        if not where.exists():
            subprocess.run([self.python, str(HERE / "crops.py"), str(where), *map(str, self.shape(dataset))], check=True)
        subprocess.run([self.lsiofs, "index", str(where), *self.flags, *FLAGS[dataset]], check=True, stdout=subprocess.DEVNULL)
        for chunk in where.iterdir():
            chunk.read_bytes()
        self.ready[dataset] = [str(where)]
        return self.ready[dataset]

    def shape(self, dataset):
        return TINY_ARRAY if self.check else ARRAYS[dataset]

    def records(self, dataset):
        if dataset in ARRAYS:
            return len(crops.origins(self.shape(dataset)))
        return int(DATASETS[dataset][DATASETS[dataset].index("--records") + 1])

    def total(self, dataset, shards):
        """Returns samples, bytes and checksums of the shards, read in the simplest way."""
        if dataset in ARRAYS:
            self.totals.setdefault(dataset, self.run_loader(Row("all", "", False, loader="crops"), shards))
        if dataset not in self.totals:
            read = loaders.LOADERS[PLAIN.get(dataset, "lines")]
            count, size, samples = loaders.consume(read(shards), True)
            whole = 0
            for sample in read(shards):
                for data in [sample] if isinstance(sample, bytes) else sample.values():
                    whole = zlib.crc32(data, whole)
            self.totals[dataset] = {"samples": count, "bytes": size, "checksum": samples, "whole": whole}
        return self.totals[dataset]

    def run(self, group, row):
        """Runs a row, and returns its seconds and CPU seconds."""
        if row.loader and row.loader.startswith("torch") and not self.torch:
            raise Missing("there is no torch")
        if group.dataset in ARRAYS and not self.zarr:
            raise Missing("there is no zarr-python")
        shards = self.shards(group.dataset)
        if not row.workers:
            return self.run_on(row, group, shards, None)
        ending = ENDINGS.get(group.dataset, ".jsonl")
        with Mount(self.lsiofs, self.dir / group.dataset, [*self.flags, *FLAGS.get(group.dataset, []), "--memory", self.memory, *row.flags]) as m:
            files = [f"{m.dir}/{EPOCH}/worker-{w}-of-{row.workers}{ending}" for w in range(row.workers)]
            return self.run_on(row, group, files, m)

    def run_on(self, row, group, files, m):
        server = m.cpu_seconds() if m else 0
        got = self.run_loader(row, files) if row.loader else self.run_line(row, files, group)
        server = m.cpu_seconds() - server if m else 0
        if self.check:
            self.compare(row, group, got)
        return got["seconds"], got["cpu_seconds"] + server

    def run_loader(self, row, files):
        line = [self.python, str(HERE / "loaders.py"), row.loader, *(["--processes"] if row.processes else []), *(["--check", "--reservoir", "100"] if self.check else []), *files]
        return json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout)

    def run_line(self, row, files, group):
        if row.workers:
            commands = [[*row.line.split(), f] for f in files]
        elif row.line == "tar -xO":
            commands = [["sh", "-ec", 'for f; do tar -xOf "$f"; done', "sh", *files]]
        else:
            commands = [[*row.line.split(), *files]]
        if self.check:
            return self.outputs(row, commands, group)
        began, cpu = time.perf_counter(), children_cpu()
        # Writing to a pipe would not show the speed of the sender alone.
        running = [subprocess.Popen(c, stdout=subprocess.DEVNULL) for c in commands]
        if any([p.wait() for p in running]):
            raise RuntimeError(f"{row.name}: {commands} failed")
        return {"seconds": time.perf_counter() - began, "cpu_seconds": children_cpu() - cpu}

    def outputs(self, row, commands, group):
        """Returns what the commands wrote, in the form in which loaders report it."""
        found = {"samples": 0, "bytes": 0, "checksum": 0, "whole": 0, "seconds": 0, "cpu_seconds": 0}
        for command in commands:
            with tempfile.NamedTemporaryFile(dir=self.dir) as f:
                subprocess.run(command, stdout=f, check=True)
                if row.sums == "members":
                    data = pathlib.Path(f.name).read_bytes()
                    found.update(bytes=len(data), whole=zlib.crc32(data))
                    continue
                read = loaders.LOADERS[PLAIN.get(group.dataset, "lines")]
                count, size, checksum = loaders.consume(read([f.name]), True)
                found["samples"] += count
                found["bytes"] += size
                found["checksum"] += checksum
        return found

    def compare(self, row, group, got):
        want = self.total(group.dataset, self.shards(group.dataset))
        keys = ["bytes", "whole"] if row.sums == "members" else ["samples", "bytes", "checksum"]
        if row.loader == "records" and group.dataset == "tar":
            keys = ["samples"]  # its samples are pieces of tar
        for key in keys:
            if got[key] != want[key]:
                raise RuntimeError(f"{group.dataset}: {row.name}: {key} {got[key]}, of the shards {want[key]}")


class Mount:
    """A fresh mount, which is gone when the block ends, however it ends."""

    def __init__(self, lsiofs, dataset, flags):
        self.line, self.flags = [lsiofs, "mount", str(dataset)], flags

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="lsiofs-peers-")
        self.server = subprocess.Popen([*self.line, self.dir, *self.flags], stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.server.stderr:
            said.append(line)
            if line.startswith("  unmount"):  # the last one before it serves
                return self
        self.__exit__()
        raise RuntimeError("".join(said))

    def __exit__(self, *_):
        self.server.send_signal(signal.SIGTERM)
        self.server.stderr.close()
        self.server.wait()
        os.rmdir(self.dir)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_cpu():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def find_python():
    """Returns an interpreter that has torch, or else this one."""
    own = os.environ.get("LSIOFS_PYTHON")
    for python in [own] if own else [sys.executable, "python3", "/usr/bin/python3", "/usr/local/bin/python3"]:
        if shutil.which(python) and subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0:
            return python, True
    return own or sys.executable, False


def machine(b):
    """Describes the machine."""
    def first(*line):
        try:
            return subprocess.run(line, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
        except (OSError, IndexError):
            return "?"
    models = [line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    programs = [[b.lsiofs, "version"], [b.python, "-V"], [b.python, "-c", "import torch; print('torch', torch.__version__)"], ["tar", "--version"], ["gzip", "-V"], ["sh", "-c", "echo zstd $(zstd -qV)"]]
    return [
        f"{os.cpu_count()} × {models[0] if models else platform.machine()}", f"{memory:.0f} GiB of memory", f"Linux {platform.release()}",
        first("findmnt", "-no", "FSTYPE", "-T", str(b.dir)), *(first(*p) for p in programs if b.torch or "torch" not in p[-1]),
    ]


def measure(b, chosen, results, rounds, save):
    for name, rows in chosen.items():
        group = GROUPS[name]
        records = b.records(group.dataset)
        found = {r.name: {"text": r.text, "shuffled": r.shuffled, "samples": records, "runs": []} for r in rows}
        rng = random.Random(1)
        for i in range(1 if b.check else 1 + rounds):
            # In a different order each time: on a virtual machine whose host has to provide
            # memory, the memory that one row leaves behind makes the next one fast or slow.
            for row in rng.sample(rows, len(rows)):
                try:
                    took = b.run(group, row)
                    say(f"{name}/{row.name} " + ("checked" if b.check else "%.2f s, %.2f s of CPU" % took))
                    if i > 0:  # the first one warms up
                        found[row.name]["runs"].append(took)
                except Missing as e:
                    found[row.name]["missing"] = str(e)
                    say(f"{name}/{row.name} not run: {e}")
        results["groups"].setdefault(name, {}).update(found)
        save()


def choose(names):
    """Returns the rows that names (GROUP or GROUP/ROW; none: all) select, by group."""
    chosen = {}
    for name in names or GROUPS:
        group, _, row = name.partition("/")
        rows = [r for r in GROUPS[group].rows if row in ("", r.name)] if group in GROUPS else []
        if not rows:
            sys.exit(f"peers.py: there is no {name}: of " + " ".join(f"{g}/{r.name}" for g in GROUPS for r in GROUPS[g].rows))
        chosen.setdefault(group, []).extend(rows)
    return chosen


def say(text):
    print(text, file=sys.stderr, flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("rows", nargs="*", metavar="GROUP[/ROW]", help=f"of {', '.join(GROUPS)}; all of them")
    p.add_argument("--dir", help="where data, index and results are kept (1.8 GB); a temporary directory, removed at the end")
    p.add_argument("--lsiofs", help="the program; it is built where none is named")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--memory", default="1GiB", help="of mounts")
    p.add_argument("--check", action="store_true", help="only check what the rows read, on tiny data")
    p.add_argument("--table", action="store_true", help="print what has been measured already")
    p.add_argument("--json", action="store_true", help="print all results as JSON")
    a = p.parse_args()
    chosen = choose(a.rows)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing stays mounted
    with tempfile.TemporaryDirectory(prefix="lsiofs-peers-") as own:
        a.dir = a.dir or own
        pathlib.Path(a.dir).mkdir(parents=True, exist_ok=True)
        run(a, chosen)


def run(a, chosen):
    path = pathlib.Path(a.dir) / ("checked.json" if a.check else "results.json")
    results = json.loads(path.read_text()) if path.exists() else {"groups": {}}
    if not a.table:
        b = Bench(a)
        if not a.check:
            results.update(machine=machine(b), rounds=a.rounds)
        measure(b, chosen, results, a.rounds, lambda: path.write_text(json.dumps(results)))
    if a.json:
        print(json.dumps(results, indent=1))
    elif not a.check:
        print(table.table([(g.title, in_order(g, results["groups"].get(name, {}))) for name, g in GROUPS.items()], results))


def in_order(group, found):
    return [found[r.name] for r in group.rows if r.name in found]


if __name__ == "__main__":
    main()
