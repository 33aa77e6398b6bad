"""Reads datasets: which files are shards, and their records, by the programs of the pages.

formats.py has these programs. This module reads the files, and applies --on-corrupt.
"""

import functools
import os
import re

import formats
from formats import Corrupt, Record, Refused


class Shard:
    def __init__(self, path, records, decoded_bytes):
        self.path, self.records, self.decoded_bytes = path, records, decoded_bytes
        for ordinal, record in enumerate(records):
            record.shard, record.ordinal = path, ordinal


# Which files are shards


def find_files(dataset):
    """Returns (root, paths relative to it), in dataset order."""
    if os.path.isdir(dataset):
        root, wanted = dataset, None
    elif os.path.exists(dataset):
        return os.path.dirname(dataset) or ".", [os.path.basename(dataset)]
    else:
        root, wanted = split_pattern(dataset)
    found = []
    for directory, _, files in formats.walk(root):
        for name in files:
            full = os.path.join(directory, name)
            if os.path.isfile(full):
                path = os.path.relpath(full, root)
                if wanted is None or any(w.fullmatch(path) for w in wanted):
                    found.append(path)
    return root, sorted(found, key=os.fsencode)


def split_pattern(dataset):
    parts = dataset.split("/")
    plain = next(i for i, p in enumerate(parts) if re.search(r"[*?\[{]", p))
    root = "/".join(parts[:plain]) or ("/" if plain else ".")
    return root, [re.compile(to_regex(p)) for p in formats.expand("/".join(parts[plain:]))]


