"""Crops of Zarr arrays, for peers.py: it makes an array, and has the loaders of its crops.

    crops.py ARRAY EDGE EDGE EDGE

makes an array of 16-bit numbers in chunks of 16 × 64 × 64, compressed by blosc with lz4, using
zarr-python, which is also what reads it without lsiofs.
"""

import itertools
import multiprocessing
import random
import sys

CROP, STRIDE, CHUNK = (24, 128, 128), (12, 64, 64), (16, 64, 64)
CROP_BYTES = 24 * 128 * 128 * 2
SEED = 42
LOADER_PROCESSES = 2

# Flags of lsiofs for the same crops.
FLAGS = ["--format", "zarr", "--crop", ",".join(map(str, CROP)), "--stride", ",".join(map(str, STRIDE))]


def make(path, shape):
    import numpy as np
    import zarr
    from numcodecs import Blosc

    array = zarr.open_array(path, mode="w", shape=shape, chunks=CHUNK, dtype="<i2", compressor=Blosc("lz4", 5, Blosc.SHUFFLE), fill_value=0)
    rng = np.random.default_rng(SEED)
    y, x = np.mgrid[: shape[1], : shape[2]]
    for t in range(0, shape[0], CHUNK[0]):
        steps = np.arange(t, min(t + CHUNK[0], shape[0]))[:, None, None]
        waves = 400 * np.sin(x / 37 + steps / 9) + 300 * np.cos(y / 53 - steps / 11)
        array[t : t + CHUNK[0]] = (waves + rng.normal(512, 8, waves.shape)).astype("<i2")


def origins(shape):
    """Returns where crops begin, in row order."""
    return list(itertools.product(*(range(0, n - c + 1, s) for n, c, s in zip(shape, CROP, STRIDE))))


def cut(array, origin):
    return array[tuple(slice(o, o + c) for o, c in zip(origin, CROP))].tobytes()


def in_order(paths):
    """Reads all crops with zarr-python in this process."""
    import zarr

    array = zarr.open_array(paths[0], mode="r")
    for origin in origins(array.shape):
        yield cut(array, origin)


def hand_over(path, part, pipe):
    import zarr

    array = zarr.open_array(path, mode="r")
    order = origins(array.shape)
    random.Random(SEED).shuffle(order)
    for origin in order[part::LOADER_PROCESSES]:
        pipe.send_bytes(cut(array, origin))
    pipe.close()


def zarr_python(paths):
    """Reads all crops in random order, in processes that pass them on, as in a DataLoader."""
    pipes, processes = [], []
    for part in range(LOADER_PROCESSES):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        p = multiprocessing.Process(target=hand_over, args=(paths[0], part, theirs))
        p.start()
        theirs.close()
        pipes.append(ours)
        processes.append(p)
    while pipes:
        for pipe in list(pipes):
            try:
                yield pipe.recv_bytes()
            except EOFError:
                pipes.remove(pipe)
    for p in processes:
        p.join()
        if p.exitcode:
            raise RuntimeError(f"a loader process ended with {p.exitcode}")


def streams(paths):
    """Reads the crops of worker files of lsiofs, from each in turn."""
    files = [open(path, "rb", buffering=0) for path in paths]
    for f in files:
        head = f.read(10)
        f.read(int.from_bytes(head[8:10], "little"))  # the rest of the header
    while files:
        for f in list(files):
            crop = f.read(CROP_BYTES)
            while crop and len(crop) < CROP_BYTES:
                more = f.read(CROP_BYTES - len(crop))
                if not more:
                    raise RuntimeError(f"{f.name} ends in a crop")
                crop += more
            if crop:
                yield crop
            else:
                files.remove(f)
                f.close()


if __name__ == "__main__":
    make(sys.argv[1], [int(n) for n in sys.argv[2:]])
