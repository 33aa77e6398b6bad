"""Makes wheels of lsiofs from this directory, using only Python.

pip uses it as the build backend of pyproject.toml: that wheel has only the library, and works on
any machine. A release uses it from the command line:

    python3 make_wheel.py --command BINARY --arch amd64 --version v1.2.3 --licenses FILE OUTDIR

That wheel also has the static binary, as a script: pip installs it next to python and pip, and
makes it executable. So the command starts without Python, and the library finds it in pip's
records. The same files give the same bytes on every machine: a wheel is a zip, and its entries
are sorted here, stored instead of compressed with the machine's zlib, and have the same date.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import os
import pathlib
import re
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent

# Static binaries run with any C library, so the tags are for both glibc and musl.
PLATFORMS = {
    "amd64": ["manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"],
    "arm64": ["manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"],
}
DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can have


# pip calls these functions (PEP 517 and 660), with pyproject.toml's directory as working directory.


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write(wheel_directory, library(), project())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """pip install -e: a path to the sources."""
    return write(wheel_directory, {"lsiofs.pth": f"{HERE / 'src'}\n".encode()}, project())


def build_sdist(sdist_directory, config_settings=None):
    known = project()
    name = f"lsiofs-{known['version']}"
    files = {str(p.relative_to(HERE)): p.read_bytes() for p in sorted(HERE.rglob("*")) if p.suffix in (".py", ".toml", ".md", ".typed")}
    files["PKG-INFO"] = metadata(known).encode()
    with tarfile.open(os.path.join(sdist_directory, name + ".tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return name + ".tar.gz"


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_editable = get_requires_for_build_sdist = get_requires_for_build_wheel


# Shared by all of them.


def project():
    """The table [project] of pyproject.toml."""
    try:
        import tomllib
    except ImportError:  # Python 3.9 and 3.10
        import tomli as tomllib
    return tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]


def library():
    """Returns the files of the package by their names in a wheel."""
    source = HERE / "src"
    return {str(p.relative_to(source)): p.read_bytes() for p in source.rglob("*") if p.suffix in (".py", ".typed")}


def metadata(known):
    lines = [
        "Metadata-Version: 2.1", f"Name: {known['name']}", f"Version: {known['version']}", f"Summary: {known['description']}",
        f"Keywords: {','.join(known['keywords'])}", f"License: {known['license']['text']}",
        *(f"Classifier: {c}" for c in known["classifiers"]), *(f"Project-URL: {name}, {url}" for name, url in known["urls"].items()),
        f"Requires-Python: {known['requires-python']}", "Description-Content-Type: text/markdown", "",
    ]
    return "\n".join(lines) + "\n" + (HERE / known["readme"]).read_text("utf-8")


def write(directory, files, known, platforms=(), programs=(), licenses=None):
    """Writes a wheel of files (bytes by name), and returns its name."""
    stem = f"lsiofs-{known['version']}"
    tags = [f"py3-none-{p}" for p in platforms or ["any"]]
    files = {**files, f"{stem}.dist-info/METADATA": metadata(known).encode()}
    head = f"Wheel-Version: 1.0\nGenerator: lsiofs\nRoot-Is-Purelib: {str(not platforms).lower()}\n"
    files[f"{stem}.dist-info/WHEEL"] = (head + "".join(f"Tag: {t}\n" for t in tags)).encode()
    if licenses is not None:
        files[f"{stem}.dist-info/LICENSES.txt"] = licenses
    for program, data in programs:
        files[f"{stem}.data/scripts/{program}"] = data
    record = f"{stem}.dist-info/RECORD"
    files[record] = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in sorted(files.items())).encode() + f"{record},,\n".encode()
    name = f"{stem}-py3-none-{'.'.join(platforms or ['any'])}.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w", zipfile.ZIP_STORED) as wheel:
        # RECORD comes last, as the standard recommends.
        for path, data in sorted(files.items(), key=lambda f: (f[0] == record, f[0])):
            entry = zipfile.ZipInfo(path, DATE)
            entry.create_system = 3  # Unix: the modes below are Unix modes
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            wheel.writestr(entry, data)
    return name


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def python_version(tag):
    """A release's version as Python writes versions: v1.2.3-rc.1 is 1.2.3rc1, v1.2.3-test is 1.2.3.dev0+test."""
    found = re.fullmatch(r"v(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.-]+))?", tag)
    if not found:
        raise SystemExit(f"make_wheel.py: {tag} is no version: write v1.2.3")
    release, extra = found.groups()
    if not extra:
        return release
    pre = re.fullmatch(r"(alpha|beta|rc)\.?(\d+)", extra)
    if pre:
        return release + {"alpha": "a", "beta": "b", "rc": "rc"}[pre[1]] + str(int(pre[2]))
    return f"{release}.dev0+{re.sub('[.-]+', '.', extra).strip('.').lower()}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--command", required=True, help="the static binary")
    p.add_argument("--arch", required=True, choices=PLATFORMS, help="what it runs on, as Go calls it")
    p.add_argument("--version", required=True, help="of the release, as v1.2.3")
    p.add_argument("--licenses", required=True, help="the licences of all that is in the binary")
    p.add_argument("directory")
    a = p.parse_args()
    known = {**project(), "version": python_version(a.version)}
    program = pathlib.Path(a.command).read_bytes()
    licenses = pathlib.Path(a.licenses).read_bytes()
    print(write(a.directory, library(), known, PLATFORMS[a.arch], [("lsiofs", program)], licenses))


if __name__ == "__main__":
    main()
