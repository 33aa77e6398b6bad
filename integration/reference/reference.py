#!/usr/bin/env python3
"""A second, deliberately naive implementation of the order (order.py) and of records (formats.py).

    reference.py DATASET [options]     writes the bytes of one stream to stdout
    reference.py DATASET --fingerprint writes the dataset's fingerprint
    reference.py DATASET --requests    answers requests, one JSON object a line
                                       with the options as keys, on stdout: the
                                       number of bytes in decimal, a newline, them;
                                       "refused", a space and why where the dataset
                                       can't be read (under the request's on-corrupt)
    reference.py "" --mix NAME=WEIGHT:DATASET …     the same of a mixture
    reference.py --vectors FILE        checks itself against published vectors

It holds the whole dataset in memory and computes all of an epoch for one
stream. Only Python's standard library and the programs zstd and lz4 are used; for Zarr also
NumPy, numcodecs and zarr-python.
"""

import argparse
import json
import sys

sys.dont_write_bytecode = True

import equalkeys
import formats
import mixture
import order
import records
import vectors

DEFAULTS = {
    "seed": 0, "epoch": 0, "shuffle": "reservoir", "shuffle-size": 16384, "lanes": 32, "groups": 1,
    "chunk-bytes": 262144, "chunk-records": 128, "split": "", "split-seed": 0, "split-by": "record",
    "sample": "", "sample-seed": 0,
    "workers": 1, "worker": 0, "batch": 1, "deal": "interleaved", "tail": "keep",
    "from": 0, "done": [], "kind": "data",
}


class Dataset:
    def __init__(self, path, options):
        self.options = options
        self.format, self.shards = records.load(path, options)
        self.records = [r for s in self.shards for r in s.records]
        self.kind = self.records[0].kind if self.records else None
        self.orders = {}

    def words(self):
        """Returns the format as in fingerprints."""
        words = self.format
        if words == "zarr":
            return records.zarr_words(self.shards)
        if words == "fixed":
            n = self.options["record-bytes"]
            words = "fixed %d %d %d" % (n, self.options.get("stride-bytes") or n, self.options.get("header-bytes", 0))
        if self.options.get("array"):
            words = "npy " + ",".join(a.split("=", 1)[0] for a in self.options["array"])
        return words

    def fingerprint(self, o):
        lines = [(len(s.records), s.decoded_bytes, sum(r.entry for r in s.records), path_bytes(s.path)) for s in self.shards]
        return order.fingerprint(self.words(), lines)

    def order(self, o):
        batch = o["batch"] if o["groups"] > 1 else 1
        split = (o["split"], o["split-seed"], o["split-by"])
        share = (o["sample"], o["sample-seed"], o["epoch"])
        wanted = (o["chunk-bytes"], o["chunk-records"], o["seed"], o["epoch"], o["shuffle"], o["shuffle-size"], o["lanes"], o["groups"], batch)
        if wanted + split + share not in self.orders:
            chunks = self.part(self.kept(self.chunks(o)), *split)
            chunks = self.sample(chunks, *share)
            self.orders = {wanted + split + share: order.global_order(chunks, *wanted[2:])}
        return self.orders[wanted + split + share]

    def chunks(self, o):
        shards = [[(r.size if self.format == "zarr" else len(r.data), r.entry) for r in s.records] for s in self.shards]
        return order.chunks(shards, o["chunk-bytes"], o["chunk-records"])

    def sizes(self):
        return [r.size if self.format == "zarr" else len(r.data) for r in self.records]

    def kept(self, chunks):
        if self.format != "zarr":
            return chunks
        left = [k for s in self.shards if s.records for k in s.records[0].cube.kept()]
        return order.select(chunks, left)

    def part(self, chunks, part, seed, by):
        if not part:
            return chunks
        low, high = part.split("..")
        units = order.units([[r.entry for r in s.records] for s in self.shards], by)
        left = [order.in_part(path_bytes(r.shard), unit, seed, low, high) for r, unit in zip(self.records, units)]
        return order.select(chunks, left)

    def sample(self, chunks, share, seed, epoch):
        if not share:
            return chunks
        n = int(share.removeprefix("1/"))
        left = [order.phase(path_bytes(r.shard), r.ordinal, seed, n) == epoch % n for r in self.records]
        return order.select(chunks, left)


