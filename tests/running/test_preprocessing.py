"""What --preprocess makes of stored arrays, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.data_use import DataUse
from onnxfde.errors import DataError, OptionError, UsageError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.running import data_files, data_rows
from onnxfde.running.input_source import InputSource
from onnxfde.running.preprocessing import Preprocessing, preprocessing_by_input
from onnxfde.running.samples import Samples, load_samples, make_samples

FLOAT = np.dtype(np.float32)
FIRST = InputSpec("x", FLOAT, ("N", 3, 4, 5))
LAST = InputSpec("x", FLOAT, ("N", 4, 5, 3))
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 5)).astype(np.uint8)
PIXELS[0, 0, 0, 0] = 255
TEXT = "scale=1/255,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
WANTED = (PIXELS / 255 - MEAN[:, None, None]) / STD[:, None, None]


def samples(array: Any, spec: InputSpec, *texts: str) -> Samples:
    return make_samples({spec.name: array}, (spec,), "d", DataUse.given(texts))


def fed(found: Samples) -> Any:
    return np.concatenate([feeds["x"] for feeds in found.feeds()])


@pytest.mark.parametrize(
    ("array", "spec", "text", "channels"),
    [
        (PIXELS, FIRST, TEXT, 1),
        (PIXELS, FIRST, f"{TEXT},layout=nchw", 1),
        (np.moveaxis(PIXELS, 1, -1), FIRST, f"{TEXT},layout=nhwc", 1),
        (np.moveaxis(PIXELS, 1, -1), LAST, TEXT, -1),
        (np.moveaxis(PIXELS, 1, -1), LAST, f"{TEXT},layout=NHWC", -1),
        (PIXELS, LAST, f"layout=nchw,{TEXT}", -1),
        (PIXELS, InputSpec("x", FLOAT, ("N", None, "h", "w")), TEXT, 1),
        (np.moveaxis(PIXELS, 1, -1), InputSpec("x", FLOAT, (None,) * 4), f"{TEXT},layout=nhwc", 1),
    ],
)
def test_pixels_become_inputs_in_the_layout_of_the_model(
    array: Any, spec: InputSpec, text: str, channels: int
) -> None:
    found = samples(array, spec, text)
    assert found.arrays["x"].dtype == np.uint8
    values = fed(found)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, np.moveaxis(WANTED, 1, channels), rtol=0, atol=1e-6)


def test_a_layout_moves_nothing_else() -> None:
    square = np.arange(3 * 5 * 5).reshape(1, 5, 5, 3)
    found = samples(square, InputSpec("x", FLOAT, ("N", 3, 5, 5)), "layout=nhwc")
    np.testing.assert_array_equal(fed(found), square.transpose(0, 3, 1, 2))


def test_signals_and_tables_have_channels_too() -> None:
    rows = np.arange(24.0).reshape(4, 3, 2)
    signal = fed(samples(rows, InputSpec("x", FLOAT, ("N", 3, 2)), "mean=1:2:3"))
    np.testing.assert_allclose(signal, rows - np.array([1, 2, 3])[:, None], rtol=0, atol=1e-6)
    table = fed(samples(rows[..., 0], InputSpec("x", FLOAT, ("N", 3)), "std=1:2:4"))
    np.testing.assert_allclose(table, rows[..., 0] / [1, 2, 4], rtol=0, atol=1e-6)
    by_row = samples(PIXELS, InputSpec("x", FLOAT, (3, 4, 5)), TEXT)
    np.testing.assert_allclose(
        np.stack([feeds["x"] for feeds in by_row.feeds()]), WANTED, rtol=0, atol=1e-6
    )


@given(
    st.floats(-4, 4).filter(lambda x: abs(x) > 0.01),
    st.floats(-2, 2),
    st.floats(0.1, 4),
    st.integers(0, 9),
)
def test_the_range_covers_every_row_as_it_is_fed(
    scale: float, mean: float, std: float, seed: int
) -> None:
    rows = np.random.default_rng(seed).integers(-9, 9, (20, 3)).astype(np.int8)
    spec = InputSpec("x", FLOAT, ("N", 3))
    found = samples(rows, spec, f"scale={scale!r},mean={mean!r},std={std!r}")
    low, high = InputSource(data=found).limits_of("x")
    np.testing.assert_array_equal(low, fed(found).min(axis=0))
    np.testing.assert_array_equal(high, fed(found).max(axis=0))


def test_rows_that_are_not_kept_count_for_the_range(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(data_rows, "KEPT_BYTES", 3 * 60)
    monkeypatch.setattr(data_files, "BLOCK", 60)
    np.savez(tmp_path / "d.npz", x=PIXELS)
    found = load_samples(tmp_path / "d.npz", (FIRST,), DataUse.given(TEXT))
    assert found.rows == 3
    assert found.source.endswith("(3 of its 6 rows)")
    np.testing.assert_allclose(
        InputSource(data=found).limits_of("x")[0], WANTED.min(axis=0), 0, 1e-6
    )


def test_bytes_are_kept_four_times_as_many_as_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_rows, "KEPT_BYTES", 3 * 60)
    floats = PIXELS.repeat(4, axis=0).astype(np.float32)
    assert samples(PIXELS, FIRST, "scale=1").rows == 3
    assert samples(floats, FIRST, "scale=1").rows == 1


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("stored", ["u1", ">i2", "i8", "f8"])
def test_any_numbers_become_the_type_of_the_input(kind: str, stored: str) -> None:
    spec = InputSpec("x", np.dtype(kind), FIRST.dims)
    values = fed(samples(PIXELS.astype(stored), spec, TEXT))
    assert values.dtype == kind
    np.testing.assert_allclose(values, WANTED, rtol=0, atol=2e-3 if kind == "float16" else 1e-6)


def test_absolute_values_are_those_of_what_is_fed() -> None:
    found = Samples((FIRST,), {"x": PIXELS}, "d", maps=samples(PIXELS, FIRST, TEXT).maps)
    absolute = Samples(found.specs, found.arrays, "d", maps=found.maps, absolute=True)
    np.testing.assert_array_equal(fed(absolute), np.abs(fed(found)))
    assert fed(found).min() < 0


@pytest.mark.parametrize(
    ("array", "spec"),
    [
        (PIXELS, FIRST),
        (PIXELS.astype(np.int64), FIRST),
        (PIXELS.reshape(6, 60), InputSpec("x", FLOAT, ("N", 60))),
    ],
)
@pytest.mark.parametrize("texts", [(), ("layout=nchw",)])
def test_pixels_are_not_fed_without_being_told_how(
    array: Any, spec: InputSpec, texts: tuple[str, ...]
) -> None:
    if array.ndim == 2 and texts:
        return
    with pytest.raises(
        DataError, match=r"up to 255, as pixels do: say how .* scale=1/255 .*scale=1"
    ):
        samples(array, spec, *texts)
    np.testing.assert_array_equal(fed(samples(array, spec, "scale=1")), array)


@pytest.mark.parametrize(
    ("array", "spec"),
    [
        (PIXELS // 8, FIRST),
        (PIXELS.astype(np.float32), FIRST),
        (PIXELS.astype(np.int16) * 100, FIRST),
        (PIXELS.astype(np.int16) - 255, FIRST),
        (PIXELS, InputSpec("x", np.dtype(np.uint8), FIRST.dims)),
        (PIXELS.reshape(6, 60).astype(np.int64), InputSpec("x", FLOAT, ("N", 60))),
    ],
)
def test_other_numbers_are_fed_as_they_are(array: Any, spec: InputSpec) -> None:
    np.testing.assert_array_equal(fed(samples(array, spec)), array.astype(spec.dtype))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("skale=1/255", "'skale' is not one of scale, mean, std, layout"),
        ("scale", "'scale' is not WORD=VALUE; write it like scale=1/255,mean="),
        ("", "'' is not WORD=VALUE"),
        ("scale=1/255,", "'' is not WORD=VALUE"),
        ("mean=0.5,0.4,0.4", "'0.4' has no name; write one number for each channel with colons"),
        ("scale=a", "scale=a: give a number such as 0.5 or 1/255, or one for each channel"),
        ("scale=1/0", "scale=1/0: give a number"),
        ("scale=1/2/3", "scale=1/2/3: give a number"),
        ("mean=", "mean=: give a number"),
        ("mean=nan", "mean=nan: give a number"),
        ("mean=1e999", "mean=1e999: give a number"),
        ("mean=0.1:", "mean=0.1:: give a number"),
        ("std=0.2:0", "a standard deviation is above 0"),
        ("std=-1", "a standard deviation is above 0"),
        ("scale=0", "0 would make all inputs equal"),
        ("scale=1,scale=2", "scale is given twice"),
        ("layout=hwc", "layout=hwc: write nhwc if the data has its channels last, nchw if first"),
    ],
)
def test_words_that_make_no_sense_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        preprocessing_by_input([text], (FIRST,))
    assert str(error.value).startswith("--preprocess ")
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("array", "spec", "text", "reason"),
    [
        (PIXELS, FIRST, "mean=1:2", "mean has 2 numbers, 'x' is N×3×4×5: give one number, or one"),
        (PIXELS, FIRST, "scale=1,layout=nhwc", None),
        (np.moveaxis(PIXELS, 1, -1), FIRST, "scale=1", "add --preprocess layout=nhwc"),
        (PIXELS, LAST, "scale=1", "has its channels first, add --preprocess layout=nchw"),
        (PIXELS[:, 0, 0], InputSpec("x", FLOAT, ("N", 5)), "layout=nhwc", "is for images, 'x' is"),
        (PIXELS, FIRST, "scale=1e38", "too large for float32"),
        (PIXELS, InputSpec("x", np.dtype("u1"), FIRST.dims), "mean=1", "takes uint8, which holds"),
        (np.full((2, 3), np.nan), InputSpec("x", FLOAT, ("N", 3)), "scale=2", "NaN or infinite"),
    ],
)
def test_what_does_not_fit_the_input_is_refused(
    array: Any, spec: InputSpec, text: str, reason: str | None
) -> None:
    if reason is None:  # the model's shape says that nothing is to be moved
        np.testing.assert_array_equal(fed(samples(array, spec, text)), array)
        return
    with pytest.raises(DataError) as error:
        samples(array, spec, text)
    assert reason in str(error.value)


def test_one_of_several_inputs_is_named() -> None:
    specs = (FIRST, InputSpec("z:0", FLOAT, ("N",)))
    found = preprocessing_by_input(["z:0:mean=1/4", f"x:{TEXT}"], specs)
    assert found == {"z:0": Preprocessing(mean=(0.25,)), "x": Preprocessing.parse(TEXT)}
    for texts, reason in (
        (["mean=1"], "--preprocess mean=1: the model has the inputs x, z:0; write NAME:mean=1"),
        (["q:mean=1"], "--preprocess q:mean=1: no input 'q'; the inputs are x, z:0"),
        (["x:mean=1", "x:std=1"], "given twice for input 'x'"),
    ):
        with pytest.raises(OptionError) as error:
            preprocessing_by_input(texts, specs)
        assert reason in str(error.value)
