"""Whole Zarr arrays, read independently of lsiofs.

Version 2 is read by zarr-python, version 3 by the code here, which follows the specification. Both
need NumPy and numcodecs.
"""

import itertools
import json
import math
import os
import struct

import numcodecs
import numpy
import zarr

ABSENT = 2**64 - 1


class Array:
    """An array in memory, with the names of its dimensions, the edges of its bricks, and a mask of
    the elements in bricks that are not stored."""

    packing = None

    def __init__(self, values, dims, brick, fill, attributes, absent):
        self.values, self.dims, self.brick, self.fill, self.attributes, self.absent = values, dims, brick, fill, attributes, absent


class Fletcher32(numcodecs.abc.Codec):
    """The checksum of HDF5, which not all versions of numcodecs have."""

    codec_id = "fletcher32"

    def encode(self, buf):
        data = bytes(buf)
        return data + fletcher32(data)

    def decode(self, buf, out=None):
        data = bytes(buf)
        assert fletcher32(data[:-4]) == data[-4:]
        return numcodecs.compat.ndarray_copy(data[:-4], out)


numcodecs.register_codec(Fletcher32)


def fletcher32(data):
    """Returns sums of big-endian words modulo 65535, where 65535 and 0 both stay as they are."""
    low = high = 0
    for i in range(0, len(data), 2):
        low += int.from_bytes(data[i : i + 2].ljust(2, b"\0"), "big")
        high += low
    return struct.pack("<HH", *((x - 1) % 65535 + 1 if x else 0 for x in (low, high)))


def read(path):
    file, inside = path.rstrip("/"), ""
    while not os.path.exists(file):
        file, name = os.path.split(file)
        inside = os.path.join(name, inside)
    if os.path.isfile(file):
        return (read_zip if file.endswith(".zip") else read_hdf5)(file, inside.strip("/"))
    if os.path.exists(os.path.join(path, "zarr.json")):
        return read_v3(path)
    a = zarr.open_array(path, mode="r")
    fill = numpy.zeros((), a.dtype) if a.fill_value is None else numpy.asarray(a.fill_value, a.dtype)
    with open(os.path.join(path, ".zarray")) as f:
        separator = json.load(f).get("dimension_separator", ".")
    absent = absent_but(a.shape, a.chunks, lambda place: os.path.exists(os.path.join(path, separator.join(map(str, place)) or "0")))
    attributes = dict(a.attrs)
    if "_ARRAY_DIMENSIONS" in attributes and a.fill_value is not None:  # xarray wrote it
        attributes.setdefault("_FillValue", fill.item() if fill.dtype.kind in "biuf" else None)
    return Array(a[...], list(attributes.get("_ARRAY_DIMENSIONS", [""] * a.ndim)), list(a.chunks), fill, attributes, absent)


