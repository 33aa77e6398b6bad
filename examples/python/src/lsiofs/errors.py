"""Errors, with the messages of the server.

A read of a mount fails with an errno and nothing else; the words are in the mount's
``status.json``. `explained` puts the two together. All errors of this package are an
`Error`, those of reading an `OSError` as well, with the errno that the kernel gave.
"""

from __future__ import annotations

import errno
import json
import os
from typing import Any, Optional

__all__ = [
    "ArgumentError", "CommandNotFound", "EpochNotReady", "Error", "MountClosed", "MountError", "MountWarning", "OutOfRange", "ReadError",
    "ServerDied", "StaleStream", "StateError", "explained",
]

# Errors of reading a mount whose server has ended or is ending.
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED)


class Error(Exception):
    """An error of lsiofs."""


class MountWarning(UserWarning):
    """Something about a mount, or about how it is used, that is likely not what was meant."""


class ArgumentError(Error, TypeError, ValueError):
    """A function was called with what it can't take."""


class OutOfRange(Error, IndexError):
    """There is no such record, worker or class."""


class CommandNotFound(Error, FileNotFoundError):
    """The command ``lsiofs``, which serves mounts, is nowhere to be found."""


class MountError(Error):
    """The server could not mount. The text is the server's own.

    ``exit_code`` is the command's: 2 a wrong flag, 3 the dataset, 4 the mount point, 5 a
    checkpoint (``lsiofs mount --help`` lists them); negative, a signal that ended it.
    """

    exit_code: int = 1


class ReadError(Error, OSError):
    """A record could not be read: its shard is damaged, deleted or changed, or its storage does not answer.

    Other records can still be read, and this one once the cause is gone.
    """


class ServerDied(ReadError):
    """The mount's server has ended, or was killed. Mount again, from the last saved state."""


class MountClosed(ServerDied):
    """The mount was closed or unmounted, or another mount is at its place by now."""


class StaleStream(ReadError):
    """A checkpoint was restored after this worker file was opened. Open it again."""


class EpochNotReady(Error):
    """An epoch of a growing dataset can't begin yet. `Mount.wait` waits for it."""


class StateError(Error, ValueError):
    """A saved state does not fit: another dataset, another order, or no state at all."""


def explained(error: OSError, path: str) -> OSError:
    """Returns the error to raise for one that reading `path` has met."""
    if isinstance(error, Error):
        return error
    if error.errno in GONE:
        return _died(error, path)
    if error.errno == errno.ESTALE:
        text = "a checkpoint was restored after this file was opened: open it again"
        return StaleStream(error.errno, text, path)
    if error.errno != errno.EIO:
        return ReadError(error.errno, error.strerror, path)
    words: Optional[str] = None
    try:
        words = _words(path)
    except OSError as e:
        # What is under way when a server dies gets EIO.
        if e.errno in GONE:
            return _died(e, path)
    return ReadError(errno.EIO, words or "the read failed, and the mount's status can't be read", path)


def _died(error: OSError, path: str) -> OSError:
    text = "the server of this mount has ended or was killed: mount again, and go on from the state that was saved last"
    return ServerDied(error.errno, text, path)


def _words(path: str) -> Optional[str]:
    """The server's last words about a file of its mount, else its last ones about any."""
    root = mount_root(path)
    if root is None:
        return None
    with open(os.path.join(root, "status.json"), "rb") as f:
        problems: list[dict[str, Any]] = json.load(f)["last_errors"] or []
    name = os.path.relpath(path, root)
    texts = [str(p["text"]) for p in problems]
    about = [t for t in texts if t.startswith(name + ": ")]
    found = about or texts
    return found[-1] if found else None


def mount_root(path: str) -> Optional[str]:
    """The mount that a file belongs to. Its deepest files are MNT/epoch-E/from-M/FILE.

    Raises the OSError of a mount whose server has ended.
    """
    directory = os.path.dirname(os.path.abspath(path))
    for _ in range(3):
        try:
            os.stat(os.path.join(directory, "status.json"))
            return directory
        except (FileNotFoundError, NotADirectoryError):
            directory = os.path.dirname(directory)
    return None