def path_bytes(path):
    return path.encode("utf-8", "surrogateescape")


def stream(of, request):
    """Returns the bytes of a stream of a Dataset or a Mixture."""
    o = dict(DEFAULTS, **request)
    g = of.order(o)
    done = o["done"] + [{"batch": 1, "consumed": [o["from"]]}]
    mine = order.streams(g, done, o["workers"], o["batch"], o["deal"], o["tail"])[o["worker"]]
    return render(of, [of.records[n] for n in mine], o)


def render(of, mine, o):
    kind = o["kind"]
    tars = of.format in ("tar", "files")
    if kind == "ids":
        return b"".join(order.record_id(path_bytes(r.shard), r.ordinal) for r in mine)
    if kind == "crops":
        return records.zarr_table(mine, of.shards, o)
    parts = []
    for position, r in enumerate(mine):
        if of.format == "zarr":
            parts.append(r.data_in(o))
            continue
        equal = tars and position > 0 and r.key is not None and r.key == mine[position - 1].key
        parts.append(equalkeys.rename(r.data, r.members, position, r.begin) if equal else r.data)
    prologue = formats.npy_header(of.kind, len(mine)) if of.format in ("npy", "zarr") else b""
    if kind == "offsets":
        return order.offsets(len(prologue), [len(p) for p in parts])
    return prologue + b"".join(parts) + (formats.EPILOGUE if tars else b"")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dataset", nargs="?")
    p.add_argument("--vectors")
    p.add_argument("--fingerprint", action="store_true")
    p.add_argument("--requests", action="store_true")
    p.add_argument("--format", default="auto")
    for name in ("record-bytes", "stride-bytes", "header-bytes"):
        p.add_argument("--" + name, type=int, default=0)
    p.add_argument("--array", action="append")
    for name in ("crop", "stride", "step", "edge", "crops", "missing", "as", "scale", "offset"):
        p.add_argument("--" + name, default="")
    for name in ("select", "wrap"):
        p.add_argument("--" + name, action="append")
    for name in ("jitter", "stack"):
        p.add_argument("--" + name, action="store_true")
    p.add_argument("--remainder", default="corrupt")
    p.add_argument("--lc0-check", action="store_true")
    p.add_argument("--on-corrupt", default="fail")
    p.add_argument("--mix", action="append")
    p.add_argument("--mix-length", default="first")
    p.add_argument("--mix-by", default="records")
    for name, value in DEFAULTS.items():
        p.add_argument("--" + name, default=value, type=json.loads if name == "done" else type(value))
    return p.parse_args()


def load(a, options):
    """Returns the Dataset or Mixture of the command line."""
    if a.mix:
        return mixture.Mixture(a.mix, options, lambda path: Dataset(path, options))
    return Dataset(a.dataset, options)


def answers(a, options):
    """Answers requests until there are no more."""
    loaded = {}

    def under(policy):
        if policy not in loaded:
            try:
                loaded[policy] = load(a, dict(options, **{"on-corrupt": policy}))
            except (formats.Corrupt, formats.Refused) as e:
                loaded[policy] = e
        return loaded[policy]

    under(options["on-corrupt"])  # before the first request, so that it does not wait
    for line in sys.stdin:
        request = json.loads(line)
        dataset = under(request.pop("on-corrupt", options["on-corrupt"]))
        if isinstance(dataset, Exception):
            text = "refused %s: %s" % (type(dataset).__name__, dataset)
            sys.stdout.buffer.write(text.replace("\n", " ").encode(errors="replace") + b"\n")
        else:
            if request.get("kind") == "fingerprint":
                data = dataset.fingerprint(dict(DEFAULTS, **request)).encode()
            else:
                data = stream(dataset, request)
            sys.stdout.buffer.write(b"%d\n" % len(data) + data)
        sys.stdout.buffer.flush()


def main():
    a = arguments()
    if a.vectors:
        print("%d vectors hold" % vectors.check(a.vectors))
        return
    options = {k.replace("_", "-"): v for k, v in vars(a).items()}
    if a.requests:
        answers(a, options)
    elif a.fingerprint:
        print(load(a, options).fingerprint({k: options[k] for k in DEFAULTS}))
    else:
        sys.stdout.buffer.write(stream(load(a, options), {k: options[k] for k in DEFAULTS}))


if __name__ == "__main__":
    main()
