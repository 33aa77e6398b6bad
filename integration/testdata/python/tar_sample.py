"""Holds lsiofs.tar_sample against tarfile, over random samples in tarfile's three formats: tar_sample.py EXAMPLES."""

import io
import random
import sys
import tarfile

sys.path.insert(0, sys.argv[1])
import lsiofs  # noqa: E402


def reference(archive):
    sample = {}
    for m in tarfile.open(fileobj=io.BytesIO(archive)):
        base, top = m.name.rpartition("/")[2], m.name.split("/")[0]
        hidden = len(top) >= 4 and top.startswith("__") and top.endswith("__")
        if m.type in (b"0", b"\0", b"7") and base.find(".") > 0 and not hidden:
            dot = m.name.index(".", len(m.name) - len(base))
            sample["__key__"] = m.name[:dot].encode("utf-8", "surrogateescape")
            sample[m.name[dot + 1 :]] = archive[m.offset_data : m.offset_data + m.size]
    return sample


def random_sample(r):
    out = io.BytesIO()
    archive = tarfile.open(fileobj=out, mode="w", format=r.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    directory = "".join("d" * r.choice([1, 5, 40]) + "/" for _ in range(r.randrange(4)))
    if r.random() < 0.1:
        directory = "__x__/" + directory
    key = directory + "k" * r.choice([1, 8, 60, 90, 99])
    if r.random() < 0.2:
        key = key.replace("k", "é", 1)
    for extension in ["jpg", "a.b", "", "json", "cls"]:
        member = tarfile.TarInfo(key + "." + extension)
        data = r.randbytes(r.choice([0, 1, 511, 512, 513, 9000]))
        member.size, member.mtime = len(data), r.choice([5, 1700000000.25])
        if r.random() < 0.2:
            member.pax_headers = {"comment": "of two lines\n15 path=other\n"}
        others = []
        if r.random() < 0.1:
            others.append(tarfile.TarInfo("LICENSE"))
        if r.random() < 0.1:
            others.append(tarfile.TarInfo(key + ".link"))
            others[-1].type, others[-1].linkname = tarfile.SYMTYPE, "elsewhere"
        try:
            archive.addfile(member, io.BytesIO(data))
            for m in others:
                archive.addfile(m)
        except ValueError:  # ustar has no room for the name
            pass
    return out.getvalue()[: archive.offset]


def main():
    r, compared = random.Random(1), 0
    for _ in range(2000):
        archive = random_sample(r)
        if not archive:
            continue
        got = {k: v if k == "__key__" else bytes(v) for k, v in lsiofs.tar_sample(memoryview(archive)).items()}
        want = reference(archive)
        assert got == want, (got, want)
        compared += len(want) > 1
    print(compared)


main()
