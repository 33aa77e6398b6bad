"""The tar format of RECORDS.md, and the equal-key rule of pipeline/order/STREAMS.md.

A record is stored as the list of its members, because the rule needs their headers:
[(begin, header, end, own PAX header, own long name header), …], all offsets in the record.
"""

import re

from decode import Corrupt, Refused

BLOCK = 512
EPILOGUE = bytes(1024)


class Member:
    """One member of an archive: where it begins, its header blocks, where it ends."""

    def __init__(self):
        self.begin = None  # the first header that belongs to it
        self.pax = None  # (offset, data) of the last x or X header
        self.long_name = None  # (offset, data) of the last L header
        self.records = []  # of all its PAX headers, in order
        self.header = None  # offset of the member's own header
        self.end = None  # padded end of the data
        self.path = None
        self.key = None  # None: not eligible
        self.size = None  # of the data
        self.regular = False


def parse(data, damage):
    """Yields (begin, end, key, members) for each record; raises Corrupt at damage."""
    run = []
    for member in members(data, damage):
        if member.key is None:
            continue
        if run and run[0].key != member.key:
            yield run[0].begin, run[-1].end, run[0].key, run
            run = []
        run.append(member)
    if run:
        yield run[0].begin, run[-1].end, run[0].key, run


def members(data, damage):
    at, m = 0, Member()
    while True:
        if at == len(data) and damage is None:
            if m.begin is not None:
                raise Corrupt("nothing follows an extension header, at %d" % at)
            return
        header = block(data, at, damage)
        if header == bytes(BLOCK):
            if m.begin is not None:
                raise Corrupt("nothing follows an extension header, at %d" % at)
            return
        check_sum(header, at)
        kind = header[156:157]
        size = 0 if kind in b"123456" else number(header[124:136], at)
        if kind in b"xXLKg":
            begin, end = at + BLOCK, at + BLOCK + padded(size)
            if end > len(data):
                raise damage or Corrupt("the archive ends in the header at %d" % at)
            body = data[begin : begin + size]
            if kind == b"g":
                for name, _ in pax_records(body, at):
                    if name in (b"path", b"size"):
                        raise Refused("a global PAX header that sets %s" % name.decode())
            else:
                m.begin = at if m.begin is None else m.begin
                if kind in b"xX":
                    m.pax = (at, body)
                    m.records += pax_records(body, at)
                    if any(name == b"size" and not value.isdigit() for name, value in m.records):
                        raise Corrupt("a PAX header's size is not a number, at %d" % at)
                elif kind == b"L":
                    m.long_name = (at, body)
            at = end
            continue
        finish(m, header, kind, at, size)
        yield m  # before its data is read: its header shows where the previous record ends
        if m.end > len(data):
            raise damage or Corrupt("the archive ends in the member at %d" % at)
        at, m = m.end, Member()


def finish(m, header, kind, at, size):
    values = dict(m.records)
    if kind == b"S" or any(name.startswith(b"GNU.sparse.") for name in values):
        raise Refused("a sparse file")
    if b"size" in values and kind not in b"123456":
        size = int(values[b"size"])
    m.begin = at if m.begin is None else m.begin
    m.header = at
    m.end = at + BLOCK + padded(size)
    m.path = path_of(m, values, header)
    m.size, m.regular = size, kind in (b"0", b"\0", b"7")
    if kind in (b"0", b"\0", b"7"):
        m.key = key_of(m.path)


def path_of(m, values, header):
    if b"path" in values:
        return values[b"path"]
    if m.long_name is not None:
        return cut(m.long_name[1])
    name = cut(header[:100])
    prefix = cut(header[345:500])
    if header[257:265] == b"ustar\x0000" and prefix:
        return prefix + b"/" + name
    return name


def key_of(path):
    """Returns the sample key, or None if the path is not eligible."""
    directory, slash, base = path.rpartition(b"/")
    if b"." not in base or base.startswith(b"."):
        return None
    first = path.split(b"/")[0]
    if len(first) >= 4 and first.startswith(b"__") and first.endswith(b"__"):
        return None
    return directory + slash + base.split(b".")[0]


def pax_records(body, at):
    out = []
    while body:
        length, space, _ = body.partition(b" ")
        if not space or not length.isdigit() or not len(length) + 1 < int(length) <= len(body):
            raise Corrupt("a PAX header that is none, at %d" % at)
        record, body = body[: int(length)], body[int(length) :]
        name, equals, value = record[len(length) + 1 : -1].partition(b"=")
        if record[-1:] != b"\n" or not equals:
            raise Corrupt("a PAX header that is none, at %d" % at)
        out.append((name, value))
    return out


