"""The rule for equal keys in tar streams, of pipeline/order/STREAMS.md."""

from formats import BLOCK, cut, extension, new_header, padded, pax_record, pax_records, with_sum


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
