"""Reading ahead: a thread takes the next items of an iterator while this one is used.

Reading from a mount does not hold Python's global lock, so it goes on while the program
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

AHEAD = 2  # items that are read and not taken yet, or being read, at most
CLOSING_SECONDS = 1.0  # how long close waits for a read that is under way


class _End:
    """What the thread says last: how the iterator has ended."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class ReadAhead(Generic[T]):
    """Iterates over what a generator gives, which runs in a thread and is AHEAD items ahead.

    The generator is this object's from now on, and is closed by the thread. An error that it
    raises is raised where its item would have come. The thread ends with the generator or with
    `close`, which whoever made this object calls; it does not keep the program from ending.

    A thread does not survive a fork: `here` says whether this is still its process.
    """

    def __init__(self, items: Generator[T, None, None]) -> None:
        self._ready: SimpleQueue[Any] = SimpleQueue()
        self._room: SimpleQueue[bool] = SimpleQueue()  # True: take one more. False: end.
        self._process = os.getpid()
        for _ in range(AHEAD):
            self._room.put(True)
        # It does not know this object, nor so whoever uses it, who could never be found unused.
        self._thread = threading.Thread(target=_run, args=(items, self._room, self._ready), name="lsiofs-read-ahead", daemon=True)
        self._thread.start()

    def here(self) -> bool:
        return os.getpid() == self._process

    def __iter__(self) -> ReadAhead[T]:
        return self

    def __next__(self) -> T:
        item = self._ready.get()
        if isinstance(item, _End):
            self._ready.put(item)  # for whoever asks once more
            raise item.error
        self._room.put(True)
        return item  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the thread. A read that storage does not answer is waited for no longer than a moment."""
        if not self.here():
            return
        self._room.put(False)
        if threading.current_thread() is not self._thread and not sys.is_finalizing():
            self._thread.join(CLOSING_SECONDS)


def _run(items: Generator[T, None, None], room: SimpleQueue[bool], ready: SimpleQueue[Any]) -> None:
    # Signals are for other threads: one that came here would break off a read.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    end: BaseException = StopIteration()
    try:
        for _ in iter(room.get, False):
            ready.put(next(items))
    except BaseException as e:  # noqa: B902 - whatever it is, it is raised where the item was wanted
        end = e
    finally:
        items.close()
        ready.put(_End(end))
