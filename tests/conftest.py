"""Settings of all tests: the same examples in every run; `EXPLORE=1 pytest` draws new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("onnxfde", deadline=None, derandomize="EXPLORE" not in os.environ)
settings.load_profile("onnxfde")
