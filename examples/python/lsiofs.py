"""Read lsiofs streams: records as views, samples as dicts, batches as arrays.

    for record in Stream("MNT/epoch-0/worker-0-of-4.tar"): tar_sample(record)  # {"__key__": b"n01/17", "jpg": …, "cls": …}
    for rows in batches("MNT/worker-0.bin", 256, "<u2"):   # fixed and lc0: the dtype of a record; of .npy it is known
    DataLoader(Dataset("MNT", "jsonl", json.loads, rank, ranks), batch_size=8, num_workers=2)

Copy this file: it needs Python 3.8 alone, `batches` numpy, and `Dataset` torch, which it imports when it is first used.
"""
import bisect, mmap, os, re, struct

HEADER = struct.Struct("100s24x12s20xc100x8s80x155s12x").unpack_from  # name, size, type, magic and version, prefix
KEYED = rb"(?!__[^/]*__(?:/|\0))((?:[^\0]*/)?[^\0./][^\0./]*)\.([^\0/]*)\0"  # a path with a key and an extension
PLAIN = re.compile(rb"(?s)(?=" + KEYED + rb").{99}\0.{24}([0-7]{11})[\0 ].{20}[0\0].{188}\0").match  # the usual header
WINDOW = (4 << 20) - 4096  # bytes a read: four requests of 1 MiB, as its buffer begins within a page

class Stream:
    """The records of a stream from `first` on. A view stays good as long as it is held, and keeps its read of 4 MiB."""
    def __init__(self, path, first=0):
        self.path, self.first = path, first
        with open(os.path.splitext(path)[0] + ".offsets", "rb") as f:
            self.offsets = memoryview(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)).cast("Q")
    def __len__(self): return len(self.offsets) - 1
    def windows(self, multiple=1):
        """Some MiB of whole records at a time, a multiple of so many, and the offsets of each and of the next one."""
        with open(self.path, "rb", buffering=2) as f:  # buffered reads are not cut short by signals
            end = self.first
            while (at := end) < len(self):
                end = bisect.bisect_right(self.offsets, self.offsets[at] + WINDOW, at) - 1
                end = min(at + max(1, (end - at) // multiple) * multiple, len(self))
                f.seek(self.offsets[at])
                yield memoryview(f.read(self.offsets[end] - self.offsets[at])), self.offsets[at : end + 1]
    def __iter__(self):
        for view, offsets in self.windows():
            begin, (start, *ends) = 0, offsets.tolist()
            for end in ends:
                yield view[begin : end - start]
                begin = end - start

def tar_sample(record):
    """The members of a WebDataset sample by extension, as views, and its "__key__", bytes."""
    sample, at, pax = {}, 0, {}
    while at < len(record):
        if not pax and (member := PLAIN(record, at)):
            sample["__key__"], extension, size = member.groups()
            at, size = at + 512, int(size, 8)
            sample[extension.decode()], at = record[at : at + size], at + (size + 511 & -512)
            continue
        name, size, kind, magic, prefix = HEADER(record, at)
        at, size = at + 512, int.from_bytes(size[1:], "big") if size[0] & 128 else int(size.strip(b"\0 ") or b"0", 8)
        size = int(pax.get(b"size", size))
        data, at = record[at : at + size], at + (0 if kind in b"123456" else size + 511 & -512)
        if kind in b"xX":  # PAX: lines "length key=value" about the member that follows
            while b" path=" in (data := bytes(data)) or b" size=" in data:
                space, end = data.index(b" "), int(data[: data.index(b" ")])
                pax, data = {**pax, **dict([data[space + 1 : end - 1].split(b"=", 1)])}, data[end:]
        elif kind == b"L":  # GNU: the path of the member that follows
            pax[b"path"] = bytes(data).split(b"\0")[0]
        else:
            directory = prefix.split(b"\0")[0] + b"/" if prefix[0] and magic == b"ustar\x0000" else b""
            named, pax = re.match(KEYED, pax.get(b"path", directory + name.split(b"\0")[0]) + b"\0"), {}
            if named and kind in b"0\x007":
                sample["__key__"], sample[named[2].decode()] = named[1], data
    return sample

def batches(path, records, dtype=None, first=0):
    """Arrays of so many records that follow each other, the last of fewer. dtype is a record's; of .npy it is known."""
    import numpy
    array = numpy.load(path, mmap_mode="r") if dtype is None else None
    for view, _ in Stream(path, first).windows(records):
        rows = numpy.frombuffer(view, dtype if array is None else (array.dtype, array.shape[1:]))
        yield from (rows[i : i + records] for i in range(0, len(rows), records))

class Epoch:
    """Dataset: an epoch of a mount for one of the ranks; worker w of rank r's DataLoader reads file w·ranks + r. With
    batch_size as the mount's --batch, step k of all ranks is the same stretch of the epoch, however many they are. Add
    what all ranks have trained on to `samples`, and save state_dict(). A loader that asks its workers for their state
    (torchdata's StatefulDataLoader) does without that sum; its numbers have to stay."""
    def __init__(self, mount, extension, decode=bytes, rank=0, ranks=1, epoch=0, samples=0):
        self.mount, self.extension, self.decode, self.rank, self.ranks = mount, extension, decode, rank, ranks
        self.epoch, self.samples, self.taken = epoch, samples, 0
    def state_dict(self): return {"epoch": self.epoch, "samples": self.samples, "taken": self.taken}
    def load_state_dict(self, state): self.__dict__.update(state)
    def __iter__(self):
        from torch.utils.data import get_worker_info
        worker, workers = (me.id, me.num_workers) if (me := get_worker_info()) else (0, 1)
        file = f"worker-{worker * self.ranks + self.rank}-of-{workers * self.ranks}.{self.extension}"
        for record in Stream(f"{self.mount}/epoch-{self.epoch}/from-{self.samples}/{file}", self.taken):
            self.taken += 1
            yield self.decode(record)
        self.taken = 0

def __getattr__(name):
    if name != "Dataset": raise AttributeError(name)
    from torch.utils.data import IterableDataset
    return globals().setdefault(name, type(name, (Epoch, IterableDataset), {"__module__": __name__}))
