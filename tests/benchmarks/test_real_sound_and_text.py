"""What the sound and text subjects of benchmarks/real compute, on tiny made inputs."""

from __future__ import annotations

import gzip
import json
import wave
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks.real import (
    packages,
    sound,
    sound_noise,
    sound_wakeword,
    text_bert,
    text_files,
    text_pages,
    text_sentences,
)
from onnxfde.errors import OnnxfdeError
from onnxfde.numbers import FloatArray

RNG = np.random.default_rng(0)

PAGE = r""".TH X 1
.\" a comment
.SH NAME
cp, \fBcopy\fR \- copy files \" and more
.SH SYNOPSIS
cp a b
.SH "DESCRIPTION"
.PP
Copy
.BR SOURCE " to" " DEST" ,
or many sources to one directory.
.PP
A second paragraph.
"""


def tone(frequency: float, length: int = 16_000) -> FloatArray:
    return np.asarray(np.sin(2 * np.pi * frequency * np.arange(length) / sound.RATE))


def test_what_was_not_finished_is_made_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OnnxfdeError("no network")

    with pytest.raises(OnnxfdeError, match="no network"):
        packages.made_once(tmp_path / "a", fail)
    made = packages.made_once(tmp_path / "a", lambda folder: (folder / "whole").touch())
    assert [path.name for path in made.iterdir()] == ["whole"]
    assert packages.made_once(tmp_path / "a", fail) == made


def test_a_program_that_fails_or_is_missing_is_one_line() -> None:
    with pytest.raises(OnnxfdeError, match=r"sh -c .*: second$"):
        packages.checked(["sh", "-c", "echo first >&2; echo second >&2; exit 3"])
    with pytest.raises(OnnxfdeError, match="no-such-program: No such file"):
        packages.checked(["no-such-program"])


def test_magika_reads_both_ends_without_blanks() -> None:
    short = text_files.features(b"  \n abc \n")
    assert short[:6].tolist() == [97, 98, 99, 32, 10, 256]
    assert short[-6:].tolist() == [32, 10, 32, 97, 98, 99]
    assert np.sum(short == text_files.PADDING) == 2048 - 5 - 7
    long = text_files.features(bytes(range(256)) * 40)
    assert long[:3].tolist() == [0, 1, 2]
    assert long[1023:1026].tolist() == [255, 0, 1]


def test_files_are_sampled_by_their_names_and_links_left_out(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "c.py", "d.unknown"):
        (tmp_path / name).write_text(f"print({name!r})  # a line of Python\n")
    (tmp_path / "e.json").write_text("{}")
    (tmp_path / "f.py").symlink_to(tmp_path / "a.py")
    found = list(text_files.sampled([tmp_path], 2, np.random.default_rng(0)))
    assert [kind for kind, _ in found] == ["python", "python"]
    assert len({content for _, content in found}) == 2


def test_the_mixture_has_the_ratio_that_was_asked_for() -> None:
    clean, noise = tone(440), RNG.normal(size=16_000)
    heard = sound.mixture(clean, noise, 6.0)
    ratio = 20 * np.log10(np.linalg.norm(clean) / np.linalg.norm(heard - clean))
    assert ratio == pytest.approx(6.0, rel=0, abs=1e-9)


def test_si_sdr_is_the_ratio_and_does_not_hear_the_volume() -> None:
    clean, other = tone(400), tone(800)
    heard = clean + 0.1 * other
    assert sound.si_sdr(clean, heard) == pytest.approx(20.0, rel=0, abs=1e-6)
    assert sound.si_sdr(clean, 5 * heard) == pytest.approx(20.0, rel=0, abs=1e-6)


@pytest.mark.parametrize(("exponent", "falls"), [(0.0, 0.0), (1.0, 3.0), (2.0, 6.0)])
def test_coloured_noise_falls_by_so_many_db_per_octave(exponent: float, falls: float) -> None:
    noise = sound.coloured(2**16, exponent, np.random.default_rng(1))
    power = np.abs(np.fft.rfft(noise)) ** 2
    low, high = power[2048:4096].mean(), power[8192:16384].mean()
    assert 10 * np.log10(low / high) / 2 == pytest.approx(falls, rel=0, abs=0.4)


