"""The elements of crops, computed by the program of the page ELEMENTS.md. It needs NumPy."""

import formats
from formats import *  # noqa: F401, F403

formats.run("ELEMENTS.md", globals())
