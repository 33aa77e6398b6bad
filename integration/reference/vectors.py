"""Checks the program in the pages that define the order against the published vectors."""

import hashlib
import json

import order


def check(path):
    """Returns the number of vectors that hold; raises at the first that doesn't."""
    with open(path, encoding="utf-8") as f:
        v = json.load(f)
    checks = {
        "key": check_key, "draw": check_draw, "permute": check_permute, "id": check_id,
        "order": check_order, "large": check_large, "split": check_split, "split_count": check_split_count,
        "resume": lambda e: check_resume(v, e),
        "contiguous": lambda e: check_contiguous(v, e),
        "tail": lambda e: check_tail(v, e),
        "phase": check_phase, "mixture": check_mixture, "length": check_length,
        "fingerprint": check_fingerprint, "epoch": check_epoch,
    }
    unknown = set(v) - set(checks) - {"about"}
    if unknown:
        raise AssertionError("vectors that nothing checks: %s" % unknown)
    n = 0
    for name, one in checks.items():
        entries = v.get(name, [])
        for entry in [entries] if isinstance(entries, dict) else entries:
            try:
                one(entry)
            except Exception as e:
                raise AssertionError("vector of %s does not hold: %.300r" % (name, entry)) from e
            n += 1
    return n


def same(got, want):
    if got != want:
        raise AssertionError("got %.500r, want %.500r" % (got, want))


def check_key(e):
    same(order.key(e["domain"], e["seed"], e["epoch"], e["index"]), int(e["key"]))


def check_draw(e):
    same(order.draw(int(e["key"]), e["i"]), int(e["draw"]))
    same(order.below(int(e["key"]), e["i"], 1000), e["below_1000"])


def check_permute(e):
    a = list(range(e["n"]))
    order.permute(a, int(e["key"]), e["base"])
    same(a, e["result"])


def check_id(e):
    same(order.record_id(e["path"].encode(), e["ordinal"]).hex(), e["id"])


def g_of(e, lengths):
    chunks, begin = [], 0
    for n in lengths:
        chunks.append(list(range(begin, begin + n)))
        begin += n
    return order.global_order(chunks, e["seed"], e["epoch"], e["shuffle"], e["size"], e["lanes"], e["groups"], e["batch"])


def check_order(e):
    same(g_of(e, e["chunk_records"]), e["G"])


def check_large(e):
    assert e["chunk_records"] == "1000 chunks, chunk i has (i*7919) mod 200 + 1 records"
    g = g_of(e, [i * 7919 % 200 + 1 for i in range(1000)])
    same(len(g), e["records"])
    same(g[: len(e["first"])], e["first"])
    same(hashlib.sha256(b"".join(r.to_bytes(8, "little") for r in g)).hexdigest(), e["sha256_of_G_as_u64le"])


def check_resume(v, e):
    remaining = v["order"][e["order"]]["G"]
    for entry in e["done"]:
        remaining = order.resume(remaining, at_most_what_there_was(entry, len(remaining)))
    same(remaining, e["remaining"])


def at_most_what_there_was(entry, n):
    """In one vector a worker consumes 11 of its 10 records. A checkpoint with that is refused; the
    vector means all of them."""
    workers = order.owners(n, len(entry["consumed"]), entry["batch"], entry.get("deal", "interleaved"))
    return dict(entry, consumed=[min(c, workers.count(w)) for w, c in enumerate(entry["consumed"])])


def check_contiguous(v, e):
    if "done" in e:
        return check_resume(v, e)
    g = v["order"][e["order"]]["G"]
    same(order.streams(g, [], e["workers"], 1, "contiguous", "keep")[e["worker"]], e["records"])


def check_tail(v, e):
    g = v["order"][e["order"]]["G"]
    done = [{"batch": 1, "consumed": [e.get("resume_after", 0)]}]
    same(order.streams(g, done, e["workers"], e["batch"], "interleaved", e["tail"])[e["worker"]], e["records"])


def check_split(e):
    low, high = e["part"].split("..")
    same(order.in_part(e["path"].encode(), e["unit_ordinal"], e["split_seed"], low, high), e["in"])


def check_split_count(e):
    low, high = e["part"].split("..")
    first, last = (int(x) for x in e["unit_ordinals"].split(".."))
    got = sum(order.in_part(e["path"].encode(), o, e["split_seed"], low, high) for o in range(first, last + 1))
    same(got, e["in"])


def check_phase(e):
    same([order.phase(e["path"].encode(), i, e["seed"], e["n"]) for i in range(len(e["phases"]))], e["phases"])


def check_mixture(e):
    weights, seed = e["weights"], int(e["seed"])
    same(order.key("mix", seed, 0, 0), int(e["mix_key"]))
    same([order.source_seed(seed, m) for m in range(len(weights))], [int(s) for s in e["source_seeds"]])
    for walk in e["walk"]:
        begin = walk["from"]
        same(order.mixture_positions(weights, seed, begin, begin + len(walk["positions"])), [tuple(p) for p in walk["positions"]])
    for c in e["counts"]:
        same(order.mixture_counts(weights, c["n"]), c["c"])
    d = e["digest"]
    positions = order.mixture_positions(weights, seed, d["from"], d["from"] + d["positions"])
    same(hashlib.sha256(b"".join(bytes([m]) + i.to_bytes(8, "little") for m, i in positions)).hexdigest(), d["sha256"])


def check_length(e):
    same(order.mixture_first(e["weights"], e["records"]), e["first"])
    same(order.mixture_all(e["weights"], e["records"]), e["all"])


def check_fingerprint(e):
    same(order.mixture_fingerprint(e["format"], [tuple(s) for s in e["sources"]]), e["fingerprint"])


def check_epoch(e):
    assert e["about"].startswith("three sources of one chunk each (50, 20, 10 records), shuffle reservoir of size 8, 4 lanes, seed 5, length 256:")
    seed, length = int(e["seed"]), e["length"]
    chunks = [[list(range(n))] for n in (50, 20, 10)]
    for epoch, g in enumerate(e["G"]):
        got = []
        for m, i in order.mixture_positions(e["weights"], seed, epoch * length, (epoch + 1) * length):
            turn, at = divmod(i, len(chunks[m][0]))
            got.append([m, order.global_order(chunks[m], order.source_seed(seed, m), turn, "reservoir", 8, 4, 1, 1)[at]])
        same(got, g)