def read_hdf5(path, inside):
    """Returns the array that a.json refers to, all in a.h5, as HDF5's own library reads it."""
    import h5py

    with h5py.File(os.path.splitext(path)[0] + ".h5", "r") as f:
        d = f[inside]
        brick = list(d.chunks or d.shape)
        stored = [d.id.get_chunk_info(i).chunk_offset for i in range(d.id.get_num_chunks())] if d.chunks else [(0,) * d.ndim]
        places = {tuple(a // k for a, k in zip(offset, brick)) for offset in stored}
        absent = absent_but(d.shape, brick, lambda place: place in places)
        return Array(d[...], [x.label for x in d.dims], brick, numpy.asarray(d.fillvalue, d.dtype), {}, absent)


def read_zip(path, inside):
    store = zarr.ZipStore(path, mode="r")
    a = zarr.open(store, mode="r", path=inside)
    absent = absent_but(a.shape, a.chunks, lambda place: "/".join([inside, ".".join(map(str, place))]) in store)
    array = Array(a[...], list(a.attrs["_ARRAY_DIMENSIONS"]), list(a.chunks), numpy.asarray(a.fill_value, a.dtype), dict(a.attrs), absent)
    store.close()
    return array


def absent_but(shape, brick, is_there):
    """Returns a mask of the elements in bricks that don't exist, by the bricks' places."""
    counts = [-(-n // k) for n, k in zip(shape, brick)]
    absent = numpy.zeros([n * k for n, k in zip(counts, brick)], bool)
    for place in itertools.product(*map(range, counts)):
        absent[box(place, brick)] = not is_there(place)
    return absent[tuple(slice(n) for n in shape)]


def read_v3(path):
    with open(os.path.join(path, "zarr.json"), "rb") as f:
        doc = json.load(f)
    shape, grid = doc["shape"], doc["chunk_grid"]["configuration"]["chunk_shape"]
    dtype = numpy.dtype(doc["data_type"])
    fill = doc["fill_value"]
    fill = numpy.asarray(float(fill) if isinstance(fill, str) else fill, dtype)
    counts = [-(-n // k) for n, k in zip(shape, grid)]
    values = numpy.full([n * k for n, k in zip(counts, grid)], fill, dtype)
    absent = numpy.ones(values.shape, bool)
    keys = doc["chunk_key_encoding"]
    separator = keys.get("configuration", {}).get("separator", "/" if keys["name"] == "default" else ".")
    for place in itertools.product(*map(range, counts)):
        key = separator.join((["c"] if keys["name"] == "default" else []) + [str(i) for i in place]) or "0"
        file = os.path.join(path, key)
        if os.path.exists(file):
            with open(file, "rb") as f:
                data = f.read()
            values[box(place, grid)] = decode(data, doc["codecs"], grid, dtype, fill)
            absent[box(place, grid)] = False
            if doc["codecs"][0]["name"] == "sharding_indexed":
                absent[box(place, grid)] = absent_of(data, doc["codecs"][0]["configuration"], grid)
    brick, codecs = grid, doc["codecs"]
    while codecs[0]["name"] == "sharding_indexed":  # may be nested
        brick, codecs = (codecs[0]["configuration"][x] for x in ("chunk_shape", "codecs"))
    inside = tuple(slice(n) for n in shape)
    return Array(values[inside], list(doc.get("dimension_names") or [""] * len(shape)), brick, fill, doc.get("attributes", {}), absent[inside])


def box(place, edges):
    return tuple(slice(i * k, (i + 1) * k) for i, k in zip(place, edges))


def decode(data, codecs, shape, dtype, fill):
    """Decodes the elements of an array of that shape."""
    axes = list(range(len(shape)))
    for codec in codecs:  # the first one is undone last
        if codec["name"] == "transpose":
            axes = [axes[i] for i in codec["configuration"]["order"]]
    for codec in reversed(codecs):
        name, c = codec["name"], codec.get("configuration", {})
        if name == "crc32c":
            data, said = data[:-4], struct.unpack("<I", data[-4:])[0]
            assert crc32c(data) == said
        elif name == "gzip":
            data = numcodecs.GZip().decode(data)
        elif name == "zstd":
            data = numcodecs.Zstd().decode(data)
        elif name == "blosc":
            data = numcodecs.Blosc().decode(data)
        elif name == "bytes":
            stored = dtype.newbyteorder(">" if c.get("endian") == "big" else "<")
            data = numpy.frombuffer(data, stored).astype(dtype).reshape([shape[i] for i in axes])
        elif name == "sharding_indexed":
            data = shard(data, c, shape, dtype, fill)
        elif name == "transpose":
            data = data.transpose([c["order"].index(i) for i in range(len(shape))])
        else:
            raise ValueError(name)
    return data


def shard_index(data, c, counts):
    bricks = math.prod(counts)
    size = 16 * bricks + 4 * any(x["name"] == "crc32c" for x in c["index_codecs"])
    raw = data[:size] if c.get("index_location") == "start" else data[-size:]
    return decode(raw, c["index_codecs"], counts + [2], numpy.dtype("u8"), None)


def absent_of(data, c, shape):
    """Returns a mask of the elements of a shard in bricks that it does not have."""
    inner, first = c["chunk_shape"], c["codecs"][0]
    counts = [n // k for n, k in zip(shape, inner)]
    index = shard_index(data, c, counts)
    absent = numpy.zeros(shape, bool)
    for place in itertools.product(*map(range, counts)):
        offset, n = (int(x) for x in index[place])
        if offset == ABSENT:
            absent[box(place, inner)] = True
        elif first["name"] == "sharding_indexed":
            absent[box(place, inner)] = absent_of(data[offset : offset + n], first["configuration"], inner)
    return absent


def shard(data, c, shape, dtype, fill):
    inner = c["chunk_shape"]
    counts = [n // k for n, k in zip(shape, inner)]
    index = shard_index(data, c, counts)
    values = numpy.full(shape, fill, dtype)
    for place in itertools.product(*map(range, counts)):
        offset, n = (int(x) for x in index[place])
        if offset != ABSENT:
            values[box(place, inner)] = decode(data[offset : offset + n], c["codecs"], inner, dtype, fill)
    return values


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