def block(data, at, damage):
    if at + BLOCK > len(data):
        raise damage or Corrupt("the archive ends in the header at %d" % at)
    return data[at : at + BLOCK]


def check_sum(header, at):
    blanked = header[:148] + b" " * 8 + header[156:]
    want = number(header[148:156], at)
    signed = sum(b - 256 if b > 127 else b for b in blanked)
    if want not in (sum(blanked), signed):
        raise Corrupt("checksum of the header at %d" % at)


def number(field, at):
    if field[0] & 0x80:
        if field[0] & 0x40:
            raise Corrupt("a negative number in the header at %d" % at)
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    digits = re.fullmatch(rb"[ \0]*([0-7]*)(?:[ \0].*)?", field, re.DOTALL)
    if not digits:
        raise Corrupt("a number that is none in the header at %d" % at)
    return int(digits[1] or b"0", 8)


def cut(field):
    return field.split(b"\0")[0]


def padded(n):
    return -(-n // BLOCK) * BLOCK


# The equal-key rule


def rename(record, members, position, begin):
    """Returns the record's bytes with dup-<position>/ before the paths of its members, whose
    offsets are relative to begin before it."""
    out, at = bytearray(), 0
    for m in members:
        out += record[at : m.begin - begin]
        out += rename_member(record, m, begin, b"dup-%d" % position)
        at = m.end - begin
    return bytes(out + record[at:])


def rename_member(record, m, begin, dup):
    def part(low, high):
        return record[low - begin : high - begin]

    path = dup + b"/" + m.path
    header = part(m.header, m.header + BLOCK)
    if m.pax is not None:
        at, body = m.pax
        return (
            part(m.begin, at)
            + extension(part(at, at + BLOCK), with_path(pax_records(body, at), path))
            + part(at + BLOCK + padded(len(body)), m.end)
        )
    if m.long_name is not None:
        at, body = m.long_name
        return (
            part(m.begin, at)
            + extension(part(at, at + BLOCK), path + b"\0")
            + part(at + BLOCK + padded(len(body)), m.end)
        )
    prefix = dup
    if header[257:265] == b"ustar\x0000" and cut(header[345:500]):
        prefix += b"/" + cut(header[345:500])
    if len(prefix) <= 155:
        h = bytearray(header)
        h[345:500] = prefix.ljust(155, b"\0")
        h[257:265] = b"ustar\x0000"
        h[500:512] = bytes(12)
        return part(m.begin, m.header) + with_sum(h) + part(m.header + BLOCK, m.end)
    pax = extension(new_header(b"././@PaxHeader", b"x"), pax_record(b"path", path))
    return pax + part(m.begin, m.end)  # in front of a long link name (K) too


def with_path(records, path):
    """Returns the data of a PAX header with its path replaced or appended."""
    places = [i for i, (name, _) in enumerate(records) if name == b"path"]
    if places:
        records[places[-1]] = (b"path", path)
    else:
        records.append((b"path", path))
    return b"".join(pax_record(name, value) for name, value in records)


def pax_record(name, value):
    rest = b" " + name + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


def extension(header, body):
    """Returns a header with a new size, and its padded data."""
    h = bytearray(header)
    h[124:136] = b"%011o\0" % len(body)
    return with_sum(h) + body.ljust(padded(len(body)), b"\0")


def new_header(name, kind):
    h = bytearray(BLOCK)
    h[0 : len(name)] = name
    h[100:108] = b"0000644\0"
    h[108:116] = h[116:124] = b"0000000\0"
    h[124:136] = h[136:148] = b"00000000000\0"
    h[156:157] = kind
    h[257:265] = b"ustar\x0000"
    return h


def file(path, contents):
    """Returns a member as format files writes it."""
    header, pax = new_header(path[:100], b"0"), b""
    if len(path) > 100:
        pax += pax_record(b"path", path)
    if len(contents) >= 8 << 30:
        pax += pax_record(b"size", b"%d" % len(contents))
    else:
        header[124:136] = b"%011o\0" % len(contents)
    out = extension(new_header(b"././@PaxHeader", b"x"), pax) if pax else b""
    return out + with_sum(header) + contents.ljust(padded(len(contents)), b"\0")


def with_sum(h):
    h[148:156] = b" " * 8
    h[148:156] = b"%06o\0 " % sum(h)
    return bytes(h)
