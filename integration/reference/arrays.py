"""The npy format of RECORDS.md, with headers parsed by Python itself."""

import ast
import re

from decode import Corrupt, Refused

# What a header may consist of: no comments, no arithmetic, no other numbers.
TOKEN = re.compile(r"""'(?:[^'\\\x00-\x1f]|\\.)*'|"(?:[^"\\\x00-\x1f]|\\.)*"|\b(?:0|[1-9][0-9]*|True|False)\b|[][(){}:,]|[ \t\r\n]+""")


class Kind:
    """What all arrays of a dataset must have in common, in the spelling of the first one."""

    def __init__(self, text, descr, shape):
        self.text, self.descr, self.shape = text, descr, shape

    def __eq__(self, other):
        return (self.descr, self.shape) == (other.descr, other.shape)


def parse(data, damage):
    """Yields (begin, end, kind) of each row."""
    at, kind, rows, row = header(data, damage)
    for _ in range(rows):
        if at + row > len(data):
            raise damage or Corrupt("the file ends in the row at %d" % at)
        yield at, at + row, kind
        at += row
    if damage:
        raise damage
    if at != len(data):
        raise Corrupt("bytes behind the data at %d" % at)


def header(data, damage):
    def have(n):
        if len(data) < n:
            raise damage or Corrupt("the file ends in the header")

    if len(data) >= 6 or not damage:
        if data[:6] != b"\x93NUMPY"[: len(data)]:
            raise Refused("no npy header")
    have(8)
    if data[6:8] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise Refused("npy version %d.%d" % (data[6], data[7]))
    lead = 10 if data[6] == 1 else 12
    have(lead)
    end = lead + int.from_bytes(data[8:lead], "little")
    if end > 1 << 20:
        raise Refused("a header of %d bytes" % (end - lead))
    have(end)
    text, d, shape = dictionary(data[lead:end], data[6])
    item = size(d["descr"])
    if d["fortran_order"]:
        raise Refused("Fortran order")
    if not shape:
        raise Refused("no dimension")
    row = product([item, *shape[1:]])
    if row >= 1 << 63 or row == 0 and shape[0] > 0:
        raise Refused("rows of %d bytes" % row)
    kind = Kind(text, d["descr"], shape[1:])
    try:
        prologue(kind, 2**64 - 1)
    except (UnicodeEncodeError, OverflowError):
        raise Refused("no header of version 1.0 can say %s" % text)
    return end, kind, shape[0], row


def dictionary(raw, version):
    """Returns the value of descr as written, the dictionary, and its shape."""
    try:
        text = raw.decode("utf-8" if version == 3 else "latin-1")
        if version < 3:
            text = re.sub(r"\b(\d+)L\b", r"\1", text)
        if not text.startswith("{") or TOKEN.sub("", text):
            raise SyntaxError
        node = ast.parse(text.rstrip(), mode="eval").body
        d = ast.literal_eval(node)
        keys = [ast.literal_eval(k) for k in node.keys]
    except (SyntaxError, ValueError, AttributeError, RecursionError, TypeError):
        raise Corrupt("the header %.100r" % raw)
    if sorted(keys) != ["descr", "fortran_order", "shape"] or type(d["fortran_order"]) is not bool or type(d["shape"]) is not tuple:
        raise Corrupt("the header %.100r" % raw)
    if any(type(n) is not int or n >= 1 << 63 for n in d["shape"]):
        raise Corrupt("the shape %r" % (d["shape"],))
    return ast.get_source_segment(text.rstrip(), node.values[keys.index("descr")]), d, d["shape"]


def size(descr):
    """Returns the size of an element in bytes."""
    if isinstance(descr, str):
        return scalar(descr)
    if not isinstance(descr, list):
        raise Refused("dtype %r" % (descr,))
    total, seen = 0, []
    for field in descr:
        if not isinstance(field, tuple) or len(field) not in (2, 3):
            raise Refused("field %r" % (field,))
        names = field[0] if isinstance(field[0], tuple) and len(field[0]) == 2 else (field[0],)
        shape = field[2] if len(field) == 3 else ()
        shape = shape if isinstance(shape, tuple) else (shape,)
        if not all(isinstance(n, str) for n in names) or not all(type(n) is int for n in shape):
            raise Refused("field %r" % (field,))
        seen += [n for n in names if n]
        if len(set(seen)) < len(seen):
            raise Refused("field %r is there twice" % (field,))
        total += product([size(field[1]), *shape])
    return total


def scalar(text):
    m = re.fullmatch(r"[<>|=]?([a-zA-Z])(0|[1-9][0-9]*)(\[[0-9]*(?:[YMWDhms]|[munpfa]s)\])?", text, re.ASCII)
    if not m or m[3] and m[1] not in "mM":
        raise Refused("dtype %r" % text)
    kind, n = m[1], int(m[2])
    if kind in "SV":
        return n
    if kind == "U":
        return 4 * n
    if n not in {"b": [1], "i": [1, 2, 4, 8], "u": [1, 2, 4, 8], "f": [2, 4, 8, 12, 16], "c": [8, 16, 24, 32], "m": [8], "M": [8]}.get(kind, []):
        raise Refused("dtype %r" % text)
    return n


def product(numbers):
    p = 1
    for n in numbers:
        p *= n
    return p


def prologue(kind, rows):
    shape = "(%s)" % ", ".join(str(n) for n in (rows,) + kind.shape) if kind.shape else "(%d,)" % rows
    text = ("{'descr': %s, 'fortran_order': False, 'shape': %s, }" % (kind.text, shape)).encode("latin-1")
    while (10 + len(text) + 1) % 64:
        text += b" "
    return b"\x93NUMPY\1\0" + (len(text) + 1).to_bytes(2, "little") + text + b"\n"


def together(fields):
    """Returns the kind of records of several arrays, given (name, kind, padding bytes) of each."""
    words, descr = [], []
    for name, kind, padding in fields:
        shape = ", %r" % (kind.shape,) if kind.shape else ""
        words.append("('%s', %s%s)" % (name, kind.text, shape))
        descr.append((name, kind.descr, kind.shape))
        if padding:
            words.append("('', '|V%d')" % padding)
    return Kind("[%s]" % ", ".join(words), descr, ())
