"""ORDER.md, written down as plainly as possible: lists in, lists out.

This is the second, independent implementation that the tests hold the program
against. It is written from ORDER.md alone, keeps everything in memory, and is
slow on purpose: where a formula of the program is clever, here is the sentence
of the page.

Records are numbers in dataset order, 0 … T-1.
"""

import hashlib
import math

MASK = 2**64 - 1


# Randomness


def key(domain, seed, epoch, index):
    text = "lsiofs/1 %s %d %d %d" % (domain, seed, epoch, index)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def mix(z):
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & MASK
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & MASK
    z ^= z >> 31
    return z


def draw(k, i):
    return mix((k + (i + 1) * 0x9E3779B97F4A7C15) & MASK)


def below(k, i, n):
    return draw(k, i) * n >> 64


def permute(a, k, base):
    i = base
    for j in range(len(a) - 1, 0, -1):
        other = below(k, i, j + 1)
        a[j], a[other] = a[other], a[j]
        i += 1


# Chunks


def chunks(shards, chunk_bytes, chunk_records):
    """The chunks of a dataset, each a list of record numbers.

    shards is a list of lists of (size, is an entry point), one a record.
    """
    result, number = [], 0
    for shard in shards:
        chunk, size = [], 0
        for bytes_of_record, entry in shard:
            full = size >= chunk_bytes or len(chunk) >= chunk_records
            if chunk and full and entry:
                result.append(chunk)
                chunk, size = [], 0
            chunk.append(number)
            size += bytes_of_record
            number += 1
        if chunk:
            result.append(chunk)
    return result


# The global order


def full_permutation(total, seed, epoch):
    if total == 0:
        return []
    bits = max((total - 1).bit_length(), 2)
    bits += bits % 2
    half = bits // 2
    mask = (1 << half) - 1
    keys = [key("full", seed, epoch, r) for r in range(6)]

    def perm(x):
        while True:
            left, right = x >> half, x & mask
            for k in keys:
                left, right = right, left ^ (mix((k + right) & MASK) & mask)
            x = (left << half) | right
            if x < total:
                return x

    return [perm(i) for i in range(total)]


def reservoir(lane, k, size):
    slots, rest, out = lane[:size], lane[size:], []
    rest.reverse()  # the next record is the last one: pop is cheap there
    step = 0
    while slots:
        j = below(k, step, len(slots))
        out.append(slots[j])
        if rest:
            slots[j] = rest.pop()
        else:
            slots[j] = slots[-1]
            slots.pop()
        step += 1
    return out


def block(lane, k, size):
    out = []
    for begin in range(0, len(lane), size):
        piece = lane[begin : begin + size]
        permute(piece, k, begin)
        out += piece
    return out


