"""Checks order.py against the published vectors of ORDER.md."""

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
    }
    unknown = set(v) - set(checks) - {"about"}
    if unknown:
        raise AssertionError("vectors that nothing checks: %s" % unknown)
    n = 0
    for name, one in checks.items():
        for entry in v[name]:
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
    same(order.record_id(e["path"], e["ordinal"]).hex(), e["id"])


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
    """One vector has a worker take 11 of its 10 records. A checkpoint that says
    so is refused; the vector means all of them."""
    workers = order.owners(n, len(entry["consumed"]), entry["batch"], entry.get("deal", "interleaved"))
    return dict(entry, consumed=[min(c, workers.count(w)) for w, c in enumerate(entry["consumed"])])


def check_contiguous(v, e):
    if "done" in e:
        return check_resume(v, e)
    g = v["order"][e["order"]]["G"]
    same(order.deal_out(g, g, e["workers"], 1, "contiguous", "keep")[e["worker"]], e["records"])


def check_tail(v, e):
    g = v["order"][e["order"]]["G"]
    left = g[e.get("resume_after", 0) :]
    same(order.deal_out(left, g, e["workers"], e["batch"], "interleaved", e["tail"])[e["worker"]], e["records"])


def check_split(e):
    low, high = e["part"].split("..")
    same(order.in_part(e["path"], e["unit_ordinal"], e["split_seed"], low, high), e["in"])


def check_split_count(e):
    low, high = e["part"].split("..")
    first, last = (int(x) for x in e["unit_ordinals"].split(".."))
    got = sum(order.in_part(e["path"], o, e["split_seed"], low, high) for o in range(first, last + 1))
    same(got, e["in"])
