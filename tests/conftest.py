"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("onnxfde", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("onnxfde")
