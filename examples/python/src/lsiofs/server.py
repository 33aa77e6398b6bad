"""The server of a mount: a process of ``lsiofs mount`` that ends with this one.

How the two are connected:

- Until its mount answers, the server writes messages to a pipe, one JSON object per line. One of
  them reports that it is mounted, or why not. Then it closes the pipe.
- It knows this process' number, and watches it (``--while-pid``): when this process ends in any
  way, the server unmounts, removes the mount point if it was made for it (``--rmdir``), and ends.
  Reads of remaining processes then fail.
- It has its own session, so that only this process handles Ctrl-C at a terminal.
- Its log goes to this process' stderr.
- All users of a machine can see the arguments of its processes. If one is a URL, which may contain
  a password or a signature, the server reads its arguments from a file in memory (``--args-fd``).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import tempfile
import time
import warnings
import weakref
from typing import Any, Mapping, Optional, Sequence, Union

from . import dead
from .errors import ArgumentError, MountError, MountWarning
from .program import command

log = logging.getLogger("lsiofs")

Value = Union[None, bool, int, float, str, "os.PathLike[str]", Sequence[Union[int, float, str]]]

# How long the server has for each step of its end: to let readers finish, to end without
# waiting for them, to be gone after it was killed.
READERS_SECONDS, ENDING_SECONDS = 0.5, 15.0


class Server:
    """A mount of `dataset`, ready to be read, at `mountpoint` or at a new directory.

    A mixture has no dataset: ``mix`` in `flags` names its sources. `flags` are those of ``lsiofs mount``,
    which checks them. `close` unmounts; so does the end of this process, and the end of this object.
    """

    def __init__(
        self, dataset: Optional[str], mountpoint: Optional[str], flags: Mapping[str, Value], program: Optional[str] = None
    ) -> None:
        if dataset is None and not flags.get("mix"):
            raise ArgumentError("name a dataset, as in mount('/data/train'), or the sources of a mixture, as in mount(mix=['web=70:/data/web', …])")
        self.program = program or command()
        own = mountpoint is None
        line = [f"--while-pid={os.getpid()}", *(["--rmdir"] if own else []), *arguments(flags)]
        self.mountpoint = os.path.abspath(mountpoint) if mountpoint is not None else _temporary(self.program)
        try:
            self.process, self.mounted = _start(self.program, line, [*([dataset] if dataset is not None else []), self.mountpoint])
            # It answers now. Its name may be a link.
            place, device = os.path.realpath(self.mountpoint), dead.device_of(self.mountpoint)
        except BaseException:
            if own:
                _remove(self.mountpoint)
            raise
        self._owner = os.getpid()
        self._closed = weakref.finalize(self, _end, self.process, self.program, place, device, own, self._owner)

    def close(self) -> bool:
        """Unmounts, and returns True. Files that are still open remain readable for a moment; after that, reads of them fail.

        In a fork of the process that mounted, it does nothing and returns False.
        """
        if os.getpid() != self._owner:
            return False
        self._closed()
        return True


def arguments(flags: Mapping[str, Value]) -> list[str]:
    """Flags of the command line for keyword arguments: batch=64 is --batch=64, allow_other=True is --allow-other.

    A _ at the end is removed, as in as_="tensors": some of the names are keywords of Python.
    """
    line = []
    for name, value in flags.items():
        if name in ("daemon", "log_file"):
            raise ArgumentError(f"{name} can't be given here, as this mount ends with its program: mount with the command lsiofs mount, and then call lsiofs.open")
        flag = "--" + name.rstrip("_").replace("_", "-")
        values = value if isinstance(value, (list, tuple)) else [value]
        for v in values:
            if v is not None:
                line.append(f"{flag}={_text(v)}")
    return line


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(os.fspath(value)) if isinstance(value, os.PathLike) else str(value)


def _start(program: str, flags: list[str], places: list[str]) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """Starts a server and waits until its mount answers. Returns the server's description of the mount."""
    reader, writer = os.pipe()
    passed, line = [writer], [*flags, f"--ready-fd={writer}", "--", *places]
    with open(reader, "rb") as messages:
        try:
            if any("://" in argument for argument in line):
                passed.append(_in_memory(line))
                line = [f"--args-fd={passed[-1]}", *(_shown(argument) for argument in line)]
            process = subprocess.Popen(
                [program, "mount", *line],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=passed, start_new_session=True,
            )
        except OSError as e:
            raise MountError(f"the command {program} can't be run: {e.strerror}: name another one in LSIOFS_COMMAND, or as command=") from e
        finally:
            for fd in passed:
                os.close(fd)
        try:
            return process, _await(process, messages)
        except BaseException:
            _stop(process)
            raise


