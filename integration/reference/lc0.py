"""The lc0 format of RECORDS.md: frames of games, in single files or in tars."""

import math
import struct

import tarfiles
from decode import Corrupt, Refused, decode

SIZES = {3: 8276, 4: 8292, 5: 8308, 6: 8356, 7: 8396}
MOVES = 1858
# How many values after the counters have to be finite.
FINITE = {3: 0, 4: 4, 5: 7, 6: 12, 7: 12}


def takes(path):
    return path.endswith((".gz", ".tar"))


def is_shard(path, raw):
    """Judges by the content: a game in a .gz, or a tar whose first .gz is a game."""
    if path.endswith(".tar"):
        try:
            for game in tar_games(raw):
                return bool(frames(game))
        except (Corrupt, Refused):
            pass
        return False
    data, _, _ = decode(raw, "gz")
    return len(data) >= 4 and len(data) >= SIZES.get(int.from_bytes(data[:4], "little"), len(data) + 1)


def tar_games(raw):
    """Yields the bytes of each game's file; raises Corrupt if the archive is damaged."""
    for m in tarfiles.members(raw, None):
        if m.regular and m.path.endswith(b".gz") and not m.path.endswith(b"/.gz") and m.path != b".gz":
            yield raw[m.header + 512 : m.header + 512 + m.size]


def frames(packed):
    """Returns the frames of a game; raises Corrupt."""
    data, _, damage = decode(packed, "gz")
    if damage:
        raise damage
    size = SIZES.get(int.from_bytes(data[:4], "little"))
    if not data or size is None or len(data) % size:
        raise Corrupt("no game of whole frames")
    return [data[at : at + size] for at in range(0, len(data), size)]


def can_be(frame, version):
    if int.from_bytes(frame[:4], "little") != version:
        return False
    at = 4 if version < 5 else 8
    policy = struct.unpack_from("<%df" % MOVES, frame, at)
    if not all(map(math.isfinite, policy)) or not any(p > 0 or p == 0 and version > 3 for p in policy):
        return False
    at += 4 * MOVES + 8 * 104 + 8
    values = struct.unpack_from("<%df" % FINITE[version], frame, at)
    if not all(map(math.isfinite, values)):
        return False
    if version < 6:
        return -1 <= struct.unpack_from("b", frame, at - 1)[0] <= 1
    return math.isfinite(struct.unpack_from("<f", frame, at + 68)[0]) and all(-1 <= v <= 1 for v in values[7:9])


def load(path, raw, options, make):
    """Returns (records, decoded bytes, versions seen); make(data, offset, entry) makes a record."""
    skip = options.get("on-corrupt", "fail") == "skip"
    records, at, versions = [], 0, set()
    games = tar_games(raw) if path.endswith(".tar") else iter([raw])
    while True:
        try:
            packed = next(games, None)
            if packed is None:
                break
        except Corrupt:
            if not skip:
                raise
            break
        try:
            game = frames(packed)
        except Corrupt:
            if not skip:
                raise
            continue
        entry, version = True, int.from_bytes(game[0][:4], "little")
        for frame in game:
            if not options.get("lc0-check") or can_be(frame, version):
                records.append(make(frame, at, entry))
                versions.add(version)
                entry = False
            elif not skip:
                raise Corrupt("a frame that can't be")
            at += len(frame)
    if len(versions) > 1:
        raise Refused("games of two versions")
    return records, at, versions
