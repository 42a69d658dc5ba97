"""Imports without garbage collection: they make many objects that last, and hardly any garbage.

collection off → imports → what is there is never looked at again → collection on
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage meanwhile, and leave what was imported out of later collections."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
