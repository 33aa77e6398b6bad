"""Conversion of array elements by --as float32, computed with NumPy."""

import base64
import struct

import numpy

NAN = 0x7FC00000


def unpack(field, options):
    """Converts a field's elements to float32, and notes how."""
    array, given = field.array, array_attributes(field.array)
    taken = array.values.dtype
    if "_Unsigned" in given and taken.kind in "iu":
        taken = numpy.dtype("%s%s%d" % (taken.byteorder, "u" if given["_Unsigned"] == "true" else "i", taken.itemsize))
    scale = numpy.float32(number(options.get("scale"), field.name, given.get("scale_factor", 1)))
    offset = numpy.float32(number(options.get("offset"), field.name, given.get("add_offset", 0)))
    missing = []
    for name in ("_FillValue", "missing_value"):
        for value in given.get(name, []) if isinstance(given.get(name), list) else [given.get(name)]:
            missing += elements(value, taken, array.values.dtype)
    stored = array.values.view(taken)
    with numpy.errstate(all="ignore"):
        x = stored.astype("f4")
        values = (x * scale).astype("f4") + offset
    values = values.astype("f4")
    bits = values.view("u4")
    bits[numpy.isnan(x)] = NAN
    for m in missing:
        bits[stored == m] = NAN
    little = taken.newbyteorder("<")
    missing = sorted({m.astype(little).tobytes() for m in missing})
    array.packing = [repr(little.str), struct.pack("<f", scale).hex(), struct.pack("<f", offset).hex(), [m.hex() for m in missing]]
    array.values = values


def array_attributes(array):
    return {k: v[0] if isinstance(v, list) and k in ("scale_factor", "add_offset") else v for k, v in array.attributes.items()}


def number(text, name, otherwise):
    """Returns the value of a flag for a field."""
    if not text:
        return otherwise
    if "=" not in text:
        return float(text)
    return float(dict(t.split("=") for t in text.split(",")).get(name, otherwise))


def elements(value, dtype, stored):
    """Returns the elements that equal a value, except NaN. If only the stored type has the number,
    its bits count."""
    if value is None or dtype.kind == "b":
        return []
    if isinstance(value, str):
        value = float(value) if value in ("NaN", "Infinity", "-Infinity") else struct.unpack("<d", base64.b64decode(value))[0]
    if dtype.kind == "f":
        with numpy.errstate(over="ignore"):
            one = numpy.array(value, dtype)
        if numpy.isnan(one) or numpy.isinf(one) and not numpy.isinf(float(value)):
            return []
        return [numpy.array(0.0, dtype), numpy.array(-0.0, dtype)] if one == 0 else [one]
    limits = numpy.iinfo(dtype)
    if value != value or value in (float("inf"), float("-inf")) or int(value) != value:
        return []
    value = int(value)
    if limits.min <= value <= limits.max:
        return [numpy.array(value, dtype)]
    if numpy.iinfo(stored).min <= value <= numpy.iinfo(stored).max:
        return [numpy.array(value, stored).view(dtype)]
    return []
