"""All networks of the benchmark."""

from __future__ import annotations

from benchmarks.real import (
    classifiers,
    ocr,
    orientation,
    sound_noise,
    sound_wakeword,
    text_files,
    text_sentences,
    yolox,
)
from benchmarks.real.subject import Subject

SUBJECTS: tuple[Subject, ...] = (
    *ocr.SUBJECTS,
    *orientation.SUBJECTS,
    *yolox.SUBJECTS,
    *text_files.SUBJECTS,
    *text_sentences.SUBJECTS,
    *sound_wakeword.SUBJECTS,
    *sound_noise.SUBJECTS,
    *classifiers.SUBJECTS,
)
