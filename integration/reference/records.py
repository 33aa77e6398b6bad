"""RECORDS.md: which files are shards, and what their records are."""

import json
import os
import re

import arrays
import lc0
import tarfiles
from decode import Corrupt, Refused, decode, split_extension
from listing import walk

EXTENSIONS = {
    "tar": (".tar",),
    "jsonl": (".jsonl", ".ndjson"),
    "lines": (".txt",),
    "tfrecord": (".tfrecord", ".tfrecords", ".tfrec"),
    "npy": (".npy",),
    "fixed": (),
    "files": (),
}


class Record:
    """A record: its bytes, its place, what the equal-key rule needs, and its array's kind."""

    def __init__(self, data, begin, key=None, members=None, kind=None):
        self.data, self.begin, self.key, self.members, self.kind = data, begin, key, members, kind
        self.entry = False
        self.shard = self.ordinal = None


class Shard:
    def __init__(self, path, records, decoded_bytes):
        self.path, self.records, self.decoded_bytes = path, records, decoded_bytes


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
    for directory, _, files in walk(root):
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
    return root, [re.compile(to_regex(p)) for p in expand("/".join(parts[plain:]))]


def expand(pattern):
    """Expands {000..146} and {a,b} to a pattern for each alternative."""
    m = re.search(r"\{([^{}]*)\}", pattern)
    if not m:
        return [pattern]
    numbers = re.fullmatch(r"(\d+)\.\.(\d+)", m[1])
    if numbers:
        low, high = numbers.groups()
        choices = ["%0*d" % (len(low), i) for i in range(int(low), int(high) + 1)]
    else:
        choices = m[1].split(",")
    return [p for c in choices for p in expand(pattern[: m.start()] + c + pattern[m.end() :])]