def to_regex(pattern):
    out = ""
    for token in re.findall(r"\*\*/|\*\*|\*|\?|.", pattern):
        out += {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(token, re.escape(token))
    return out


def choose(root, paths, wanted):
    """Returns (format, the paths that are shards)."""
    if wanted == "auto":
        formats.first_of = lambda files: next((p for p in files if os.path.getsize(os.path.join(root, p))), files[0])
        return formats.choose(paths, functools.cache(lambda path: content_of(root, path)))
    if wanted == "lc0":
        own = [p for p in paths if p.endswith(".tar") or p.endswith(".gz") and not formats.parse_name(p)[0]]
    else:
        own = [p for p in paths if formats.parse_name(p)[0] == wanted]
    return wanted, own or paths


def content_of(root, path):
    """Returns the format that the content of a file shows, None for none."""
    with open(os.path.join(root, path), "rb") as f:
        raw = f.read()
    if path.endswith(".tar"):
        return "lc0" if shows_games(path, raw) else None
    if path.endswith(".gz") and raw[:2] == b"\x1f\x8b" and shows_games(path, raw):
        return "lc0"
    data, _, _ = formats.decode(raw, "" if formats.is_frame(raw) else formats.codec_of("lines", path, raw))
    if data[257:262] == b"ustar":
        try:
            formats.check_sum(data[:512], 0)
            return "tar"
        except Corrupt:
            pass
    if formats.is_frame(data):
        return "tfrecord"
    first = data.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    return "jsonl" if first[:1] == b"{" and formats.begins_with_json(first, None) else None


def shows_games(path, raw):
    try:
        for _, game in zip(range(16), formats.games_of(path, raw)):
            data, _, _ = formats.decode(game, "gzip")
            size = formats.FRAME_BYTES.get(int.from_bytes(data[:4], "little"), 1 << 30)
            if len(data) >= size and all(data[at : at + 4] == data[:4] for at in range(0, len(data) - 3, size)):
                return True
    except (Corrupt, Refused):
        pass
    return False


def refuse_twice(root, paths):
    """Refuses two names of one file."""
    seen = {}
    for path in paths:
        found = os.stat(os.path.join(root, path))
        first = seen.setdefault((found.st_dev, found.st_ino), path)
        if first != path:
            raise Refused("one file under two names: %s and %s" % (first, path))


# What the records are


def load(dataset, options):
    """Returns (format, shards). Raises Corrupt or Refused if lsiofs has to refuse."""
    if options.get("format") == "zarr":
        return "zarr", load_cubes(dataset, options)
    if options.get("format") == "files":
        shards = [Shard(os.fsdecode(path), records, sum(len(r.data) for r in records)) for path, records in formats.file_records(dataset)]
        return "files", at_least_one(shards)
    if options.get("array"):
        return "npy", at_least_one(load_together(dataset, options["array"]))
    root, paths = find_files(dataset)
    fmt, paths = choose(root, paths, options.get("format", "auto"))
    refuse_twice(root, paths)
    shards, versions = [], set()
    for path in paths:
        with open(os.path.join(root, path), "rb") as f:
            raw = f.read()
        if fmt == "lc0":
            shard, seen = load_games(path, raw, options)
            versions |= seen
        else:
            shard = load_shard(path, raw, fmt, options)
        shards.append(shard)
    if len(versions) > 1:
        raise Refused("shards of two versions")
    kinds = [s.records[0].kind for s in at_least_one(shards) if s.records]
    if any(k != kinds[0] for k in kinds):
        raise Refused("shards of two kinds")
    return fmt, shards


def at_least_one(shards):
    if not any(s.records for s in shards):
        raise Refused("a dataset without a record")
    return shards


def load_cubes(dataset, options):
    import cubes

    shards = []
    for cube in cubes.load(dataset, options):
        shards.append(Shard(cube.path, [cubes.Crop(cube, i) for i in range(cube.total)], cube.total * cube.row_bytes))
        shards[-1].cube = cube
    return shards


def zarr_words(shards):
    import cubes

    return cubes.words([s.cube for s in shards if s.records])


def zarr_table(mine, shards, o):
    import cubes

    return cubes.table(mine, dict(o, cubes=[s.records[0] for s in shards]))


def load_games(path, raw, options):
    skip = options.get("on-corrupt", "fail") == "skip"
    if not raw and not skip:
        raise Corrupt("%s: a file of 0 bytes" % path)
    records, decoded_bytes, versions = formats.frame_records(path, raw, skip, options.get("lc0-check"))
    if len(versions) > 1:
        raise Refused("games of two versions")
    return Shard(path, records, decoded_bytes), versions


def load_shard(path, raw, fmt, options):
    skip = options.get("on-corrupt", "fail") == "skip"
    codec = formats.codec_of(fmt, path, raw)
    data, starts, damage = formats.decode(raw, codec)
    formats.refuse_begin(fmt, data, damage)
    if damage and not skip:
        raise damage
    if not raw and not skip and (formats.parse_name(path)[1] or fmt not in MAY_BE_EMPTY):
        raise Corrupt("%s: a file of 0 bytes" % path)
    records = []
    try:
        for record in parse(fmt, data, damage, options):
            records.append(record)
    except Corrupt:
        if not skip:
            raise
    begins = set(starts)
    for ordinal, record in enumerate(records):
        record.entry = codec == "" or ordinal == 0 or record.begin in begins
    return Shard(path, records, len(data))


MAY_BE_EMPTY = ("lines", "jsonl", "tfrecord", "fixed")


def parse(fmt, data, damage, o):
    if fmt == "fixed":
        drop = o.get("remainder", "corrupt") == "drop"
        return formats.fixed(data, damage, o["record-bytes"], o.get("stride-bytes"), o.get("header-bytes", 0), drop)
    parsers = {
        "tar": formats.samples, "jsonl": formats.lines, "lines": formats.lines,
        "tfrecord": formats.tfrecords, "npy": formats.npy_rows,
    }  # fmt: skip
    return parsers[fmt](data, damage)


def load_together(root, options):
    """Returns the shards of several arrays: the i-th file of each; a record is a row of each."""
    names, files = [], []
    for option in options:
        name, pattern = option.split("=", 1)
        names.append(name)
        files.append(find_files(os.path.join(root, pattern))[1] if re.search(r"[*?\[{]", pattern) else [pattern])
        base = pattern[: re.search(r"[^/]*[*?\[{]|$", pattern).start()]
        files[-1] = [os.path.normpath(os.path.join(base, f)) if base else f for f in files[-1]]
    if len({len(f) for f in files}) > 1:
        raise Refused("as many files of each array")
    shards, first = [], None
    for paths in zip(*files):
        columns, fields = [], []
        for name, path in zip(names, paths):
            with open(os.path.join(root, path), "rb") as f:
                data = f.read()
            _, kind, _, size = formats.read_header(data, None)
            padding = -size % 64
            columns.append([row.data + bytes(padding) for row in formats.npy_rows(data, None)])
            fields.append((name, kind, padding))
        if len({len(c) for c in columns}) > 1:
            raise Refused("as many rows in each array of %s" % paths[0])
        kind = formats.arrays_together(fields)
        first = first or kind
        if kind != first:
            raise Refused("shards of two kinds")
        records = [Record(b"".join(row), 0, kind=first) for row in zip(*columns)]
        for record in records:
            record.entry = True
        shards.append(Shard(paths[0], records, sum(len(r.data) for r in records)))
    return shards
