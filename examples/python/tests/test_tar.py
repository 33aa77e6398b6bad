"""Samples of tar streams, compared with the standard library's tarfile."""

import io
import random
import tarfile
import unittest

import lsiofs


def reference(archive):
    sample = {}
    for m in tarfile.open(fileobj=io.BytesIO(archive)):
        base, top = m.name.rpartition("/")[2], m.name.split("/")[0]
        hidden = len(top) >= 4 and top.startswith("__") and top.endswith("__")
        if m.type in (b"0", b"\0", b"7") and base.find(".") > 0 and not hidden:
            dot = m.name.index(".", len(m.name) - len(base))
            sample["__key__"] = m.name[:dot]
            sample[m.name[dot + 1 :]] = archive[m.offset_data : m.offset_data + m.size]
    return sample


def random_sample(r):
    out = io.BytesIO()
    archive = tarfile.open(fileobj=out, mode="w", format=r.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    directory = "".join(r.choice("ddd.") + "d" * r.choice([0, 4, 39]) + "/" for _ in range(r.randrange(4)))
    if r.random() < 0.1:
        directory = "__x__/" + directory
    if r.random() < 0.1:
        directory = "./" + directory
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
            others[-1].type, others[-1].linkname = tarfile.SYMTYPE, r.choice(["elsewhere", "e" * 150])
        try:
            archive.addfile(member, io.BytesIO(data))
            for m in others:
                archive.addfile(m)
        except ValueError:  # ustar has no room for the name
            pass
    return out.getvalue()[: archive.offset]


class Tar(unittest.TestCase):
    def test_random_samples_are_split_as_tarfile_does(self):
        r, compared = random.Random(1), 0
        for _ in range(2000):
            archive = random_sample(r)
            if not archive:
                continue
            got = lsiofs.tar_sample(memoryview(archive))
            want = reference(archive)
            self.assertEqual(got, want)
            self.assertEqual(lsiofs.tar_sample(memoryview(b"before" + archive)[6:]), want)
            compared += len(want) > 1
        self.assertGreater(compared, 1000)

    def test_an_extension_that_is_no_utf_8_is_kept_as_names_of_files_are(self):
        member = tarfile.TarInfo("k.\udcff")
        header = member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        self.assertEqual(lsiofs.tar_sample(memoryview(header)), {"__key__": "k", "\udcff": b""})


if __name__ == "__main__":
    unittest.main()