def to_regex(pattern):
    out = ""
    for token in re.findall(r"\*\*/|\*\*|\*|\?|.", pattern):
        out += {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(token, re.escape(token))
    return out


def choose(root, paths, wanted):
    """Returns (format, the paths that are shards)."""
    if wanted in ("fixed", "lines"):
        return wanted, paths
    if wanted == "lc0":
        return wanted, [p for p in paths if lc0.takes(p)] or paths
    if wanted != "auto":
        own = [p for p in paths if split_extension(p)[0].endswith(EXTENSIONS[wanted])]
        return wanted, own or paths
    formats = {p: guess(root, p) for p in paths}
    if any(f not in (None, "lines") for f in formats.values()):
        formats = {p: f for p, f in formats.items() if f != "lines"}
    names = {f for f in formats.values() if f}
    if len(names) != 1:
        raise Refused("formats found: %s" % sorted(names))
    return names.pop(), [p for p in paths if formats.get(p)]


def guess(root, path):
    name, codec = split_extension(path)
    with open(os.path.join(root, path), "rb") as f:
        raw = f.read()
    if path.endswith(".tar") and lc0.is_shard(path, raw):
        return "lc0"
    for fmt, endings in EXTENSIONS.items():
        if endings and name.endswith(endings):
            return fmt
    data, _, _ = decode(raw, codec)
    if data[257:262] == b"ustar":
        try:
            tarfiles.check_sum(data[:512], 0)
            return "tar"
        except Corrupt:
            pass
    if len(data) >= 12 and masked_crc(data[:8]) == int.from_bytes(data[8:12], "little"):
        return "tfrecord"
    try:
        if isinstance(json.loads(data.split(b"\n")[0].removeprefix(b"\xef\xbb\xbf")), dict):
            return "jsonl"
    except ValueError:
        pass
    return "lc0" if path.endswith(".gz") and lc0.is_shard(path, raw) else None


# What the records are


def load(dataset, options):
    """Returns (format, shards). Raises Corrupt or Refused if lsiofs has to refuse."""
    if options.get("format") == "zarr":
        return "zarr", load_cubes(dataset, options)
    if options.get("format") == "files":
        return "files", load_directories(dataset)
    if options.get("array"):
        return "npy", load_together(dataset, options["array"])
    root, paths = find_files(dataset)
    fmt, paths = choose(root, paths, options.get("format", "auto"))
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
    if not any(s.records for s in shards):
        raise Refused("a dataset without a record")
    kinds = [s.records[0].kind for s in shards if s.records]
    if any(k != kinds[0] for k in kinds):
        raise Refused("shards of two kinds")
    return fmt, shards


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
    def make(data, begin, entry):
        record = Record(data, begin)
        record.entry = entry
        return record

    if not raw and options.get("on-corrupt", "fail") != "skip":
        raise Corrupt("%s: a file of 0 bytes" % path)
    records, decoded_bytes, versions = lc0.load(path, raw, options, make)
    for ordinal, record in enumerate(records):
        record.shard, record.ordinal = path, ordinal
    return Shard(path, records, decoded_bytes), versions


def load_shard(path, raw, fmt, options):
    skip = options.get("on-corrupt", "fail") == "skip"
    _, named = split_extension(path)
    codec = shown_codec(fmt, raw, named)
    data, starts, damage = decode(raw, codec)
    refuse_begin(path, fmt, data, damage)
    if damage and not skip:
        raise damage
    if not raw and not skip and (named or fmt not in MAY_BE_EMPTY):
        raise Corrupt("%s: a file of 0 bytes" % path)
    records = []
    try:
        for record in PARSERS[fmt](data, damage, options):
            records.append(record)
    except Corrupt:
        if not skip:
            raise
    begins = set(starts)
    for ordinal, record in enumerate(records):
        record.shard, record.ordinal = path, ordinal
        record.entry = codec == "" or ordinal == 0 or record.begin in begins
    return Shard(path, records, len(data))


MAY_BE_EMPTY = ("lines", "jsonl", "tfrecord", "fixed")
TOLD_BY_BYTES = ("tar", "jsonl", "lines", "tfrecord", "npy")
CODECS = ((b"\x1f\x8b\x08", "gz"), (b"\x28\xb5\x2f\xfd", "zst"), (b"\x04\x22\x4d\x18", "lz4"))
FOREIGN = [magic for magic, _ in CODECS] + [
    b"\x02\x21\x4c\x18", b"\xfd7zXZ\0", b"BZh", b"PK\x03\x04", b"PK\x05\x06", b"7z\xbc\xaf\x27\x1c", b"PAR1", b"ARROW1\0\0",
    b"\x89HDF\r\n\x1a\n", b"\0\0\xfe\xff", b"\xff\xfe", b"\xfe\xff", b"version https://git-lfs",
]  # fmt: skip


def shown_codec(fmt, raw, named):
    """Returns the codec that a file's first bytes show, whatever its name."""
    if fmt not in TOLD_BY_BYTES or not raw:
        return named
    if fmt == "tfrecord" and len(raw) >= 12 and masked_crc(raw[:8]) == int.from_bytes(raw[8:12], "little"):
        return ""
    if raw[1:4] == b"\x2a\x4d\x18" and raw[0] & 0xF0 == 0x50:  # a skippable frame, of zstd or lz4
        return named if named in ("zst", "lz4") else "zst"
    for magic, codec in CODECS:
        if raw.startswith(magic) or codec == named and len(raw) < 4 and magic.startswith(raw):
            return codec
    return ""


def refuse_begin(path, fmt, data, damage):
    """Refuses a shard whose decoded bytes can't be the beginning of a shard of its format."""
    if fmt not in TOLD_BY_BYTES:
        return
    text = data.removeprefix(b"\xef\xbb\xbf")
    if data.startswith(tuple(FOREIGN)) or text.lstrip(b" \t\r\n").lower().startswith((b"<!doctype html", b"<html")):
        raise Refused("%s begins like a file of another kind" % path)
    if fmt != "jsonl":
        return
    lines = text.split(b"\n")
    if damage:
        lines.pop()  # it is incomplete
    first = next((line for line in (line.strip(b" \t\r") for line in lines) if line), None)
    try:
        if first is not None:
            json.loads(first.decode("latin-1"), parse_int=float)
    except ValueError:
        raise Refused("the first line of %s is no JSON value" % path)


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
            rows = [data[begin:end] for begin, end, _ in arrays.parse(data, None)]
            _, kind, _, size = arrays.header(data, None)
            padding = -size % 64
            columns.append([row + bytes(padding) for row in rows])
            fields.append((name, kind, padding))
        if len({len(c) for c in columns}) > 1:
            raise Refused("as many rows in each array of %s" % paths[0])
        kind = arrays.together(fields)
        first = first or kind
        if kind != first:
            raise Refused("shards of two kinds")
        records = [Record(b"".join(row), 0, kind=first) for row in zip(*columns)]
        for ordinal, record in enumerate(records):
            record.shard, record.ordinal, record.entry = paths[0], ordinal, True
        shards.append(Shard(paths[0], records, sum(len(r.data) for r in records)))
    if not any(s.records for s in shards):
        raise Refused("a dataset without a record")
    return shards


def load_directories(root):
    """Returns the shards of format files: directories that hold regular files."""
    shards = []
    for directory, _, files in walk(os.fsencode(root)):
        groups = {}
        for name in sorted(files):
            full = os.path.join(directory, name)
            if not os.path.isfile(full):
                continue
            with open(full, "rb") as f:
                path = os.path.relpath(full, os.fsencode(root))
                key = path[: len(path) - len(name)] + name.split(b".")[0] if b"." in name else None
                groups.setdefault(key or (name,), []).append((path, f.read()))
        shard = os.fsdecode(os.path.relpath(directory, os.fsencode(root)))
        records = []
        for key, members in groups.items():
            data = b"".join(tarfiles.file(path, contents) for path, contents in members)
            record = Record(data, 0, key if isinstance(key, bytes) else None, [m for m in tarfiles.members(data, None) if m.key is not None])
            record.shard, record.ordinal, record.entry = shard, len(records), True
            records.append(record)
        if records:
            shards.append(Shard(shard, records, sum(len(r.data) for r in records)))
    if not shards:
        raise Refused("a dataset without a record")
    return sorted(shards, key=lambda s: os.fsencode(s.path))


def parse_tar(data, damage, _):
    for begin, end, key, members in tarfiles.parse(data, damage):
        yield Record(data[begin:end], begin, key, members)


def parse_lines(data, damage, _):
    at = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    while at < len(data):
        newline = data.find(b"\n", at)
        if newline < 0 and damage:
            raise damage
        end = newline + 1 if newline >= 0 else len(data)
        line = data[at:end]
        if line.strip(b" \t\r\n"):
            yield Record(line if newline >= 0 else line + b"\n", at)
        at = end
    if damage:
        raise damage


def parse_tfrecord(data, damage, _):
    at = 0
    while at < len(data):
        head = data[at : at + 12]
        if len(head) < 12:
            raise damage or Corrupt("the file ends in the header of the record at %d" % at)
        if masked_crc(head[:8]) != int.from_bytes(head[8:], "little"):
            raise Corrupt("length CRC of the record at %d" % at)
        end = at + 12 + int.from_bytes(head[:8], "little") + 4
        if end > len(data):
            raise damage or Corrupt("the file ends in the record at %d" % at)
        yield Record(data[at:end], at)
        at = end
    if damage:
        raise damage


def parse_fixed(data, damage, options):
    n = options["record-bytes"]
    stride = options.get("stride-bytes") or n
    at = options.get("header-bytes", 0)
    while at + n <= len(data):
        yield Record(data[at : at + n], at)
        at += stride
    if damage:
        raise damage
    if stride == n and at != len(data) and options.get("remainder", "corrupt") != "drop":
        raise Corrupt("a remainder at %d" % at)


def parse_npy(data, damage, _):
    for begin, end, kind in arrays.parse(data, damage):
        yield Record(data[begin:end], begin, kind=kind)


PARSERS = {
    "tar": parse_tar,
    "jsonl": parse_lines,
    "lines": parse_lines,
    "tfrecord": parse_tfrecord,
    "npy": parse_npy,
    "fixed": parse_fixed,
}


def masked_crc(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc = CRC_TABLE[(crc ^ b) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


CRC_TABLE = crc_table()
