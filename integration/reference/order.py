"""The order, computed by the program in the pages that define it.

This module consists of the Python blocks of ORDER.md, SELECTION.md and STREAMS.md in
pipeline/order, one after the other. So a test that compares lsiofs with it compares lsiofs with the
pages. Lines keep their numbers: a traceback names the line of a page.
"""

import pathlib

PAGES = pathlib.Path(__file__).resolve().parents[2] / "pipeline" / "order"


def program(page):
    """Returns the text of a page, with empty lines instead of everything outside Python blocks."""
    lines, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        fence = line.startswith("```")
        lines.append(line if inside and not fence else "")
        if fence:
            inside = line == "```python"
    return "\n".join(lines) + "\n"


for name in ("ORDER.md", "SELECTION.md", "STREAMS.md"):
    exec(compile(program(PAGES / name), str(PAGES / name), "exec"))
