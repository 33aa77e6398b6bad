"""Whole-shard compression of RECORDS.md: bytes of a file to decoded bytes.

gzip is decoded by Python's zlib, member by member; zstd and lz4 by the programs `zstd -dc` and
`lz4 -dc`, frame by frame. Frames are found by following the sizes of their blocks.
"""

import subprocess
import zlib


class Corrupt(Exception):
    """Damage: everything from here on is lost."""


class Refused(Exception):
    """Refused, whatever the policy for damage."""


def split_extension(name):
    """("a.tar.gz") -> ("a.tar", "gz"): the name without its codec's extension, and the codec."""
    if name.endswith(".tgz"):
        return name[:-4] + ".tar", "gz"
    for ending, codec in ((".gz", "gz"), (".zst", "zst"), (".lz4", "lz4")):
        if name.endswith(ending) and name != ending:
            return name[: -len(ending)], codec
    return name, ""


def decode(raw, codec):
    """Returns (decoded bytes, offsets of the members in them, damage or None)."""
    if codec == "":
        return raw, [0], None
    out, starts, damage = bytearray(), [], None
    members = gzip_members(raw) if codec == "gz" else frames(raw, *FRAMES[codec])
    try:
        for member in members:
            starts.append(len(out))
            out += member
    except Corrupt as e:
        damage = e
    return bytes(out), starts, damage


def gzip_members(raw):
    at = 0
    while at < len(raw):
        if at and raw[at:].strip(b"\0") == b"":
            return
        d = zlib.decompressobj(wbits=31)
        try:
            data = d.decompress(raw[at:])
        except zlib.error as e:
            raise Corrupt("gzip member at byte %d: %s" % (at, e))
        if not d.eof:
            raise Corrupt("gzip member at byte %d ends early" % at)
        yield data
        at = len(raw) - len(d.unused_data)


def frames(raw, magic_of_frames, frame_end, program):
    at = 0
    while at < len(raw):
        magic = int.from_bytes(raw[at : at + 4], "little")
        if magic & 0xFFFFFFF0 == 0x184D2A50:  # skippable
            size = int.from_bytes(need(raw, at + 4, 4), "little")
            need(raw, at + 8, size)
            at += 8 + size
            continue
        if magic != magic_of_frames:
            raise Corrupt("no %s frame at byte %d" % (program, at))
        end = frame_end(raw, at)
        run = subprocess.run([program, "-dcq"], input=raw[at:end], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if run.returncode != 0:
            raise Corrupt("%s frame at byte %d: %s" % (program, at, run.stderr.decode(errors="replace")))
        yield run.stdout
        at = end


def zstd_frame_end(raw, begin):
    """RFC 8878, section 3.1.1."""
    descriptor = need(raw, begin + 4, 1)[0]
    single = descriptor >> 5 & 1
    content_size = [single, 2, 4, 8][descriptor >> 6]
    dictionary = [0, 1, 2, 4][descriptor & 3]
    at = begin + 5 + (0 if single else 1) + dictionary + content_size
    last = False
    while not last:
        header = int.from_bytes(need(raw, at, 3), "little")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        size = 1 if kind == 1 else size  # a block of one byte, repeated
        need(raw, at + 3, size)
        at += 3 + size
    if descriptor & 4:  # checksum
        need(raw, at, 4)
        at += 4
    return at


def lz4_frame_end(raw, begin):
    """The LZ4 Frame Format, version 1.6.4."""
    flags = need(raw, begin + 4, 1)[0]
    at = begin + 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    while True:
        size = int.from_bytes(need(raw, at, 4), "little") & 0x7FFFFFFF
        at += 4
        if size == 0:  # the end mark
            at += 4 if flags & 4 else 0
            need(raw, begin, at - begin)
            return at
        at += size + (4 if flags & 16 else 0)


FRAMES = {"zst": (0xFD2FB528, zstd_frame_end, "zstd"), "lz4": (0x184D2204, lz4_frame_end, "lz4")}


def need(raw, at, n):
    if at + n > len(raw):
        raise Corrupt("a frame ends early, at byte %d" % at)
    return raw[at : at + n]
