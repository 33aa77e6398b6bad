"""The loaders that peers.py compares, each run as in a Python program.

    loaders.py LOADER [--processes N] [--check] PATH…

runs one over files, and prints a JSON object: samples, bytes, seconds and CPU seconds of the run
(without the start of the interpreter), and with --check the sum of the CRCs of all samples' bytes.
With --processes, each process reads one of the files. It only uses the standard library, except for
torch in the loaders named after it, and zarr-python for crops.
"""

import argparse
import gzip
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tarfile
import time
import zlib

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "python" / "src"))
import crops  # noqa: E402
import lsiofs  # noqa: E402

RESERVOIR = 16384  # samples, the default of lsiofs; set by main
SEED = 42
BUFFER = 1 << 20


# tar → samples. A sample is a dictionary: its key, and its members by extension.

def parser(path):
    """Reads the samples of a tar with the ten lines of code that a plain archive needs."""
    key, sample = None, {}
    with open(path, "rb", buffering=BUFFER) as f:
        while (header := f.read(512)) and header[0]:
            size = int(header[124:135], 8)
            name, _, ending = header[: header.index(0)].decode().rpartition("/")[2].partition(".")
            if name != key:
                if sample:
                    yield sample
                key, sample = name, {}
            sample[ending] = f.read(size)
            f.seek(-size % 512, os.SEEK_CUR)
    if sample:
        yield sample


def tarfiles(path):
    """Reads the samples of a tar with tarfile."""
    key, sample = None, {}
    # "r|": front to back, without seeking. tarfile reads 10 KiB at a time, so the file is buffered.
    with open(path, "rb", buffering=BUFFER) as f, tarfile.open(fileobj=f, mode="r|") as stream:
        for member in stream:
            directory, base = os.path.split(member.name)
            name, _, ending = base.partition(".")
            if os.path.join(directory, name) != key:
                if sample:
                    yield sample
                key, sample = os.path.join(directory, name), {}
            sample[ending] = stream.extractfile(member).read()
    if sample:
        yield sample


def records(path):
    """Reads the raw records of a stream of lsiofs with its Python package."""
    for record in lsiofs.Stream(path):
        yield {"record": record}


def samples(path):
    """Reads the samples of a tar stream of lsiofs with its Python package."""
    for sample in lsiofs.Stream(path).samples():
        del sample["__key__"]
        yield sample


def blocks(path):
    """Reads the records of a fixed shard, 8 KiB each."""
    with open(path, "rb", buffering=BUFFER) as f:
        while record := f.read(8192):
            yield record


# JSONL → samples: lines.

def lines(path):
    if path.endswith(".gz"):
        with gzip.open(path, "rb") as f:
            yield from f
    elif path.endswith(".zst"):
        with subprocess.Popen(["zstd", "-dcq", path], stdout=subprocess.PIPE, bufsize=BUFFER) as p:
            yield from p.stdout
    else:
        with open(path, "rb") as f:
            yield from f


# Shuffling like the webdataset library: shards in random order, and a buffer from which a random
# sample is taken when a new one is added.

def reservoir(read, shards, part=0, parts=1):
    rng = random.Random(SEED)
    order = sorted(shards)
    rng.shuffle(order)
    rng = random.Random(SEED + part)
    kept = []
    for shard in order[part::parts]:
        for sample in read(shard):
            if len(kept) < RESERVOIR:
                kept.append(sample)
                continue
            i = rng.randrange(RESERVOIR)
            kept[i], sample = sample, kept[i]
            yield sample
    rng.shuffle(kept)
    yield from kept


def in_turn(read):
    def run(paths):
        for path in paths:
            yield from read(path)
    return run


def shuffled(read):
    return lambda paths: reservoir(read, paths)


def torch_loader(source, workers):
    """Returns a DataLoader of batches of 32 from two workers."""
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class Dataset(IterableDataset):
        def __iter__(self):
            info = get_worker_info()
            return source(info.id, info.num_workers)

    for batch in DataLoader(Dataset(), batch_size=32, num_workers=workers, collate_fn=list):
        yield from batch


def torch_reservoir(paths):
    return torch_loader(lambda part, parts: reservoir(tarfiles, paths, part, parts), 2)


def torch_lsiofs(paths):
    return torch_loader(lambda part, parts: parser(paths[part]), len(paths))


LOADERS = {
    "tarfile": in_turn(tarfiles),
    "parser": in_turn(parser),
    "records": in_turn(records),
    "samples": in_turn(samples),
    "blocks": in_turn(blocks),
    "reservoir-blocks": shuffled(blocks),
    "reservoir-tarfile": shuffled(tarfiles),
    "reservoir-parser": shuffled(parser),
    "torch-reservoir": torch_reservoir,
    "torch-lsiofs": torch_lsiofs,
    "crops": crops.in_order,
    "zarr-python": crops.zarr_python,
    "crop-streams": crops.streams,
    "lines": in_turn(lines),
    "reservoir-lines": shuffled(lines),
}


def consume(stream, check):
    """Reads samples like a program that only counts them."""
    count = size = checksum = 0
    for sample in stream:
        count += 1
        for data in [sample] if isinstance(sample, bytes) else sample.values():
            size += len(data)
            if check:
                checksum += zlib.crc32(data)
    return count, size, checksum


def in_processes(loader, paths, check):
    """Runs a process for each of the files, and returns the sum of their results."""
    pipes = []
    for path in paths:
        r, w = os.pipe()
        if os.fork() == 0:
            os.close(r)
            with os.fdopen(w, "w") as f:
                json.dump(consume(loader([path]), check), f)
            os._exit(0)
        os.close(w)
        pipes.append(r)
    found = []
    for r in pipes:
        with os.fdopen(r) as f:
            found.append(json.load(f))
        os.wait()
    return [sum(numbers) for numbers in zip(*found)]


def cpu_seconds():
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main():
    global RESERVOIR
    p = argparse.ArgumentParser()
    p.add_argument("loader", choices=LOADERS)
    p.add_argument("--processes", action="store_true")
    p.add_argument("--check", action="store_true")
    p.add_argument("--reservoir", type=int, default=RESERVOIR)
    p.add_argument("paths", nargs="+")
    a = p.parse_args()
    if a.loader.startswith("torch"):
        import torch.utils.data  # noqa: F401, so that its import is not measured
    if a.loader in ("crops", "zarr-python"):
        import zarr  # noqa: F401, likewise

    RESERVOIR = a.reservoir
    loader = LOADERS[a.loader]
    began, cpu = time.perf_counter(), cpu_seconds()
    if a.processes:
        count, size, checksum = in_processes(loader, a.paths, a.check)
    else:
        count, size, checksum = consume(loader(a.paths), a.check)
    took = time.perf_counter() - began
    json.dump({"samples": count, "bytes": size, "checksum": checksum, "seconds": took, "cpu_seconds": cpu_seconds() - cpu}, sys.stdout)


if __name__ == "__main__":
    main()
