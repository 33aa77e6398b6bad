"""Makes buffers.txt, with c-blosc through numcodecs (Debian: python3-numcodecs).

    python3 make.py > buffers.txt

A line has: codec, shuffle, bytes of an element, decoded bytes, hexadecimal SHA-256 of the decoded
bytes, the buffer in base64.
"""

import base64
import hashlib

import numpy
from numcodecs import blosc


def waves(n, item):
    i = numpy.arange(n // item, dtype=numpy.uint64)
    x = (i // 40 & 1023) + (i * i // 997 & 7) * (i % 301 == 0)
    return b"".join(int(v).to_bytes(item, "little") if item > 1 else bytes([int(v) & 255]) for v in x)


def main():
    print("# made by make.py with numcodecs and c-blosc %s" % blosc.VERSION_STRING)
    for codec in ["blosclz", "lz4", "lz4hc", "zlib", "zstd", "snappy"]:
        if codec not in blosc.list_compressors():
            continue
        for shuffle in [0, 1, 2]:
            for item, block, n in [(2, 32768, 70000), (4, 32768, 100000), (8, 32768, 133000), (3, 0, 3000), (16, 4096, 8192), (1, 0, 900), (17, 1700, 4000)]:
                if codec != "lz4" and item not in {"blosclz": (2, 8), "zstd": (2, 4, 8)}.get(codec, (2,)):
                    continue
                n -= n % item
                data = waves(n, item)
                buffer = blosc.compress(numpy.frombuffer(data, dtype="V%d" % item), codec.encode(), 5, shuffle, block)
                assert blosc.decompress(buffer) == data, (codec, item)
                print(codec, shuffle, item, n, hashlib.sha256(data).hexdigest(), base64.b64encode(buffer).decode())
    for n, block in [(100, 0), (1, 0), (0, 0), (1000, 0)]:
        data = hashlib.shake_256(b"noise").digest(n)
        buffer = blosc.compress(data, b"lz4", 0 if n == 1000 else 5, 1, block)
        print("noise", 1, 1, n, hashlib.sha256(data).hexdigest(), base64.b64encode(buffer).decode())


main()
