"""The choices that options offer; imports nothing, so that `--help` stays fast."""

from typing import Literal

Semantics = Literal["budget", "paper", "erode"]
Threshold = Literal["paper", "erode"]
Quotient = Literal["minimal", "refit", "single", "exact"]
Relation = Literal["forward", "backward"]
Norm = Literal["sum", "max"]
Linkage = Literal["closure", "diameter"]
Int8 = Literal["dynamic", "static"]

DEFAULT_EPS = 0.1
DEFAULT_RANGE = (-1.0, 1.0)
DEFAULT_SEED = 0
