"""All networks of the benchmark."""

from __future__ import annotations

from benchmarks.real import classifiers, ocr, orientation, text_files, yolox
from benchmarks.real.subject import Subject

SUBJECTS: tuple[Subject, ...] = (
    *ocr.SUBJECTS,
    *orientation.SUBJECTS,
    *yolox.SUBJECTS,
    *text_files.SUBJECTS,
    *classifiers.SUBJECTS,
)
