"""Speech at 16 kHz out of packages, noise, and how far sounds are apart.

mixture   clean + g·noise,   20·log₁₀(‖clean‖ / ‖g·noise‖) = the ratio asked for, in dB
SI-SDR    10·log₁₀(‖αs‖² / ‖αs − x‖²),   α = ⟨s, x⟩ / ‖s‖²      (Le Roux et al. 2019)

Voices are espeak-ng's and flite's, recordings the prompts of Asterisk in several languages.
"""

from __future__ import annotations

import tempfile
import wave
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

from benchmarks.real.packages import checked, from_debian, from_pypi, programs_of, run_program
from onnxfde.numbers import Array, FloatArray

RATE = 16_000
"""Samples per second."""
FULL_SCALE = 32_768
DECODER = "imageio-ffmpeg==0.8.1"
"""The package that holds ffmpeg as one program."""
PROMPTS = "asterisk-core-sounds-{}-g722"

Network = Callable[..., list[Array]]
"""A network that is not the one to score: named inputs, its outputs."""


def network(path: Path) -> Network:
    """A network on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])

    def run(**inputs: Array) -> list[Array]:
        return list(session.run(None, inputs))

    return run


def say(text: str, voice: Sequence[str], store: Path) -> FloatArray:
    """A text as a voice says it; the voice is espeak-ng or flite and its options."""
    root = programs_of(("espeak-ng", "flite"), store).resolve()
    program, *options = voice
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/said.wav"
        if program == "flite":
            words = (*options, "-o", file, "-t", text)
        else:
            data = next(root.glob("usr/lib/*/espeak-ng-data")).parent
            words = (f"--path={data}", *options, "-w", file, text)
        run_program(root, [f"usr/bin/{program}", *words])
        return read_wav(Path(file))


def read_wav(path: Path) -> FloatArray:
    """A file of one channel and 16 bits, at 16 kHz, between -1 and 1."""
    with wave.open(str(path)) as file:
        rate, raw = file.getframerate(), file.readframes(file.getnframes())
    values = np.frombuffer(raw, "<i2") / FULL_SCALE
    return np.asarray(resample_poly(values, RATE, rate), np.float64)


def prompts(language: str, store: Path) -> list[Callable[[], FloatArray]]:
    """The recordings of a language, in the order of their names; each is decoded when called."""
    files = sorted(from_debian(PROMPTS.format(language), store).rglob("*.g722"))
    return [partial(decoded, file, store) for file in files]


def decoded(file: Path, store: Path) -> FloatArray:
    """A recording in G.722."""
    folder = from_pypi(DECODER, store) / "imageio_ffmpeg/binaries"
    program = next(folder.glob("ffmpeg-*"))
    program.chmod(0o755)
    form = ("-f", "s16le", "-ar", str(RATE), "-")
    raw = checked([str(program), "-v", "error", "-f", "g722", "-i", str(file), *form])
    return np.frombuffer(raw, "<i2") / FULL_SCALE


def coloured(length: int, exponent: float, rng: np.random.Generator) -> FloatArray:
    """Noise whose power falls with the frequency to this exponent: 0 white, 1 pink, 2 brown."""
    spectrum = np.fft.rfft(rng.normal(size=length))
    frequency = np.maximum(np.fft.rfftfreq(length), 20 / RATE)
    noise = np.fft.irfft(spectrum * frequency ** (-exponent / 2), length)
    return np.asarray(noise / noise.std())


def babble(voices: Sequence[FloatArray], length: int, rng: np.random.Generator) -> FloatArray:
    """Several voices at once, each from a random place of its recording on, again and again."""
    total = np.zeros(length)
    for voice in voices:
        start = rng.integers(len(voice))
        part = np.take(voice, np.arange(start, start + length), mode="wrap")
        total += part / (voice.std() + 1e-9)
    return np.asarray(total / max(total.std(), 1e-9))


def any_noise(talk: Sequence[FloatArray], length: int, rng: np.random.Generator) -> FloatArray:
    """Coloured noise; one time in four, six people who talk."""
    if rng.random() < 1 / 4:
        return babble([talk[i] for i in rng.choice(len(talk), 6)], length, rng)
    return coloured(length, rng.uniform(0, 2), rng)


def mixture(clean: FloatArray, noise: FloatArray, ratio: float) -> FloatArray:
    """A sound with noise so many dB below it.

    >>> mixture(np.array([30.0, 0.0]), np.array([0.0, 1.0]), 20.0)
    array([30.,  3.])
    """
    gain = np.linalg.norm(clean) / np.linalg.norm(noise) * 10 ** (-ratio / 20)
    return np.asarray(clean + gain * noise)


def si_sdr(clean: FloatArray, heard: FloatArray) -> float:
    """How far a clean sound stands above all else that is heard, in dB, whatever the volume.

    >>> round(si_sdr(np.array([1.0, 0.0]), np.array([7.0, 0.7])), 6)
    20.0
    """
    aim = clean * (clean @ heard) / (clean @ clean)
    rest = aim - heard
    return float(10 * np.log10((aim @ aim) / max(rest @ rest, 1e-20 * (aim @ aim))))


def frame_powers(sound: FloatArray, frame: int) -> FloatArray:
    """The mean square of every so many samples; what is left at the end is left out."""
    whole = sound[: len(sound) // frame * frame].reshape(-1, frame)
    return np.asarray(np.mean(whole**2, axis=1))
