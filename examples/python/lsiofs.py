"""Read lsiofs streams: records as views, samples as dicts, batches as arrays.

    for record in Stream("MNT/epoch-0/worker-0-of-4.tar"):
        sample = tar_sample(record)             # {"__key__": b"n01/17", "jpg": …, "cls": …}
    for rows in batches("MNT/worker-0.npy", 256):
    for rows in batches("MNT/worker-0.bin", 256, "<u2"):   # fixed and lc0: the dtype of a record
    DataLoader(Dataset("MNT", "jsonl", json.loads, rank, ranks), batch_size=8, num_workers=2)

Copy this file: it needs Python 3.8 alone, `batches` numpy; import torch before it for `Dataset` (that takes seconds).
"""
import mmap, os, re, struct, sys
from bisect import bisect_right

IterableDataset, get_worker_info = object, lambda: None
if "torch" in sys.modules:
    from torch.utils.data import IterableDataset, get_worker_info

HEADER = struct.Struct("100s24x12s20xc100x8s80x155s12x").unpack_from  # name, size, type, magic and version, prefix
KEYED = rb"(?!__[^/]*__(?:/|\0))((?:[^\0]*/)?[^\0./][^\0./]*)\.([^\0/]*)\0"  # a path with a key and an extension
NAME = re.compile(KEYED).match
PLAIN = re.compile(rb"(?s)(?=" + KEYED + rb").{99}\0.{24}([0-7]{11})[\0 ].{20}[0\0].{188}\0").match  # the usual header
WINDOW = (4 << 20) - 4096  # bytes a read: four requests of 1 MiB, as its buffer begins within a page


class Stream:
    """The records of a stream from `first` on. A view stays good as long as it is held, and keeps its read of 4 MiB."""

    def __init__(self, path, first=0):
        self.path, self.first = path, first
        with open(os.path.splitext(path)[0] + ".offsets", "rb") as f:
            self.offsets = memoryview(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)).cast("Q")

    def __len__(self):
        return len(self.offsets) - 1

    def read(self, f, begin, end):
        """The bytes of records begin to end, of a file that is open."""
        at, data, more = self.offsets[begin], b"", b"-"
        while more and len(data) < self.offsets[end] - at:  # a signal can cut a read short
            more = os.pread(f.fileno(), self.offsets[end] - at - len(data), at + len(data))
            data = data + more if data else more
        return memoryview(data)

    def __iter__(self):
        with open(self.path, "rb", buffering=0) as f:
            at = self.first
            while at < len(self):
                end = max(at + 1, bisect_right(self.offsets, self.offsets[at] + WINDOW, at) - 1)
                view, start, begin = self.read(f, at, end), self.offsets[at], 0
                for cut in self.offsets[at + 1 : end + 1].tolist():
                    yield view[begin : cut - start]
                    begin = cut - start
                at = end


def tar_sample(record):
    """The members of a WebDataset sample by extension, as views, and its "__key__", bytes."""
    sample, at, pax = {}, 0, {}
    while at < len(record):
        member = PLAIN(record, at) if not pax else None
        if member:
            sample["__key__"], extension, size = member.groups()
            at, size = at + 512, int(size, 8)
            sample[extension.decode()], at = record[at : at + size], at + (size + 511 & -512)
            continue
        name, size, kind, magic, prefix = HEADER(record, at)
        at, size = at + 512, int.from_bytes(size[1:], "big") if size[0] & 128 else int(size.strip(b"\0 ") or b"0", 8)
        size = int(pax.get(b"size", size))
        data, at = record[at : at + size], at + (0 if kind in b"123456" else size + 511 & -512)
        if kind in b"xX":  # PAX: lines "length key=value" about the member that follows
            text = bytes(data)
            while b" path=" in text or b" size=" in text:
                line, text = text[: int(text[: text.index(b" ")])], text[int(text[: text.index(b" ")]) :]
                pax.update([line[line.index(b" ") + 1 : -1].split(b"=", 1)])
            pax = {k: v for k, v in pax.items() if k in (b"path", b"size")}
        elif kind == b"L":  # GNU: the path of the member that follows
            pax[b"path"] = bytes(data).split(b"\0")[0]
        else:
            directory = prefix.split(b"\0")[0] + b"/" if prefix[0] and magic == b"ustar\x0000" else b""
            named, pax = NAME(pax.get(b"path", directory + name.split(b"\0")[0]) + b"\0"), {}
            if named and kind in b"0\x007":
                sample["__key__"], sample[named[2].decode()] = named[1], data
    return sample


def batches(path, records, dtype=None, first=0):
    """Arrays of so many records that follow each other, the last of fewer. dtype is a record's; of .npy it is known."""
    import numpy

    rows = numpy.load(path, mmap_mode="r") if dtype is None else None
    dtype = numpy.dtype(dtype if rows is None else (rows.dtype, rows.shape[1:]))
    stream, step = Stream(path), max(1, WINDOW // (records * dtype.itemsize)) * records
    with open(path, "rb", buffering=0) as f:
        for at in range(first, len(stream), step):
            rows = numpy.frombuffer(stream.read(f, at, min(at + step, len(stream))), dtype)
            yield from (rows[i : i + records] for i in range(0, len(rows), records))


class Dataset(IterableDataset):
    """An epoch of a mount for one of the ranks: worker w of the DataLoader of rank r reads file w·ranks + r.

    With batch_size as the mount's --batch, step k of all ranks is the same stretch of the epoch, whatever their number
    and that of their workers. Add what all ranks have trained on to `samples`, and save state_dict(). A loader that asks
    its workers for their state (torchdata's StatefulDataLoader) does without that sum; its numbers have to stay."""

    def __init__(self, mount, extension, decode=bytes, rank=0, ranks=1, epoch=0, samples=0):
        self.__dict__.update(mount=mount, extension=extension, decode=decode, rank=rank, ranks=ranks)
        self.load_state_dict({"epoch": epoch, "samples": samples, "taken": 0})

    def state_dict(self):
        return {"epoch": self.epoch, "samples": self.samples, "taken": self.taken}

    def load_state_dict(self, state):
        self.__dict__.update(state)

    def __iter__(self):
        me = get_worker_info()
        worker, workers = (me.id, me.num_workers) if me else (0, 1)
        file = f"worker-{worker * self.ranks + self.rank}-of-{workers * self.ranks}.{self.extension}"
        for record in Stream(f"{self.mount}/epoch-{self.epoch}/from-{self.samples}/{file}", self.taken):
            self.taken += 1
            yield self.decode(record)
        self.taken = 0
