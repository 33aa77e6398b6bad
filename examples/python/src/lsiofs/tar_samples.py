"""WebDataset samples: a tar stream's records as dicts.

A record of a tar stream is the members that are one sample: neighbours whose paths are equal
up to the first dot of the base name, the *key*. What comes behind that dot is the extension.
Members that are no regular files, or have no key, are none of the sample's.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Iterator

Sample = dict[str, Any]  # "__key__": str; else bytes

# A path with a key and an extension; paths below __x__ have none.
_PATH = rb"(?!__[^/]*__(?:/|\0))((?:[^\0]*/)?[^\0./]+)\.([^\0/]*)\0"
_named = re.compile(_PATH).match

# The usual header, whole: such a path of less than 100 bytes (whose directories have no dots,
# which is much faster to match), a size in octal, a regular file, and no prefix.
_usual = re.compile(
    rb"(?s)(?=(?!__[^/]*__(?:/|\0))((?:\./)?(?:[^\0./]+/)*[^\0./]+)\.([^\0/]*)\0).{99}\0.{24}([0-7]{11})[\0 ].{20}[0\0].{188}\0"
).match

_header = struct.Struct("100s24x12s20xc100x8s80x155s12x").unpack_from  # name, size, type, magic and version, prefix

_WITHOUT_DATA = b"123456"  # types: links, devices, directories, pipes, whatever their size says


def tar_sample(record: bytes | memoryview) -> Sample:
    """The members of a sample by extension, as bytes, and its ``"__key__"``, as str."""
    return next(samples(record, [len(record)]))


def samples(data: bytes | memoryview, ends: list[int]) -> Iterator[Sample]:
    """The samples that follow one another in `data`; `ends` are the offsets of their ends.

    It is one loop, since this is where a program that reads tar streams spends its time.
    """
    usual, at = _usual, 0
    # What a window was read into: bytes are cut out of bytes fastest.
    whole = _whole(data)
    for end in ends:
        sample: Sample = {}
        while at < end:
            member = usual(whole, at)
            if member is None:
                at = _parse_unusual(whole, at, end, sample)
                continue
            if sample:  # with the key, which all members have
                extension, octal = member.group(2, 3)
            else:
                key, extension, octal = member.group(1, 2, 3)
                sample["__key__"] = _text(key)
            begin, size = at + 512, int(octal, 8)
            try:
                sample[extension.decode()] = whole[begin : begin + size]
            except UnicodeDecodeError:
                sample[_text(extension)] = whole[begin : begin + size]
            at = begin + ((size + 511) & -512)
        yield sample


def _whole(data: bytes | memoryview) -> bytes:
    if isinstance(data, memoryview):
        behind = data.obj
        return behind if isinstance(behind, bytes) and len(behind) == len(data) else bytes(data)
    return data


def _parse_unusual(data: bytes, at: int, end: int, sample: Sample) -> int:
    """Parses one member of any kind, with the extension headers before it, and returns the offset after it."""
    told: dict[bytes, bytes] = {}  # by extension headers, about the member that follows
    while at < end:
        name, size_field, kind, magic, prefix = _header(data, at)
        at += 512
        size = int(told[b"size"]) if b"size" in told else _number(size_field)
        content = data[at : at + size]
        if kind not in _WITHOUT_DATA:
            at += (size + 511) & -512
        if kind in b"xX":  # PAX
            told.update(_pax(content))
        elif kind == b"L":  # GNU: a long path
            told[b"path"] = _string(content)
        elif kind == b"K":  # GNU: a long target of a link
            pass
        else:
            path = told.get(b"path")
            if path is None:
                path = _string(name)
                if prefix[0] and magic == b"ustar\x0000":
                    path = _string(prefix) + b"/" + path
            named = _named(path + b"\0")
            if named and kind in b"0\x007":
                sample["__key__"] = _text(named[1])
                sample[_text(named[2])] = content
            break
    return at


def _number(field: bytes) -> int:
    """A size: octal, or, with the first bit set, in base 256."""
    if field[0] & 128:
        return int.from_bytes(field[1:], "big")
    return int(field.strip(b"\0 ") or b"0", 8)


def _pax(text: bytes) -> dict[bytes, bytes]:
    """The lines of a PAX header, "length key=value"; values may have line ends in them."""
    found = {}
    while text.strip(b"\0"):
        space = text.index(b" ")
        length = int(text[:space])
        key, _, value = text[space + 1 : length - 1].partition(b"=")
        found[key] = value
        text = text[length:]
    return found


def _string(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _text(name: bytes) -> str:
    # Bytes that are no UTF-8 stay what they are, as in names of files.
    return name.decode("utf-8", "surrogateescape")
