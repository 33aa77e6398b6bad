"""Makes bricks.txt, with numcodecs (Debian: python3-numcodecs).

    python3 make.py > bricks.txt

A line has: the compressor and filters of a v2 document (JSON without spaces), dtype, the decoded
brick and the stored one in base64.
"""

import base64
import json

import numcodecs
import numpy

ZLIB, ZSTD, SHUFFLE = {"id": "zlib", "level": 5}, {"id": "zstd", "level": 3}, {"id": "shuffle", "elementsize": 4}


def delta(dtype, astype=None):
    return {"id": "delta", "dtype": dtype, "astype": astype or dtype}


def scaled(dtype, astype, scale, offset):
    return {"id": "fixedscaleoffset", "dtype": dtype, "astype": astype, "scale": scale, "offset": offset}


def main():
    i = numpy.arange(300)
    waves = 100 * numpy.sin(i / 20) + i % 3
    for compressor, filters, dtype in [
        (None, [], "<i2"), (ZLIB, [], "<i4"), ({"id": "gzip", "level": 1}, [], "<i4"), (ZSTD, [], "<f4"), ({"id": "bz2", "level": 9}, [], "<i4"),
        ({"id": "lz4", "acceleration": 1}, [], "<i4"), ({"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}, [], ">i4"),
        (ZLIB, [SHUFFLE], "<f4"), (None, [SHUFFLE, ZLIB], ">f4"), (ZLIB, [delta("<i4")], "<i4"), (None, [delta(">i2")], ">i2"), (ZSTD, [delta("<i4", "<i2")], "<i4"),
        (ZSTD, [delta("<f4")], "<f4"), (None, [delta("<u1")], "<u1"), (None, [delta("<i8", "<i1")], "<i8"), (None, [scaled("<f4", "<i2", 100, 2.5)], "<f4"),
        (ZLIB, [scaled("<f8", "|u1", 0.7, -120), SHUFFLE], "<f8"), (None, [scaled("<f4", "<f4", 7, 3.3)], "<f4"), (None, [scaled("<i4", "<i2", 3, 1)], "<i4"),
        (None, [{"id": "quantize", "digits": 2, "dtype": "<f8", "astype": "<f4"}, ZSTD], "<f8"), ({"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 0, "blocksize": 0}, [ZLIB], "<i4"),
        (ZSTD, [{"id": "bitround", "keepbits": 7}], "<f4"),
    ]:
        brick = waves.astype(dtype) if dtype != "<u1" else (i % 251).astype("u1")
        data = brick
        for f in filters + ([compressor] if compressor else []):
            data = numcodecs.get_codec(dict(f)).encode(data)
        stored = numpy.ascontiguousarray(data).tobytes() if hasattr(data, "tobytes") else bytes(data)
        back = stored
        for f in reversed(filters + ([compressor] if compressor else [])):
            back = numcodecs.get_codec(dict(f)).decode(back)
        decoded = bytes(back) if isinstance(back, bytes) else numpy.ascontiguousarray(back).tobytes()
        text = json.dumps({"compressor": compressor, "filters": filters}, separators=(",", ":"))
        print(text, dtype, base64.b64encode(decoded).decode(), base64.b64encode(stored).decode())


main()
