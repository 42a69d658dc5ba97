"""All networks of the benchmark."""

from __future__ import annotations

from benchmarks.real import ocr, orientation, text_files
from benchmarks.real.subject import Subject

SUBJECTS: tuple[Subject, ...] = (
    *ocr.SUBJECTS,
    *orientation.SUBJECTS,
    *text_files.SUBJECTS,
)
