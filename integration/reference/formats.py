"""Shards and records, computed by the program in the pages that define them.

This module consists of the Python blocks of RECORDS.md and the pages after it, up to CROPS.md, one
after the other. So a test that compares lsiofs with it compares lsiofs with the pages. The last
page, ELEMENTS.md, needs NumPy, and is module elements.
"""

import order
from order import draw, key, record_id  # noqa: F401, for the page of crops

PAGES = next(order.PAGES.parent.glob("*/RECORDS.md")).parent


def run(name, names):
    """Runs the program of a page; names are those of the pages before it."""
    exec(compile(order.program(PAGES / name), str(PAGES / name), "exec"), names)


for name in ("RECORDS.md", "SHARDS.md", "CODECS.md", "TAR.md", "FILES.md", "ARRAYS.md", "TOKENS.md", "GAMES.md", "CROPS.md"):
    run(name, globals())
