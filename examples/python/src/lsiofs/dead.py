"""Dead mounts: those whose server was killed. Nothing can be read there until they are taken away."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from typing import NamedTuple

from .errors import GONE

PREFIX = "lsiofs-"  # of the names of temporary mount points

_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")
_ANSWER_SECONDS = 2.0


class Entry(NamedTuple):
    device: str  # major:minor
    point: str
    type: str
    options: str


def take_away(program: str, mountpoint: str, device: str) -> None:
    """Detaches the mount of this device from its place, a path without links, if it is there and dead."""
    if device_at(mountpoint) == device and _is_dead(mountpoint):
        arguments = [program, "umount", "--lazy", mountpoint]
        with contextlib.suppress(OSError):
            subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def clean(program: str, directory: str) -> None:
    """Takes away the user's dead mounts that programs had made in a directory for temporary files.

    A program and its server that are killed together, as at the end of a cluster's job, leave one.
    """
    directory = os.path.realpath(directory)
    for entry in entries():
        parent, name = os.path.split(entry.point)
        if parent != directory or not _NAME.fullmatch(name) or entry.type != "fuse.lsiofs":
            continue
        if f"user_id={os.getuid()}" in entry.options.split(","):
            take_away(program, entry.point, entry.device)
            with contextlib.suppress(OSError):  # it is not empty, or somebody else was faster
                if device_at(entry.point) == "":
                    os.rmdir(entry.point)


def device_of(path: str) -> str:
    """The device that a path is on."""
    device = os.stat(path).st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def device_at(place: str) -> str:
    """The device of the uppermost mount at a place, "" where there is none. It touches no mount, so dead ones can't block it."""
    found = [entry.device for entry in entries() if entry.point == place]
    return found[-1] if found else ""


def entries() -> list[Entry]:
    """The mounts that this process sees (proc_pid_mountinfo(5)), in the order in which they were made."""
    found = []
    with open("/proc/self/mountinfo", "rb") as f:
        for line in os.fsdecode(f.read()).splitlines():
            left, separator, right = line.partition(" - ")
            fields, more = left.split(" "), right.split(" ")
            if separator and len(fields) > 4 and len(more) > 2:
                found.append(Entry(fields[2], re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4]), more[0], more[2]))
    return found


def _is_dead(mountpoint: str) -> bool:
    """Whether the mount's server has ended. A stopped server does not answer at all, but is not dead."""
    answers: list[bool] = []

    def look() -> None:
        try:
            os.stat(mountpoint)
            answers.append(False)
        except OSError as e:
            answers.append(e.errno in GONE)

    thread = threading.Thread(target=look, name="lsiofs-look", daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    return answers == [True]
