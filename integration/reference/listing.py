"""RECORDS.md: which directories are listed."""

import os


def walk(top, above=()):
    """Is os.walk, but follows links. Links back up are left out, and so are names with a dot."""
    found = os.stat(top)
    above += ((found.st_dev, found.st_ino),)
    _, names, files = next(os.walk(top))
    dot = b"." if isinstance(top, bytes) else "."

    def wanted(name):
        to = os.stat(os.path.join(top, name))
        return not name.startswith(dot) and (to.st_dev, to.st_ino) not in above

    names[:] = [n for n in names if wanted(n)]
    yield top, names, [f for f in files if not f.startswith(dot)]
    for name in names:
        yield from walk(os.path.join(top, name), above)
