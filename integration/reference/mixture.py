"""Mixtures of pipeline/order/SELECTION.md: several datasets, mixed by weights."""

import decimal

import order
import records


def parse(text):
    """Parses NAME=WEIGHT:DATASET into (name, w_m, dataset)."""
    name, rest = text.split("=", 1)
    weight, dataset = rest.split(":", 1)
    return name, int(decimal.Decimal(weight) * 10**6), dataset


class Mixture:
    """The counterpart of reference.Dataset for several datasets.

    load makes the Dataset of a path. A record's number is its index in .records."""

    def __init__(self, sources, options, load):
        self.options = options
        self.names, self.weights, paths = zip(*[parse(s) for s in sources])
        self.sources = [load(path) for path in paths]
        self.format = self.sources[0].format
        self.records, self.first = [], []
        for name, source in zip(self.names, self.sources):
            for r in source.records:
                r.shard = name + "/" + r.shard  # in IDs and splits; fingerprints of sources lack it
            for shard in source.shards if self.format == "zarr" else []:
                shard.cube.path = name + "/" + shard.cube.path  # jitter depends on the ID
            self.first.append(len(self.records))
            self.records += source.records
        # The prologue is that of the first shard in dataset order.
        by_name = sorted(range(len(self.names)), key=lambda m: self.names[m] + "/")
        self.kind = self.sources[by_name[0]].kind
        self.shards = [shard for m in by_name for shard in self.sources[m].shards]
        self.last = None, None

    def shares(self, o):
        """Returns (weights, number of records left in each source)."""
        left = [[r for c in s.part(s.kept(s.chunks(o)), o["split"], o["split-seed"], o["split-by"]) for r in c] for s in self.sources]
        counts = [len(numbers) for numbers in left]
        if self.options["mix-by"] == "records":
            return list(self.weights), counts
        sizes = [sum(s.sizes()[n] for n in numbers) for s, numbers in zip(self.sources, left)]
        return order.weights_by_bytes(self.weights, counts, sizes), counts

    def length(self, o):
        """Returns the number of positions of an epoch."""
        text = self.options["mix-length"]
        if text == "first":
            return order.mixture_first(*self.shares(o))
        if text == "all":
            return order.mixture_all(*self.shares(o))
        return int(text)

    def fingerprint(self, o):
        weights, counts = self.shares(o)
        prints = [s.fingerprint(o) for s in self.sources]
        words = records.zarr_words(self.shards) if self.format == "zarr" else self.sources[0].words()
        return order.mixture_fingerprint(words, list(zip(weights, counts, prints, self.names)))

    def order(self, o):
        """Returns G; the last one is cached, because every worker needs it."""
        of = {k: o[k] for k in o if k not in ("worker", "workers", "deal", "tail", "from", "done", "kind")}
        if self.last[0] != of:
            self.last = of, self.make_order(o)
        return self.last[1]

    def make_order(self, o):
        weights, counts = self.shares(o)
        length = self.length(o)
        begin = o["epoch"] * length
        g, orders = [], {}
        for m, i in order.mixture_positions(weights, o["seed"], begin, begin + length):
            turn, at = divmod(i, counts[m])
            if (m, turn) not in orders:
                own = dict(o, seed=order.source_seed(o["seed"], m), epoch=turn)
                orders[m, turn] = self.sources[m].order(own)
            g.append(self.first[m] + orders[m, turn][at])
        return g