def _in_memory(line: list[str]) -> int:
    """Arguments as the server reads them, in a file without a name."""
    fd = os.memfd_create("arguments")
    with open(fd, "wb", closefd=False) as file:
        file.write(b"".join(os.fsencode(argument) + b"\0" for argument in line))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _shown(argument: str) -> str:
    """An argument in a form that all users may see."""
    before, url, _ = argument.partition("://")
    return f"{before}{url}..." if url else argument


# What takes longer than the first is logged as a warning, which Python shows on stderr by default; then again after
# the second.
WAIT_SECONDS, AGAIN_SECONDS = 3.0, 30.0


def _await(process: subprocess.Popen[bytes], messages: Any) -> dict[str, Any]:
    due = time.monotonic() + WAIT_SECONDS
    for text in messages:
        message: dict[str, Any] = json.loads(text)
        if "mounted" in message:
            return dict(message["mounted"])
        if "error" in message:
            raise _failed(message["error"]["text"], message["error"]["code"])
        if "warning" in message:
            warnings.warn(message["warning"], MountWarning, stacklevel=5)
        doing = _doing(message)
        if doing and time.monotonic() < due:
            log.debug("lsiofs.mount: %s", doing)
        elif doing:
            log.warning("lsiofs.mount: %s", doing)
            due = time.monotonic() + AGAIN_SECONDS
    code = process.wait()
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    raise _failed(f"the server {how} before the mount was ready: its last lines on stderr may have the reason", code)


def _doing(message: Mapping[str, Any]) -> Optional[str]:
    """A text for what a mount is waiting for, from one of the server's messages."""
    if "progress" in message:
        p = message["progress"]
        if not p["ShardsTotal"]:
            return "listing the dataset"
        return f"indexing: {p['Shards']} of {p['ShardsTotal']} shards, {p['Records']} records so far"
    if "filling" in message:
        f = message["filling"]
        return f"filling the cache: {f['filled_bytes'] >> 20} of {f['filled_bytes_total'] >> 20} MiB"
    if "waiting" in message:
        return f"waiting: {message['waiting']['waiting']}"
    return None


def _failed(text: str, code: int) -> MountError:
    error = MountError(text)
    error.exit_code = code
    return error


def _end(process: subprocess.Popen[bytes], program: str, mountpoint: str, device: str, own: bool, owner: int) -> None:
    """Ends a server, cleanly if it can. In a fork of the process that started it, it does nothing.

    A server unmounts only its own mount. A killed server leaves a dead mount, which is removed here,
    unless another mount has replaced it.
    """
    if os.getpid() != owner:
        return
    if not _stop(process):
        dead.take_away(program, mountpoint, device)
    if own:
        _remove(mountpoint)


def _stop(process: subprocess.Popen[bytes]) -> bool:
    """Ends a server, and returns whether it unmounted by itself."""
    for seconds in (READERS_SECONDS, ENDING_SECONDS):
        # The first one lets readers finish, the second one doesn't.
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(seconds) >= 0
    process.kill()
    process.wait()
    return False


def _temporary(program: str) -> str:
    """A new directory to mount at. Directories of programs that were killed with their servers are removed."""
    try:
        directory = tempfile.gettempdir()
        dead.clean(program, directory)
        return tempfile.mkdtemp(prefix=dead.PREFIX)
    except OSError as e:
        raise MountError(f"no temporary directory to mount at can be made ({e.strerror}: {e.filename}): set TMPDIR, or name a mount point") from e


def _remove(directory: str) -> None:
    with contextlib.suppress(OSError):  # the server may have removed it
        os.rmdir(directory)
