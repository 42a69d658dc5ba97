"""Settings of all tests: the same examples in every run; `EXPLORE=1 pytest` draws new ones.

Tests that run in the background ignore SIGINT, and so would every process that they start: the
tests of Ctrl-C need it back."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("onnxfde", deadline=None, derandomize="EXPLORE" not in os.environ)
settings.load_profile("onnxfde")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
