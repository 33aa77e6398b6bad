"""Finds the command ``lsiofs``: the program that serves mounts."""

from __future__ import annotations

import os
import shutil
import sysconfig
from importlib import metadata
from typing import Optional

from .errors import CommandNotFound

VARIABLE = "LSIOFS_COMMAND"  # names another program


def command() -> str:
    """The path of the command: the one that $LSIOFS_COMMAND names, else that of this package, else the first in PATH.

    A wheel for this machine brings the command, which pip lays beside ``python`` and ``pip``. It is
    of the same version as this library, so it comes before PATH.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if _runs(named):
            return named
        raise CommandNotFound(f"{VARIABLE} is {named}, which is not a program that can be run")
    found = _installed() or shutil.which("lsiofs")
    if found:
        return found
    raise CommandNotFound(
        "the command lsiofs is not found: install a wheel that includes it (pip install lsiofs-*.whl of the release for this machine), "
        "or put the release's binary into a directory of PATH as lsiofs, or install it with Go (CGO_ENABLED=0 go install ./cmd/lsiofs), "
        f"or set {VARIABLE} to its path"
    )


def _installed() -> Optional[str]:
    """What pip has installed with this package: it has noted where, but for pip install --target."""
    try:
        files = metadata.files("lsiofs") or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == "lsiofs":
            beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", "lsiofs")
            for path in (os.path.normpath(str(file.locate())), beside, os.path.join(sysconfig.get_path("scripts"), "lsiofs")):
                if _runs(path):
                    return path
    return None


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
