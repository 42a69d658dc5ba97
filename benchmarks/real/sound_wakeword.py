"""openWakeWord: "alexa" in three seconds of sound.

sound → melspectrogram → 76 frames, every 8 → embedding (96) → the last 16 → how likely "alexa"
score    share of the clips with the word that are above all but 2 % of the clips without it

Of a clip the likeliest place counts. The threshold is the network's own, so that one which always
hears the word gains nothing. Voices, texts and recordings to judge are not those to fit to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.real.packages import from_pypi, made_once, store_beside
from benchmarks.real.sound import RATE, any_noise, mixture, network, prompts, say
from benchmarks.real.subject import Material, Run, Score, Subject
from onnxfde.numbers import Array, FloatArray

PACKAGE = "openwakeword==0.5.1"
MODELS = "openwakeword/resources/models"
WORD = "alexa"
LENGTH = 3 * RATE
FRAMES, STEP, READ = 76, 8, 16
"""Frames of an embedding, from one to the next, and embeddings that the detector reads."""
INPUT = "onnx::Flatten_0"
"""What the detector calls its input."""
FALSE_ALARMS = 0.02
"""The share of clips without the word in which it may be heard; chosen."""
RATIOS = (5.0, 30.0)
"""The noise is so many dB below the speech; chosen: the original finds 80–97 %."""
ROWS_EACH = 2
"""Places of each clip that the tool is given."""


@dataclass(frozen=True)
class Part:
    """Whose voices say what."""

    accents: tuple[str, ...]
    timbres: tuple[str, ...]
    flite: tuple[str, ...]
    language: str
    """Of the recordings without the word."""
    others: tuple[str, ...]
    """Texts without the word."""
    spoken: int
    """Clips with the word; as many are of other texts, and as many recordings."""
    seed: int


GIVEN = Part(
    ("en-us", "en-us-nyc"),
    ("", "+f2", "+f4", "+m1", "+m3", "+Andy", "+john", "+Mike", "+klatt"),
    ("kal", "awb"),
    "it",
    ("alex", "a lecture", "select it", "turn on the light", "good morning", "the weather today",
     "an exit", "I like that", "set a timer for ten minutes", "what time is it"),
    140,
    0,
)  # fmt: skip
JUDGED = Part(
    ("en-gb", "en-gb-x-rp", "en-gb-x-gbclan"),
    ("", "+f1", "+f3", "+m2", "+m4", "+Annie", "+Gene", "+klatt2"),
    ("rms", "slt"),
    "en",
    ("electra", "a letter", "relax", "call my brother", "the election", "play some music",
     "open the window", "I let her", "how far is the station", "next song please"),
    200,
    1,
)  # fmt: skip


def any_voice(part: Part, rng: np.random.Generator) -> tuple[str, ...]:
    """One of the voices: a third are flite's."""
    slow = rng.uniform(0.85, 1.3)
    if rng.random() < 1 / 3:
        return (
            "flite",
            "-voice",
            str(rng.choice(part.flite)),
            "--setf",
            f"duration_stretch={slow}",
        )
    name = f"{rng.choice(part.accents)}{rng.choice(part.timbres)}"
    pitch = str(rng.integers(30, 70))
    return ("espeak-ng", "-v", name, "-s", str(int(160 / slow)), "-p", pitch)