def global_order(chunk_list, seed, epoch, shuffle, size, lanes, groups, batch):
    """G: every record once."""
    records = [r for c in chunk_list for r in c]
    total = len(records)
    if shuffle == "none":
        return records
    if shuffle == "full":
        return [records[i] for i in full_permutation(total, seed, epoch)]

    # 1. the chunks, permuted
    numbers = list(range(len(chunk_list)))
    permute(numbers, key("chunks", seed, epoch, 0), 0)
    s = [r for c in numbers for r in chunk_list[c]]

    # 2. a buffer that holds everything
    if size >= total:
        lanes = groups = 1
    per_group = lanes // groups
    slots = max(1, -(-size // lanes))

    def turn(group, r):
        return below(key("turn", seed, epoch, group), r, per_group)

    # 3. groups and their lanes
    counts = [0] * groups
    for p in range(total):
        counts[p // batch % groups] += 1
    order_of_group, begin = [], 0
    for group, n in enumerate(counts):
        records = s[begin : begin + n]
        begin += n
        base, extra = n // per_group, n % per_group
        shuffled, at = [], 0
        for m in range(per_group):
            length = base + 1 if (m - turn(group, base)) % per_group < extra else base
            lane = records[at : at + length]
            at += length
            # 4. each lane by itself
            k = key("lane", seed, epoch, group * per_group + m)
            shuffled.append((reservoir if shuffle == "reservoir" else block)(lane, k, slots))
        # 5. round-robin within the group
        interleaved = []
        for q in range(n):
            r = q // per_group
            interleaved.append(shuffled[(q + turn(group, r)) % per_group][r])
        order_of_group.append(interleaved)

    g = []
    for p in range(total):
        group = order_of_group[p // batch % groups]
        g.append(group[p // (batch * groups) * batch + p % batch])
    return g


# Workers, resume, elasticity


def owners(n, workers, batch, deal):
    """Which worker gets each of n positions."""
    if deal == "contiguous":
        result = []
        for w in range(workers):
            result += [w] * (n // workers + (1 if w < n % workers else 0))
        return result
    return [p // batch % workers for p in range(n)]


def resume(g, entry):
    """G′ after the workers of entry took entry["consumed"] records each."""
    consumed = entry["consumed"]
    left = list(consumed)
    remaining = []
    for record, w in zip(g, owners(len(g), len(consumed), entry["batch"], entry.get("deal", "interleaved"))):
        if left[w]:
            left[w] -= 1
        else:
            remaining.append(record)
    if any(left):
        raise ValueError("a worker took more records than it had: %r" % entry)
    return remaining


def deal_out(remaining, g, workers, batch, deal, tail):
    """The records of each worker, after the tail rule."""
    records = list(remaining)
    unit = workers if deal == "contiguous" else workers * batch
    if tail == "drop":
        records = records[: len(records) // unit * unit]
    elif tail == "pad" and records:
        missing = -len(records) % unit
        records += (g * (missing // len(g) + 1))[:missing]
    result = [[] for _ in range(workers)]
    for record, w in zip(records, owners(len(records), workers, batch, deal)):
        result[w].append(record)
    return result


# Split


def split_units(shards, by):
    """The ordinal of the first record of each record's unit.

    shards is a list of lists of booleans: the record is an entry point.
    """
    result = []
    for shard in shards:
        unit = 0
        for ordinal, entry in enumerate(shard):
            if by == "record" or by == "unit" and entry:
                unit = ordinal
            result.append(unit)
    return result


def split_chunks(chunk_list, left):
    """The chunks without the records of other parts; empty ones are none."""
    chunk_list = [[r for r in c if left[r]] for c in chunk_list]
    return [c for c in chunk_list if c]


def in_part(path, ordinal, split_seed, low, high):
    """low and high are strings of decimal fractions; ordinal is the unit's."""
    shard = int.from_bytes(record_id(path, 0)[:8], "little")
    u = draw(key("split", split_seed, 0, 0) ^ shard, ordinal)
    return floor64(low) <= u < floor64(high)


def floor64(fraction):
    whole, _, digits = fraction.partition(".")
    return (int(whole + digits) << 64) // 10 ** len(digits)


# Sample


def phase(path, ordinal, sample_seed, n):
    """Which of n epochs in a row a record is in."""
    shard = int.from_bytes(record_id(path, 0)[:8], "little")
    return draw(key("sample", sample_seed, 0, 0) ^ shard, ordinal) * n >> 64


# Mixture


BLOCK = 256  # positions that are shared out together


def mixture_counts(weights, n):
    """How many of the first n positions are each source's."""
    left, rest, counts = n, sum(weights), [0] * len(weights)
    for m in sorted(range(len(weights)), key=lambda m: -weights[m]):  # equal ones stay as given
        after = left * (rest - weights[m]) // rest
        counts[m] = left - after
        left, rest = after, rest - weights[m]
    return counts


def mixture_block(weights, seed, b):
    """(source, index in it) of the positions of block b."""
    before, behind = mixture_counts(weights, BLOCK * b), mixture_counts(weights, BLOCK * (b + 1))
    sources = [m for m in range(len(weights)) for _ in range(behind[m] - before[m])]
    permute(sources, key("mix", seed, 0, 0), BLOCK * b)
    return [(m, before[m] + sources[:r].count(m)) for r, m in enumerate(sources)]


def mixture_positions(weights, seed, begin, end):
    """(source, index in it) of the positions begin … end-1 of the endless sequence."""
    return [p for b in range(begin // BLOCK, -(-end // BLOCK))
            for p in mixture_block(weights, seed, b)[max(begin - BLOCK * b, 0) : max(end - BLOCK * b, 0)]]


def source_seed(seed, m):
    return key("source", seed, 0, m)


def mixture_first(weights, records):
    """The length "first"; 0 is refused."""
    return last_that(lambda n: all(c <= t for c, t in zip(mixture_counts(weights, n), records))) // BLOCK * BLOCK


def mixture_all(weights, records):
    """The length "all"."""
    enough = lambda n: all(c >= t for c, t in zip(mixture_counts(weights, n), records))
    n = 0 if enough(0) else last_that(lambda n: not enough(n)) + 1
    return -(-n // BLOCK) * BLOCK


def last_that(holds):
    """The largest n that something holds for that holds up to there, from 0 on."""
    n, step = 0, 1
    while holds(n + step):
        n, step = n + step, step * 2
    while step:
        if holds(n + step):
            n += step
        step //= 2
    return n


def weights_by_bytes(weights, records, sizes):
    """What weights become that are shares of bytes; sizes are those of all records together."""
    by_bytes = [w * t * 2**20 // b for w, t, b in zip(weights, records, sizes)]
    return [w // math.gcd(*by_bytes) for w in by_bytes]


def mixture_fingerprint(format_words, sources):
    """sources: (weight, records, fingerprint, name), in the order given."""
    h = hashlib.sha256(b"lsiofs/1 mixture %s\n" % format_words.encode())
    for source in sources:
        h.update(("%d %d %s %s\n" % source).encode())
    return h.hexdigest()


# Identity


def record_id(path, ordinal):
    digest = hashlib.sha256(b"lsiofs/1 shard " + path_bytes(path)).digest()
    return digest[:8] + ordinal.to_bytes(8, "big")


def fingerprint(format_words, shards):
    """shards: (records, decoded bytes, entry points, path), in dataset order."""
    h = hashlib.sha256(b"lsiofs/1 dataset %s\n" % format_words.encode())
    for records, size, entries, path in shards:
        h.update(b"%d %d %d %s\n" % (records, size, entries, path_bytes(path)))
    return h.hexdigest()


def path_bytes(path):
    return path.encode("utf-8", "surrogateescape")
