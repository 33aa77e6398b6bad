"""A stream of a mount: the records of one file, in order.

    stream = lsiofs.Stream("/mnt/train/epoch-0/worker-0-of-4.tar")
    for record in stream: ...            # a memoryview of each record's bytes
    for sample in stream.samples(): ...  # the records, decoded as their format defines

A stream is a file in its format, which other programs can read. Next to it are a file with
the offsets of its records (``.offsets``: n+1 little-endian numbers of 8 bytes) and one with
their identifiers (``.ids``: n identifiers of 16 bytes). Records are read in windows of
1 MiB; a thread reads the next window while this one is used. A record is a view of its window.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import os
import sys
from typing import TYPE_CHECKING, Any, Generator, Iterator, NamedTuple, Optional, Protocol

from . import arrays, formats
from .errors import ArgumentError, OutOfRange, ReadError, StaleStream, explained, mount_root
from .readahead import ReadAhead

if TYPE_CHECKING:
    import numpy

# Bytes per read: one request, because its buffer begins within a page. malloc returns the memory of larger
# buffers to the kernel, which clears it again: with 4 MiB, a page fault every 10 KB, half of a read's time.
WINDOW = (1 << 20) - 4096
FIRST_OFFSETS, MOST_OFFSETS = 4096, 131072  # records whose offsets are read at a time: increasing, up to 1 MiB
ID_BYTES, MOST_IDS = 16, 65536  # of an identifier; read at a time


class Window(NamedTuple):
    """Records that were read together."""

    first: int  # the number of the first one, in the file
    offsets: memoryview  # where they begin in the file, and where the last one ends
    data: memoryview


class Owner(Protocol):
    """The mount that a stream belongs to."""

    def _check(self) -> int:
        """Raises an error unless the mount is still the same. Returns its device."""


class Stream:
    """The records of a worker's file, from `first` on.

    `path` is the file, such as ``MNT/worker-0.tar`` or ``MNT/epoch-0/worker-0-of-4.tar``. `format` is
    the dataset's (``tar``, ``jsonl``, ``lines``, ``tfrecord``, ``npy``, ``fixed``, ``lc0``, ``files``);
    without it, the file's extension determines what `samples` yields.

    It can be iterated any number of times, also concurrently, in any thread and after a fork.
    Each iteration opens the file again and reads its current content: after a restore of the
    mount's checkpoint, ``worker-0.tar`` is a different file. A restore during an iteration raises
    `StaleStream`, and so does a file other than the one that `first` refers to. ``len()`` is the
    number of all records in the file now, including those before `first`.
    """

    def __init__(
        self, path: str | os.PathLike[str], first: int = 0, format: Optional[str] = None, *, owner: Optional[Owner] = None
    ) -> None:
        self.path = os.fspath(path)
        self._owner = owner  # of the mount, which ends when nothing refers to it
        self.first = first
        self._limit = sys.maxsize  # maximum number of records of the file; `Epoch` excludes padding
        if first < 0:
            raise ArgumentError(f"{self.path}: first ({first}) must be at least 0")
        stem, extension = os.path.splitext(self.path)
        self.format = format or formats.of_extension(extension)
        self._offsets, self._ids = stem + ".offsets", stem + ".ids"
        # A file below epoch-E never changes, nor does its inode number.
        self._constant = "-of-" in os.path.basename(stem)
        with self._opened(self._offsets) as index:
            self._counted = self._generation(index)

    def __len__(self) -> int:
        with self._opened(self._offsets) as index:
            return min(index.numbers_in_it() - 1, self._limit)

    def __repr__(self) -> str:
        return f"lsiofs.Stream({self.path!r}, first={self.first}, format={self.format!r})"

    def __iter__(self) -> Iterator[memoryview]:
        return self.records()

    def __getitem__(self, number: int) -> memoryview:
        """One record, by its number in the file. It is read separately, and nothing else is read."""
        with self._both() as both:
            try:
                at = range(both.records)[number]
            except IndexError:
                raise OutOfRange(f"{self.path} has {both.records} records, and no record {number}") from None
            begin, end = both.index.numbers(at, at + 2)
            return memoryview(both.data.read(begin, end - begin))

    def records(self) -> Iterator[memoryview]:
        """Views of the records' bytes.

        A view stays valid as long as it is referenced, and keeps its window of 1 MiB in memory. A
        program that keeps records should copy them: ``bytes(record)``.
        """
        for window in self.windows():
            data, (start, *ends) = window.data, window.offsets.tolist()
            begin = 0
            for end in ends:
                yield data[begin : (begin := end - start)]

    def samples(self) -> Iterator[Any]:
        """The records, decoded as their format defines.

        ==============  =====================================================================
        tar, files      a dict: each member's data by its extension, and ``"__key__"``, a str
        jsonl           the result of ``json.loads``
        lines           a str, without the end of the line
        tfrecord        the payload
        npy             a row, as numpy returns it
        fixed, lc0      the record; `arrays` returns them as numpy rows
        ==============  =====================================================================

        The data is a copy, which can be kept.
        """
        if self.format == "npy":
            return (row for batch in self.arrays(1024) for row in batch)
        return formats.samples(self.format, self.windows())

    def arrays(self, records: int, dtype: Any = None) -> Iterator[numpy.ndarray[Any, Any]]:
        """Numpy arrays of so many consecutive records; the last one may have fewer.

        `dtype` is the type of a record of ``fixed`` or ``lc0``; that of ``npy`` is known. Arrays are
        writable. They are views of about 1 MiB that was read at once, which stays in memory with them.
        """
        if records < 1:
            raise ArgumentError(f"arrays({records}): the number of records must be at least 1")
        return arrays.batches(self.path, self.format, self.windows(records), records, dtype)

    def ids(self) -> Iterator[bytes]:
        """The records' identifiers, the same in every epoch: 8 bytes of a hash of the shard's path, 8 of the number in it."""
        with self._opened(self._ids) as f:
            self._check_first(f)
            end = min(f.size // ID_BYTES, self._limit)
            for at in range(self.first, end, MOST_IDS):
                block = f.read(at * ID_BYTES, min(MOST_IDS, end - at) * ID_BYTES)
                yield from (block[i : i + ID_BYTES] for i in range(0, len(block), ID_BYTES))

    def offsets(self) -> memoryview:
        """The offsets at which records begin in the file, and the end of the last one: n + 1 numbers."""
        with self._opened(self._offsets) as f:
            return f.numbers(0, min(f.numbers_in_it() - 1, self._limit) + 1)

    def windows(self, multiple: int = 1) -> Iterator[Window]:
        """About 1 MiB of whole records at a time, a multiple of so many except at the end.

        The first window is read immediately, the next ones ahead, in a thread that ends with this iterator.
        """
        both = self._both()
        ahead: Optional[ReadAhead[Window]] = None
        try:
            self._check_first(both.index)
            at, end, generation = self.first, both.records, self._generation(both.index)
            reading = _read(both, at, multiple)
            while at < end:
                if ahead is not None and not ahead.here():
                    # After a fork, its thread does not exist.
                    ahead, both = None, self._both()
                    if self._generation(both.index) != generation:
                        raise self._restored("a checkpoint was restored since this iteration began: begin it anew")
                    reading = _read(both, at, multiple)
                window = next(reading) if ahead is None else next(ahead)
                at += len(window.offsets) - 1
                if ahead is None and at < end:
                    ahead = ReadAhead(reading)
                yield window
        finally:
            if ahead is None:
                both.close()
            else:
                ahead.close()  # its thread closes the files

    def _both(self) -> _Both:
        """The file and its index, of the same generation: no checkpoint was restored in between."""
        while True:
            data = self._opened(self.path)
            try:
                index = self._opened(self._offsets)
            except BaseException:
                data.close()
                raise
            if (data.device, data.time) == (index.device, index.time) or mount_root(self.path) is None:
                return _Both(data, index, self._limit)
            data.close()
            index.close()

    def _opened(self, path: str) -> _File:
        """A file of the mount, if it is still the mount that the stream belongs to."""
        try:
            f = _File(path)
        except ReadError as e:
            if self._owner is not None and e.errno in (errno.ENOENT, errno.ENOTDIR):
                self._owner._check()
            raise
        if self._owner is not None:
            try:
                device = self._owner._check()
                if device != f.device:  # remounted in between, with the same content
                    raise self._restored("another mount took this one's place while the file was opened: open it again")
            except BaseException:
                f.close()
                raise
        return f

    def _generation(self, f: _File) -> object:
        """Differs between two openings of different content. Files of a worker have the time of the restore that made them."""
        return f.inode if self._constant else (f.device, f.time)

    def _check_first(self, f: _File) -> None:
        """Raises an error if `first` refers to content other than f's, which is the index or the ids."""
        comparable = f.path == self._offsets or not self._constant
        if self.first and comparable and self._generation(f) != self._counted:
            raise self._restored(f"a checkpoint was restored since record {self.first} of this file was named: make the stream anew")

    def _restored(self, text: str) -> StaleStream:
        return StaleStream(errno.ESTALE, text, self.path)