def test_a_recording_of_another_rate_keeps_its_pitch(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        values = np.sin(2 * np.pi * 500 * np.arange(8000) / 8000) * 16_000
        file.writeframes(values.astype("<i2").tobytes())
    found = sound.read_wav(tmp_path / "a.wav")
    assert len(found) == sound.RATE
    assert np.abs(np.fft.rfft(found)).argmax() == 500
    assert np.abs(found).max() == pytest.approx(16_000 / 32_768, rel=0, abs=0.02)


def test_babble_goes_round_and_has_power_one() -> None:
    found = sound.babble([tone(300, 700), tone(500, 900)], 4000, np.random.default_rng(0))
    assert found.shape == (4000,)
    assert found.std() == pytest.approx(1.0, rel=0, abs=1e-9)


def test_the_spectra_of_a_sound_give_it_back() -> None:
    noise = RNG.normal(size=3200)
    found = sound_noise.sound_of(sound_noise.spectra(noise))
    inner = slice(sound_noise.HOP, -sound_noise.HOP)
    assert found.shape == noise.shape
    np.testing.assert_allclose(found[inner], noise[inner], rtol=0, atol=0.03)


def test_a_network_that_changes_nothing_gains_nothing_and_one_that_filters_gains() -> None:
    clean = np.pad(tone(1000, 8000), 4000)
    noisy = clean + 0.5 * np.pad(tone(3000, 8000), 4000)

    def low_pass(inputs: object) -> list[FloatArray]:
        mask = np.ones((1, 99, 161))
        mask[:, :, 40:] = 0
        return [mask]

    same = sound_noise.improvement(clean, noisy, lambda _: [np.ones((1, 99, 161))])
    better = sound_noise.improvement(clean, noisy, low_pass)
    assert same == pytest.approx(0.0, rel=0, abs=0.1)
    assert better > 10


def test_silero_reads_the_end_of_the_frame_before() -> None:
    rows = sound_noise.frames(np.arange(1100.0))
    assert rows.shape == (2, 576)
    assert rows[0, :65].tolist() == [0.0] * 65
    assert rows[1, [0, 64, -1]].tolist() == [448.0, 512.0, 1023.0]


def test_f1_counts_frames_above_the_power_of_silence() -> None:
    clean = np.concatenate([np.zeros(1024), tone(500, 1024)])
    likely = np.array([0.1, 0.9, 0.9, 0.2])
    terms = sound_noise.heard_terms(clean, clean, lambda _: [likely])
    assert terms == (2.0, 4.0)


def test_a_detector_that_always_hears_the_word_finds_nothing() -> None:
    y = np.arange(150) < 50
    assert sound_wakeword.detection(np.ones(150), y).estimate.value == 0.0
    likely = np.where(y, 0.6, 0.1)
    likely[[60, 70]] = 0.9, 0.7
    assert sound_wakeword.detection(likely, y).estimate.value == 1.0
    likely[80] = 0.65
    assert sound_wakeword.detection(likely, y).estimate.value == 0.0


def test_the_detector_reads_sixteen_embeddings_at_each_place() -> None:
    spectrogram = RNG.normal(size=(297, 32))
    rows = sound_wakeword.windows(spectrogram)
    assert rows.shape == (28, 76, 32, 1)
    np.testing.assert_array_equal(rows[3, :, :, 0], spectrogram[24:100])
    found = sound_wakeword.readings(np.arange(28.0)[:, None, None, None])
    assert found[:, [0, -1], 0].tolist() == [[float(i), float(i + 15)] for i in range(13)]


@pytest.mark.parametrize("seconds", [1, 5])
def test_a_clip_has_three_seconds(seconds: int) -> None:
    clip = sound_wakeword.placed(tone(300, seconds * sound.RATE), np.random.default_rng(0))
    assert clip.shape == (48_000,)
    assert 0.05 < np.abs(clip).max() <= 0.95
    assert (np.abs(clip[:16_000]).max() == 0) == (seconds == 1)


def test_a_page_is_its_name_line_and_first_paragraph(tmp_path: Path) -> None:
    pages = tmp_path / "usr/share/man/man1"
    pages.mkdir(parents=True)
    (pages / "cp.1.gz").write_bytes(gzip.compress(PAGE.encode()))
    (pages / "same.1.gz").write_bytes(gzip.compress(PAGE.encode()))
    (pages / "link.1.gz").symlink_to(pages / "cp.1.gz")
    (pages / "so.1.gz").write_bytes(gzip.compress(b".so man1/cp.1\n"))
    expected = text_pages.Page(
        "cp, copy - copy files",
        "Copy SOURCE to DEST, or many sources to one directory.",
    )
    assert text_pages.pages_below(tmp_path) == [expected]


def test_sentences_are_pieces_of_the_vocabulary() -> None:
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "copy", "file", "##s", "-")
    vocabulary = {name: index for index, name in enumerate(names)}
    rows = text_sentences.encoded(["Copy files - qzx", "file " * 200], vocabulary)
    ids, mask = rows["input_ids"], rows["attention_mask"]
    assert ids[0, :8].tolist() == [2, 4, 5, 6, 7, 1, 3, 0]
    assert mask[0].sum() == 7
    assert ids[1, [0, 1, 126, 127]].tolist() == [2, 5, 5, 3]


