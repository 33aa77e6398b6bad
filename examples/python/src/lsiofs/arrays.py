"""Records of one size as numpy arrays. numpy is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

from .errors import ArgumentError, explained

if TYPE_CHECKING:
    import numpy

    from .stream import Window


def batches(path: str, format: str, windows: Iterator[Window], records: int, dtype: Any) -> Iterator[numpy.ndarray[Any, Any]]:
    """Arrays of so many records each, out of windows of a multiple of so many. They can be written to."""
    import numpy

    if dtype is None:
        if format != "npy":
            raise ArgumentError(f"{path}: the dtype of records in a stream of format {format} is not known: name it, as in arrays(256, '<u2')")
        dtype = row_type(path)
    for window in windows:
        # A copy can be written to, which torch wants of arrays that become tensors.
        rows = numpy.frombuffer(bytearray(window.data), dtype)
        for begin in range(0, len(rows), records):
            yield rows[begin : begin + records]


def row_type(path: str) -> Any:
    """The dtype of a row of an npy stream, its shape included."""
    from numpy.lib import format

    try:
        f = open(path, "rb")
    except OSError as e:
        raise explained(e, path) from None
    with f:
        format.read_magic(f)  # type: ignore[no-untyped-call]
        shape, _, dtype = format.read_array_header_1_0(f)  # type: ignore[no-untyped-call]
    return dtype, shape[1:]
