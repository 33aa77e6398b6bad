"""Train from datasets that lsiofs mounts as shuffled streams.

    import lsiofs

    with lsiofs.mount("/data/train", workers=4, batch=64, split="0..0.9", seed=1) as data:
        for sample in data.epoch(0).samples(): ...         # or .records(), .arrays(256)
        loader = torch.utils.data.DataLoader(data.torch(decode=...), batch_size=64, num_workers=4)
        torch.save({"model": ..., "data": data.state_dict(samples)}, "ckpt.pt")

`mount` starts the server, and unmounts at the end; `open` is for a mount that is there; `Stream`
for one file of it. The manual's page is python.md.
This package needs Python 3.9 or newer and nothing else; numpy and torch are imported where they
are used.
"""

from importlib import metadata as _metadata

from .errors import (
    ArgumentError, CommandNotFound, EpochNotReady, Error, MountClosed, MountError, MountWarning, OutOfRange, ReadError, ServerDied,
    StaleStream, StateError,
)
from .labels import Classes
from .mounts import Epoch, Mount, mount, open
from .program import command
from .state import Position
from .stream import Stream
from .tar_samples import tar_sample

__all__ = [
    "ArgumentError", "Classes", "CommandNotFound", "Epoch", "EpochNotReady", "Error", "Mount", "MountClosed", "MountError",
    "MountWarning", "OutOfRange", "Position", "ReadError", "ServerDied", "StaleStream", "StateError", "Stream", "command", "mount",
    "open", "tar_sample",
]

try:
    __version__ = _metadata.version("lsiofs")
except _metadata.PackageNotFoundError:  # used as source
    __version__ = "0"
