#!/usr/bin/env python3
"""Rescores games of Leela Chess Zero: the result of every frame becomes that of the last one.

Like a rescorer with tablebases, it reads and writes whole games. It sets the result to the
evaluation of the last position (here its own best_q, if that is certain), and leaves out games
without a second frame. It supports both ways of lsiofs filter:

    lsiofs filter /games /rescored --by process -- ./rescore.py
    lsiofs filter /games /rescored --by dirs -- ./rescore.py --input={in} --output={out}
"""

import argparse
import gzip
import pathlib
import struct
import sys

FRAME = 8356  # version 6
BEST_Q, RESULT_Q, RESULT_D = 8284, 8308, 8312
CERTAIN = 0.9


def rescore(game: bytes) -> bytes | None:
    """The game with its results replaced; None leaves the game out."""
    if len(game) % FRAME or struct.unpack_from("<I", game)[0] != 6:
        raise ValueError("not a game of version 6")
    frames = len(game) // FRAME
    if frames < 2:
        return None
    (q,) = struct.unpack_from("<f", game, (frames - 1) * FRAME + BEST_Q)
    result = 1.0 if q > CERTAIN else -1.0 if q < -CERTAIN else 0.0
    out = bytearray(game)
    for frame in range(frames):  # from the side to move's view: the sign changes with each frame
        sign = 1.0 if (frames - 1 - frame) % 2 == 0 else -1.0
        struct.pack_into("<f", out, frame * FRAME + RESULT_Q, sign * result + 0.0)
        struct.pack_into("<f", out, frame * FRAME + RESULT_D, float(result == 0))
    return bytes(out)


def serve(stdin, stdout) -> None:
    """The protocol of lsiofs filter --by process (lsiofs help filter)."""
    if stdin.read(8) != b"LSIOFSF1":
        raise SystemExit("started by something else than lsiofs filter --by process")
    stdout.write(b"LSIOFSF1")
    stdout.flush()
    while head := stdin.read(4):
        name = stdin.read(struct.unpack("<I", head)[0])
        game = stdin.read(struct.unpack("<Q", stdin.read(8))[0])
        try:
            result = rescore(game)
            status, body = (1, b"") if result is None else (0, result)
        except ValueError as error:
            status, body = 2, f"{name.decode(errors='replace')}: {error}".encode()
        stdout.write(struct.pack("<BQ", status, len(body)) + body)
        stdout.flush()


def directories(source: pathlib.Path, target: pathlib.Path) -> None:
    """Rescores each game of a directory into a file with the same name in another one."""
    for path in sorted(source.iterdir()):
        result = rescore(gzip.decompress(path.read_bytes()))
        if result is not None:
            (target / path.name).write_bytes(gzip.compress(result, 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    if options.input:
        directories(options.input, options.output)
    else:
        serve(sys.stdin.buffer, sys.stdout.buffer)
