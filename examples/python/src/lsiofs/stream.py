"""A stream of a mount: the records of one file, in order.

    stream = lsiofs.Stream("/mnt/train/epoch-0/worker-0-of-4.tar")
    for record in stream: ...            # a memoryview of each record's bytes
    for sample in stream.samples(): ...  # what the record's format makes of them

A stream is a file of its format, which other programs read as such. Beside it lie a file
that says where its records are (``.offsets``: n+1 little-endian numbers of 8 bytes) and one
that says which they are (``.ids``: n identifiers of 16 bytes). Records are read in windows
of 1 MiB, the next one in a thread while this one is used. Nothing is copied: a record is a
view of its window.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from typing import TYPE_CHECKING, Any, Generator, Iterator, NamedTuple, Optional

from . import arrays, formats
from .errors import explained
from .readahead import ReadAhead

if TYPE_CHECKING:
    import numpy

# Bytes a read: one request, as its buffer begins within a page. Of larger buffers, malloc gives memory
# back and has it cleared again: with 4 MiB a page fault each 10 KB, and half of a read's time.
WINDOW = (1 << 20) - 4096
FIRST_OFFSETS, MOST_OFFSETS = 4096, 131072  # records whose places are read at a time: ever more, up to 1 MiB
ID_BYTES, MOST_IDS = 16, 65536  # of an identifier; read at a time


class Window(NamedTuple):
    """Records that were read together."""

    first: int  # the number of the first one, in the file
    offsets: memoryview  # where they begin in the file, and where the last one ends
    data: memoryview


class Stream:
    """The records of a worker's file, from `first` on.

    `path` is the file, as ``MNT/worker-0.tar`` or ``MNT/epoch-0/worker-0-of-4.tar``. `format` is
    the dataset's (``tar``, ``jsonl``, ``lines``, ``tfrecord``, ``npy``, ``fixed``, ``lc0``, ``files``);
    without it the file's extension says what `samples` gives.

    It may be iterated any number of times, also at once, in any thread and after a fork; each
    iteration opens the file anew. ``len()`` is the number of all records of the file, those
    before `first` included.
    """

    def __init__(self, path: str | os.PathLike[str], first: int = 0, format: Optional[str] = None, *, owner: object = None) -> None:
        self.path = os.fspath(path)
        self._owner = owner  # of the mount, which ends when nothing refers to it
        self.first = first
        if first < 0:
            raise ValueError(f"{self.path}: first ({first}) must be 0 at least")
        stem, extension = os.path.splitext(self.path)
        self.format = format or formats.of_extension(extension)
        self._offsets, self._ids = stem + ".offsets", stem + ".ids"
        try:
            self._records = os.stat(self._offsets).st_size // 8 - 1
        except OSError as e:
            raise explained(e, self._offsets) from None

    def __len__(self) -> int:
        return self._records

    def __repr__(self) -> str:
        return f"lsiofs.Stream({self.path!r}, first={self.first}, format={self.format!r})"

    def __iter__(self) -> Iterator[memoryview]:
        return self.records()

    def __getitem__(self, number: int) -> memoryview:
        """One record, by its number in the file; this is a read of its own, of no more than it."""
        number = range(len(self))[number]
        begin, end = _offsets(self._offsets, number, number + 2)
        with _File(self.path) as f:
            return memoryview(f.read(begin, end - begin))

    def records(self) -> Iterator[memoryview]:
        """Views of the records' bytes.

        A view stays good as long as it is held, and keeps its window of 1 MiB. So a program that
        keeps a record, rather than use it and go on, copies it: ``bytes(record)``.
        """
        for window in self.windows():
            data, (start, *ends) = window.data, window.offsets.tolist()
            begin = 0
            for end in ends:
                yield data[begin : (begin := end - start)]

    def samples(self) -> Iterator[Any]:
        """What the records hold, as the format has it.

        ==============  =====================================================================
        tar, files      a dict: each member's data by its extension, and ``"__key__"``
        jsonl           what ``json.loads`` gives
        lines           a str, without the end of the line
        tfrecord        the payload
        npy             a row, as numpy has it
        fixed, lc0      the record; `arrays` makes numpy rows of it
        ==============  =====================================================================

        Data is a memoryview, as `records` gives them.
        """
        if self.format == "npy":
            return (row for batch in self.arrays(1024) for row in batch)
        return formats.samples(self.format, self.windows())

    def arrays(self, records: int, dtype: Any = None) -> Iterator[numpy.ndarray[Any, Any]]:
        """Numpy arrays of so many records that follow each other, the last one of fewer.

        `dtype` is that of a record of ``fixed`` or ``lc0``; of ``npy`` it is known. Arrays are views
        of a window, as `records` are, and can't be written to.
        """
        if records < 1:
            raise ValueError(f"arrays of {records} records: there has to be one at least")
        return arrays.batches(self.path, self.format, self.windows(records), records, dtype)

    def ids(self) -> Iterator[bytes]:
        """The records' identifiers, the same in every epoch: 8 bytes of a hash of the shard's path, 8 of the number in it."""
        with _File(self._ids) as f:
            for at in range(self.first, len(self), MOST_IDS):
                block = f.read(at * ID_BYTES, min(MOST_IDS, len(self) - at) * ID_BYTES)
                yield from (block[i : i + ID_BYTES] for i in range(0, len(block), ID_BYTES))

    def offsets(self) -> memoryview:
        """Where all records begin in the file, and where the last one ends: one number more than there are records."""
        return _offsets(self._offsets, 0, len(self) + 1)

    def windows(self, multiple: int = 1) -> Iterator[Window]:
        """About 1 MiB of whole records at a time, a multiple of so many but at the end.

        The first window is read at once, further ones ahead, in a thread that ends with this iterator.
        """
        at, reading = self.first, self._read(self.first, multiple)
        ahead: Optional[ReadAhead[Window]] = None
        try:
            while at < len(self):
                if ahead is not None and not ahead.here():
                    ahead, reading = None, self._read(at, multiple)  # in a fork its thread is not there
                window = next(reading) if ahead is None else next(ahead)
                at += len(window.offsets) - 1
                if ahead is None and at < len(self):
                    ahead = ReadAhead(reading)
                yield window
        finally:
            reading.close() if ahead is None else ahead.close()

    def _read(self, at: int, multiple: int) -> Generator[Window, None, None]:
        """Reads the windows from record `at` on."""
        # The places of some records from `begin` on, and where the last one of them ends.
        begin, places, count = at, memoryview(b"").cast("Q"), FIRST_OFFSETS
        with _File(self.path) as data, _File(self._offsets) as index:
            while at < len(self):
                if begin + len(places) - 1 - at < multiple:
                    begin = at
                    places = index.numbers(begin, min(begin + max(count, multiple), len(self)) + 1)
                    count = min(2 * count, MOST_OFFSETS)
                first = at - begin
                last = bisect.bisect_right(places, places[first] + WINDOW, first) - 1
                last = min(first + max(1, (last - first) // multiple) * multiple, len(places) - 1)
                offsets = places[first : last + 1]
                yield Window(at, offsets, memoryview(data.read(offsets[0], offsets[-1] - offsets[0])))
                at = begin + last


class _File:
    """A file that is read by place. Whoever opens it closes it, in any thread."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> _File:
        try:
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as e:
            raise explained(e, self.path) from None
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # ENOTCONN, of a server that is gone; it is closed all the same
            os.close(self.descriptor)

    def read(self, at: int, size: int) -> bytes:
        """Exactly so many bytes."""
        try:
            data = os.pread(self.descriptor, size, at)
            while len(data) < size:  # a signal came between two requests
                more = os.pread(self.descriptor, size - len(data), at + len(data))
                if not more:
                    raise EOFError(f"{self.path}: it ends at {at + len(data)}, and was to have {at + size} bytes at least")
                data += more
        except OSError as e:
            raise explained(e, self.path) from None
        return data

    def numbers(self, begin: int, end: int) -> memoryview:
        """The little-endian numbers of 8 bytes at [begin, end)."""
        return memoryview(self.read(8 * begin, 8 * (end - begin))).cast("Q")


def _offsets(path: str, begin: int, end: int) -> memoryview:
    with _File(path) as f:
        return f.numbers(begin, end)