def _read(both: _Both, at: int, multiple: int) -> Generator[Window, None, None]:
    """Reads the windows from record `at` on, and closes the files."""
    # The offsets of some records from `begin` on, and the end of the last one.
    begin, places, count = at, memoryview(b"").cast("Q"), FIRST_OFFSETS
    try:
        while at < both.records:
            if begin + len(places) - 1 - at < multiple:
                begin = at
                places = both.index.numbers(begin, min(begin + max(count, multiple), both.records) + 1)
                count = min(2 * count, MOST_OFFSETS)
            first = at - begin
            last = bisect.bisect_right(places, places[first] + WINDOW, first) - 1
            last = min(first + max(1, (last - first) // multiple) * multiple, len(places) - 1)
            offsets = places[first : last + 1]
            yield Window(at, offsets, memoryview(both.data.read(offsets[0], offsets[-1] - offsets[0])))
            at = begin + last
    finally:
        both.close()


class _File:
    """An open file that is read at given offsets. The code that opens it closes it, in any thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as e:
            raise explained(e, path) from None
        st = os.fstat(self.descriptor)
        self.size, self.device, self.inode, self.time = st.st_size, st.st_dev, st.st_ino, st.st_mtime_ns

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # ENOTCONN if the server is gone; it is closed anyway
                os.close(descriptor)

    def read(self, at: int, size: int) -> bytes:
        """Reads exactly this many bytes."""
        try:
            data = os.pread(self.descriptor, size, at)
            while len(data) < size:  # a signal came between two requests
                more = os.pread(self.descriptor, size - len(data), at + len(data))
                if not more:
                    raise ReadError(errno.EIO, f"the file ends at byte {at + len(data)}, before the {at + size} that it should have", self.path)
                data += more
        except OSError as e:
            raise explained(e, self.path) from None
        return data

    def numbers(self, begin: int, end: int) -> memoryview:
        """The little-endian numbers of 8 bytes at [begin, end)."""
        return memoryview(self.read(8 * begin, 8 * (end - begin))).cast("Q")

    def numbers_in_it(self) -> int:
        return self.size // 8


class _Both:
    """A stream's data and its index, opened together."""

    def __init__(self, data: _File, index: _File, limit: int) -> None:
        self.data, self.index, self.records = data, index, min(index.numbers_in_it() - 1, limit)

    def __enter__(self) -> _Both:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.data.close()
        self.index.close()
