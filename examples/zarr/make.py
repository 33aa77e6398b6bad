#!/usr/bin/env python3
"""Make an array that looks like satellite images, one every quarter of an hour.

    ./make.py sat.zarr

Clouds drift over ground that the sun warms. The array data has 16-bit integers with a scale
factor and an offset, like real ones; time, y and x are its coordinates.
"""

import argparse

import numpy as np
import zarr
from numcodecs import Blosc


def main():
    p = argparse.ArgumentParser()
    p.add_argument("store")
    p.add_argument("--times", type=int, default=384)
    p.add_argument("--edge", type=int, default=128, help="pixels along y and x")
    a = p.parse_args()

    random = np.random.default_rng(0)
    ys, xs = np.meshgrid(np.linspace(0, 4 * np.pi, a.edge), np.linspace(0, 4 * np.pi, a.edge), indexing="ij")
    waves = [(random.normal(0, 1, 2), random.normal(0, 0.2), random.uniform(0, 6)) for _ in range(8)]
    group = zarr.open_group(a.store, mode="w")
    data = group.create_dataset(
        "data", shape=(a.times, a.edge, a.edge), chunks=(12, 32, 32), dtype="<i2", fill_value=-1,
        compressor=Blosc("lz4", clevel=5, shuffle=Blosc.SHUFFLE),
    )
    for t in range(a.times):
        clouds = sum(np.sin(ky * ys + kx * xs + speed * t + phase) for (ky, kx), speed, phase in waves)
        ground = 285 + 12 * np.sin(2 * np.pi * (t % 96) / 96)
        kelvin = ground - 15 * np.clip(clouds, 0, None) + random.normal(0, 0.2, ys.shape)
        data[t] = np.round((kelvin - 180) / 0.01)
    data.attrs.update(_ARRAY_DIMENSIONS=["time", "y", "x"], scale_factor=0.01, add_offset=180.0, units="K")

    times = np.datetime64("2024-06-01T00:00", "s") + np.arange(a.times) * np.timedelta64(900, "s")
    for name, values in ("time", times), ("y", np.linspace(60, 40, a.edge)), ("x", np.linspace(-10, 20, a.edge)):
        group.create_dataset(name, data=values, chunks=values.shape).attrs["_ARRAY_DIMENSIONS"] = [name]


if __name__ == "__main__":
    main()
