"""Which mount a path was, and whether it still is.

A path stands for a mount only as long as that mount is there: its server may have died, and
another mount, of another dataset or in another order, may be at the same place by now. Each
mount draws an identity (``mount_id`` in its ``status.json``). Reading that takes a
millisecond, so the device of the mount's root and the time when the mount was made are
compared first; the kernel gives a device number again, but not with the same time.
"""

from __future__ import annotations

import errno
import json
import os
from typing import Any, Mapping, Optional

from .errors import GONE, Error, MountClosed, StateError, explained

# What streams follow from, besides the paths of their files.
_CONTENT = ("fingerprint", "run", "order", "deal", "format", "extension", "rows")


class Identity:
    """The mount that was at `path` when this was made.

    `owned` is set for a mount that this program made. One that somebody else made may be
    replaced by another mount of the same dataset in the same order, as a service that starts
    anew does.
    """

    def __init__(self, path: str, owned: bool) -> None:
        self.path, self.owned, self.closed = path, owned, False
        self.root = self._root()
        self.info = self.json("dataset.json")
        self.id = self._id()
        self.run: Optional[str] = self._run()
        self._content = self._content_of(self.info)

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def check(self) -> tuple[int, int]:
        """Raises an error unless `path` is still this mount, or one that gives the same. Returns what `_root` does."""
        if self.closed:
            raise MountClosed(errno.ENOTCONN, "this mount is closed: its with block has ended, or close() was called", self.path)
        root = self._root()
        if root == self.root:
            return root
        # Not the same root, so these are read of whatever is at the place now.
        if self._id() != self.id:
            if self.owned:
                raise MountClosed(errno.ENOTCONN, "this mount has ended, and another mount is at its place", self.path)
            info = self.json("dataset.json")
            run = self._run()
            differing = differences(self._content, {**self._content_of(info), "run": run}, _CONTENT)
            if differing:
                raise StateError(f"{self.path} is another mount now: {'; '.join(differing)}: open it again (lsiofs.open)")
            self.id, self.info = self._id(), info
        self.root = root
        return root

    def json(self, name: str) -> dict[str, Any]:
        """A document of the mount."""
        path = os.path.join(self.path, name)
        try:
            with open(path, "rb") as f:
                return dict(json.load(f))
        except FileNotFoundError:
            raise self.gone(f"it has no {name}") from None
        except OSError as e:
            raise explained(e, path) from None

    def gone(self, what: str) -> Error:
        """The error for a mount that is not there, or never was."""
        if hasattr(self, "id"):
            return MountClosed(errno.ENOTCONN, f"this mount is gone: it was unmounted ({what})", self.path)
        return Error(f"{self.path} is not a mount of lsiofs: {what}")

    def _root(self) -> tuple[int, int]:
        """The device of the mount, and when it was made."""
        try:
            st = os.stat(self.path)
        except OSError as e:
            if e.errno in GONE:
                raise explained(e, self.path) from None
            raise self.gone(f"{e.strerror}") from None
        return st.st_dev, st.st_mtime_ns

    def _id(self) -> str:
        status = self.json("status.json")
        if "mount_id" not in status:
            raise Error(f"{self.path} is a mount of another version of lsiofs ({status.get('version')}), whose status has no mount_id: use the package of that version, or mount with this one")
        return str(status["mount_id"])

    def _run(self) -> Optional[str]:
        run = self.json("checkpoint").get("run")
        return None if run is None else str(run)

    def _content_of(self, info: Mapping[str, Any]) -> dict[str, Any]:
        content = {name: info.get(name) for name in _CONTENT}
        content["run"] = self.run
        content["deal"] = {name: value for name, value in info["deal"].items() if name != "workers"}
        if self.run is not None:
            content["fingerprint"] = None  # that of the current epoch; the run names all
        return content


def differences(was: Mapping[str, Any], now: Mapping[str, Any], names: Any = None) -> list[str]:
    """In words, what differs between two documents."""
    found = []
    for name in names or [*was, *(n for n in now if n not in was)]:
        a, b = was.get(name), now.get(name)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b)
        elif name in ("fingerprint", "dataset"):
            found.append(f"dataset was {a!s:.16}…, and is {b!s:.16}…")
        else:
            found.append(f"{name} was {a!r}, and is {b!r}")
    return found
