"""Reading ahead: a thread takes the next items of an iterator while this one is used.

Reading from a mount does not hold Python's global lock, so it continues while the program
parses, decodes or trains.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any, Generator, Generic, TypeVar

T = TypeVar("T")

AHEAD = 2  # maximum number of items that are being read, or read and not taken yet
CLOSING_SECONDS = 1.0  # how long close waits for a read in progress


class _End:
    """The thread's last message: how the iterator ended."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class ReadAhead(Generic[T]):
    """Iterates over the items of a generator, which runs in a thread, AHEAD items ahead.

    This object takes over the generator, and the thread closes it. An error of the generator is
    raised in place of its item. The thread ends with the generator or with `close`, which the
    owner of this object must call; it does not keep the program from ending.

    A thread does not survive a fork: `here` is whether this is still its process.
    """

    def __init__(self, items: Generator[T, None, None]) -> None:
        self._ready: SimpleQueue[Any] = SimpleQueue()
        self._room: SimpleQueue[bool] = SimpleQueue()  # True: take one more. False: end.
        self._process = os.getpid()
        for _ in range(AHEAD):
            self._room.put(True)
        # It has no reference to this object, which could otherwise never be garbage collected.
        self._thread = threading.Thread(target=_run, args=(items, self._room, self._ready), name="lsiofs-read-ahead", daemon=True)
        self._thread.start()

    def here(self) -> bool:
        return os.getpid() == self._process

    def __iter__(self) -> ReadAhead[T]:
        return self

    def __next__(self) -> T:
        item = self._ready.get()
        if isinstance(item, _End):
            self._ready.put(item)  # for another call after the end
            raise item.error
        self._room.put(True)
        return item  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the thread. It waits only a moment for a read that storage does not answer."""
        if not self.here():
            return
        self._room.put(False)
        if threading.current_thread() is not self._thread and not sys.is_finalizing():
            self._thread.join(CLOSING_SECONDS)


def _run(items: Generator[T, None, None], room: SimpleQueue[bool], ready: SimpleQueue[Any]) -> None:
    # Signals are handled by other threads: one here would interrupt a read.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    end: BaseException = StopIteration()
    try:
        for _ in iter(room.get, False):
            ready.put(next(items))
    except BaseException as e:  # noqa: B902 - any error is raised in place of the item
        end = e
    finally:
        items.close()
        ready.put(_End(end))
