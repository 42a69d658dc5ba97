"""All networks of the benchmark."""

from __future__ import annotations

from benchmarks.real.ocr import OCR
from benchmarks.real.subject import Subject

SUBJECTS: tuple[Subject, ...] = (
    *OCR,
)  # fmt: skip