def test_recall_counts_the_nearest() -> None:
    answers = np.eye(5)
    asked = answers[:4] + 0.1
    asked[3] = answers[0]
    assert text_sentences.recall(asked, answers).estimate.value == 0.75


def made_weights(shape: text_bert.Shape) -> dict[str, FloatArray]:
    width, rng = shape.width, np.random.default_rng(0)
    sizes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (9, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.position_embeddings.weight": (12, width),
    }
    norms = ["embeddings.LayerNorm"]
    for index in range(shape.layers):
        layer = f"encoder.layer.{index}"
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        dense = [f"attention.self.{part}" for part in ("query", "key", "value")]
        rows = dict.fromkeys((*dense, "attention.output.dense"), (width, width))
        rows |= {"intermediate.dense": (20, width), "output.dense": (width, 20)}
        for name, size in rows.items():
            sizes |= {f"{layer}.{name}.weight": size, f"{layer}.{name}.bias": size[:1]}
    for name in norms:
        sizes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    return {name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}


def test_minilm_embeds_the_tokens_that_are_there_and_no_others() -> None:
    shape = text_bert.Shape(layers=2, heads=2, width=8, tokens=6)
    model = text_bert.bert_model(made_weights(shape), shape)
    onnx.checker.check_model(model, full_check=True)
    run = ReferenceEvaluator(model)
    ids = np.array([[1, 2, 3, 0, 0, 0], [1, 2, 3, 7, 8, 7], [1, 2, 4, 0, 0, 0]])
    mask = np.array([[1, 1, 1, 0, 0, 0]] * 3)
    feed = dict(zip(text_bert.INPUTS, (ids, mask, 0 * ids), strict=True))
    found = np.array(run.run(None, feed)[0])  # type: ignore[index]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-5)
    assert np.abs(found[0] - found[2]).max() > 1e-3


def test_safetensors_are_read_by_their_header(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}
    header = json.dumps({"__metadata__": {"a": "b"}, "w": entry}).encode()
    values = np.array([[1.5], [-2.0]], "<f4")
    raw = len(header).to_bytes(8, "little") + header + values.tobytes()
    (tmp_path / "m.safetensors").write_bytes(raw)
    found = text_bert.read_safetensors(tmp_path / "m.safetensors")
    assert list(found) == ["w"]
    np.testing.assert_array_equal(found["w"], values)
