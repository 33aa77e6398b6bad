"""How records are decoded, for each format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, Iterator

from . import tar_samples

if TYPE_CHECKING:
    from .stream import Window

_EXTENSIONS = {".tar": "tar", ".jsonl": "jsonl", ".ndjson": "jsonl", ".tfrecord": "tfrecord", ".npy": "npy", ".bin": "fixed"}

# A TFRecord frame: 8 bytes of length, 4 of its CRC, the payload, 4 of its CRC.
_FRAME_HEAD, _FRAME_TAIL = 12, 4


def of_extension(extension: str) -> str:
    """The format of a stream with this extension, if nothing else defines it."""
    return _EXTENSIONS.get(extension, "lines")


def parser(format: str) -> Callable[[memoryview], Any]:
    """The function that converts a record to a sample."""
    return _PARSERS.get(format, _as_it_is)


def samples(format: str, windows: Iterator[Window]) -> Iterator[Any]:
    """The samples of windows, one after the other."""
    parse = parser(format)
    for window in windows:
        data, (start, *ends) = window.data, window.offsets.tolist()
        if parse is tar_samples.tar_sample:
            yield from tar_samples.samples(data, [end - start for end in ends])
            continue
        begin = 0
        for end in ends:
            yield parse(data[begin : (begin := end - start)])


def _json(record: memoryview) -> Any:
    return json.loads(str(record, "utf-8"))


def _line(record: memoryview) -> str:
    # Bytes that are no UTF-8 stay what they are, as in names of files.
    return str(record, "utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")


def _payload(record: memoryview) -> bytes:
    return bytes(record[_FRAME_HEAD:-_FRAME_TAIL])


def _as_it_is(record: memoryview) -> bytes:
    return bytes(record)


_PARSERS: dict[str, Callable[[memoryview], Any]] = {
    "tar": tar_samples.tar_sample,
    "files": tar_samples.tar_sample,
    "jsonl": _json,
    "lines": _line,
    "tfrecord": _payload,
}