def placed(speech: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Three seconds: a part of longer speech, shorter speech near the end."""
    if len(speech) > LENGTH:
        start = int(rng.integers(len(speech) - LENGTH))
        clip = np.array(speech[start : start + LENGTH])
    else:
        clip = np.zeros(LENGTH)
        start = int((LENGTH - len(speech)) * rng.uniform(0.8, 1.0))
        clip[start : start + len(speech)] = speech
    return clip * rng.uniform(0.1, 0.9) / max(float(np.abs(clip).max()), 1e-6)


def clips_of(part: Part, store: Path) -> tuple[list[FloatArray], Array]:
    """Noisy clips, and which of them have the word."""
    rng = np.random.default_rng(part.seed)
    files = prompts(part.language, store)
    recordings = [files[i]() for i in rng.permutation(len(files))[: part.spoken]]
    texts = [WORD] * part.spoken + [str(rng.choice(part.others)) for _ in range(part.spoken)]
    speech = [say(text, any_voice(part, rng), store) for text in texts] + recordings
    clips = []
    for sound in speech:
        clip = placed(sound, rng)
        noise = any_noise(recordings, LENGTH, rng)
        clips.append(mixture(clip, noise, rng.uniform(*RATIOS)))
    return clips, np.arange(len(clips)) < part.spoken


def spectrograms(clips: Sequence[FloatArray], models: Path) -> Array:
    """The melspectrograms that the embedding reads."""
    transform = network(models / "melspectrogram.onnx")
    whole = [np.round(np.clip(clip, -1, 1) * 32_767)[None].astype(np.float32) for clip in clips]
    return np.stack([transform(input=clip)[0][0, 0] / 10 + 2 for clip in whole])


def windows(spectrogram: Array) -> Array:
    """What the embedding reads of one clip, place by place."""
    starts = range(0, len(spectrogram) - FRAMES + 1, STEP)
    return np.stack([spectrogram[start : start + FRAMES, :, None] for start in starts])


def readings(embeddings: Array) -> Array:
    """What the detector reads of one clip, place by place."""
    flat = embeddings.reshape(len(embeddings), -1)
    return np.stack([flat[start : start + READ] for start in range(len(flat) - READ + 1)])


def models_of(store: Path) -> Path:
    """The folder of the networks of the package."""
    return from_pypi(PACKAGE, store) / MODELS


def prepare_sounds(folder: Path) -> Path:
    """Spectrograms and embeddings of all clips, once for both networks; where they are."""
    store = store_beside(folder)

    def make(sounds: Path) -> None:
        embed = network(models_of(store) / "embedding_model.onnx")
        for name, part in (("given", GIVEN), ("judged", JUDGED)):
            clips, y = clips_of(part, store)
            spectra = spectrograms(clips, models_of(store)).astype(np.float32)
            embeddings = np.stack([embed(input_1=windows(one))[0][:, 0, 0] for one in spectra])
            np.savez(sounds / f"{name}.npz", spectra=spectra, embeddings=embeddings, y=y)

    return made_once(store / "wakeword-sounds", make)


def some_rows(places: Sequence[Array]) -> Array:
    """A few places of each clip, drawn once."""
    rng = np.random.default_rng(0)
    return np.concatenate([rows[rng.permutation(len(rows))[:ROWS_EACH]] for rows in places])


def prepare_embedding(folder: Path) -> Material:
    """The embedding and what it reads."""
    sounds, data = prepare_sounds(folder), folder / "data.npz"
    if not data.exists():
        with np.load(sounds / "given.npz") as given:
            np.savez(data, input_1=some_rows([windows(one) for one in given["spectra"]]))
    return Material(models_of(store_beside(folder)) / "embedding_model.onnx", data)


def prepare_detector(folder: Path) -> Material:
    """The detector and what it reads."""
    sounds, data = prepare_sounds(folder), folder / "data.npz"
    if not data.exists():
        with np.load(sounds / "given.npz") as given:
            rows = some_rows([readings(one) for one in given["embeddings"]])
            np.savez(data, **{INPUT: rows})  # type: ignore[arg-type]
    return Material(models_of(store_beside(folder)) / "alexa_v0.1.onnx", data)


def likeliest(detect: Run, embeddings: Array) -> float:
    """How likely the word is at the likeliest place of a clip."""
    return max(float(detect({INPUT: row[None]})[0].item()) for row in readings(embeddings))


def score_embedding(folder: Path, run: Run) -> Score:
    """Detection with these embeddings and the original's detector."""
    detector = network(models_of(store_beside(folder)) / "alexa_v0.1.onnx")
    with np.load(prepare_sounds(folder) / "judged.npz") as judged:
        found = [
            likeliest(lambda inputs: detector(**inputs), run({"input_1": windows(one)})[0])
            for one in judged["spectra"]
        ]
        return detection(np.array(found), judged["y"])


def score_detector(folder: Path, run: Run) -> Score:
    """Detection with the original's embeddings and this detector."""
    with np.load(prepare_sounds(folder) / "judged.npz") as judged:
        found = [likeliest(run, embeddings) for embeddings in judged["embeddings"]]
        return detection(np.array(found), judged["y"])


def detection(likely: FloatArray, y: Array) -> Score:
    """Clips with the word that are above all but a small share of the clips without.

    >>> detection(np.array([0.9, 0.1, 0.2]), np.array([True, True, False])).estimate.value
    0.5
    """
    without = np.sort(likely[~y])[::-1]
    threshold = without[int(FALSE_ALARMS * len(without))]
    above = (likely[y] > threshold).astype(np.float64)
    return Score(above, np.ones(len(above)))


SUBJECTS = (
    Subject(
        "openwakeword-embedding",
        f"embeddings of speech, 76 frames of 32 frequencies ({PACKAGE})",
        "detection at 2 %",
        '840 places of 420 noisy clips: "alexa", other words, prompts; American voices',
        '200 clips with "alexa", 400 without; other voices and words; the original\'s detector',
        prepare_embedding,
        score_embedding,
        batch=28,
    ),
    Subject(
        "openwakeword-alexa",
        f'whether 16 embeddings are of "alexa" ({PACKAGE})',
        "detection at 2 %",
        '840 places of 420 noisy clips: "alexa", other words, prompts; American voices',
        '200 clips with "alexa", 400 without; other voices and words; the original\'s embeddings',
        prepare_detector,
        score_detector,
    ),
)
