"""Dead leaves: images of discs that hide each other, with edges and sizes as in photographs.

radius r of a disc: density ∝ r⁻³, from a smallest radius that each image draws
colour:             mean + what the image draws + what the disc draws, mostly light or dark
pixel:              the mean of four points, as a lens would blur them

Networks for images see in them what they see in photographs, as far as edges go, which noise does
not show them. For inputs with one channel (grey) or three.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.numbers import Array, FloatArray, Indices
from onnxfde.options import Range
from onnxfde.running.data_files import StoredArray
from onnxfde.running.data_rows import lcm_batch
from onnxfde.running.image_inputs import image_input, shape_text
from onnxfde.running.preprocessing import Preprocessing
from onnxfde.running.row_maps import RowMap, mapped_array
from onnxfde.running.samples import Samples

DEAD_LEAVES = "dead-leaves images"
"""How the source of such samples begins in reports."""
OPEN_SIDE = 64
"""Height and width of images for inputs that leave them open. Chosen: small; not tuned."""
SMALLEST_SHARE = 1 / 64
"""The smallest radius as a share of the shorter side; at least one pixel. Chosen; not tuned."""
SCALES = 4.0
"""The smallest radius of an image is up to so many times that. Measured: the error of ResNet20's
inner layers on CIFAR-10, half of their channels refitted on such images, is 0.430 instead of 0.436
at a fixed radius of two pixels; on CIFAR-10 itself 0.378, on noise 0.569."""
LAYERS = 3.0
"""How often the discs together cover an image; one behind all of them fills the gaps. Chosen: gaps
are then a twentieth; not tuned."""
SHARED_COLOUR = 0.3
"""The share of the variance of colours that all discs of an image have in common. Measured as above
(0.436, without it 0.447); that of CIFAR-10's images is 0.28."""
COLOUR_MEAN = (0.49, 0.48, 0.45)
"""Of red, green and blue in photographs: those of CIFAR-10, rounded."""
COLOUR_AXES = ((0.57, 0.58, 0.58), (0.71, 0.0, -0.70), (0.40, -0.82, 0.41))
"""Light, red against blue, purple against green: what colours of photographs vary along."""
COLOUR_SPREAD = (0.41, 0.12, 0.055)
"""Standard deviations along these axes, those of CIFAR-10's pixels, rounded."""
PIXEL_RANGE = (0, 255)


def dead_leaves_samples(
    specs: tuple[InputSpec, ...],
    limits: Range,
    preprocessing: Mapping[str, Preprocessing],
    rows: int,
    seed: int = 0,
) -> Samples:
    """So many images for every input; DataError if an input is no image.

    They are pixels from 0 to 255, which preprocessing with a scale is meant for. Without a scale
    they are first brought to 0:1; without preprocessing, to the limits.
    """
    if fault := image_fault(specs):
        raise DataError(fault)
    batch = lcm_batch(specs)
    rows, arrays, maps = -(-rows // batch) * batch, dict[str, Array](), dict[str, RowMap]()
    for number, spec in enumerate(specs):
        pixels = image_rows(spec, rows, seed + number)
        wanted = pixel_preprocessing(spec, limits, preprocessing.get(spec.name))
        _, maps[spec.name] = mapped_array(StoredArray.of(pixels), spec, wanted, DEAD_LEAVES)
        arrays[spec.name] = pixels
    return Samples(specs, arrays, DEAD_LEAVES, maps=maps)


def image_fault(specs: tuple[InputSpec, ...]) -> str | None:
    """Why such images are no inputs of a model, if they are not."""
    for spec in specs:
        if image_input(spec) is None:
            return (
                f"input '{spec.name}' is {shape_text(spec.dims)}: dead-leaves images need N×C×H×W "
                "or N×H×W×C with 1 or 3 channels"
            )
        if spec.dtype.kind == "b" or (
            spec.dtype.kind in "iu" and np.iinfo(spec.dtype).max < PIXEL_RANGE[1]
        ):
            return f"input '{spec.name}' ({spec.dtype.name}) holds no pixels"
    return None if specs else "the model has no inputs"


def pixel_preprocessing(
    spec: InputSpec, limits: Range, wanted: Preprocessing | None
) -> Preprocessing:
    """How pixels from 0 to 255 become values of an input."""
    if spec.dtype.kind in "iu":
        return Preprocessing()
    if wanted is None or not wanted.changes_values:
        low, high = limits
        return Preprocessing(scale=((high - low) / PIXEL_RANGE[1],), mean=(-low,))
    wanted = replace(wanted, layout=None)
    return wanted if wanted.scale else replace(wanted, scale=(1 / PIXEL_RANGE[1],))


def image_rows(spec: InputSpec, rows: int, seed: int) -> Array:
    """Images in the layout of an input, a byte for each value."""
    wanted = image_input(spec)
    assert wanted is not None
    height, width = wanted.height or OPEN_SIDE, wanted.width or OPEN_SIDE
    rng = np.random.default_rng(seed)
    found = np.empty((rows, *wanted.shape(height, width)), np.uint8)
    for row in found:
        image = dead_leaves(height, width, wanted.channels, rng)
        row[...] = image if wanted.channels_last else np.moveaxis(image, -1, 0)
    return found


def dead_leaves(height: int, width: int, channels: int, rng: np.random.Generator) -> Array:
    """One image: height × width × channels, pixels from 0 to 255."""
    radii = disc_radii(height, width, rng)
    fine = disc_colours(len(radii) + 1, channels, rng)[top_discs(height + 1, width + 1, radii, rng)]
    soft = (fine[1:, 1:] + fine[:-1, 1:] + fine[1:, :-1] + fine[:-1, :-1]) / 4
    return np.rint(np.clip(soft, 0, 1) * PIXEL_RANGE[1]).astype(np.uint8)


def disc_radii(height: int, width: int, rng: np.random.Generator) -> FloatArray:
    """As many radii as cover an image several times, each with density ∝ r⁻³."""
    most = float(min(height, width))
    least = max(most * SMALLEST_SHARE, 1.0) * SCALES ** rng.random()
    most = max(most, 2 * least)
    mean_area = 2 * math.pi * math.log(most / least) / (least**-2 - most**-2)
    part = rng.random(math.ceil(LAYERS * height * width / mean_area))
    return np.asarray((least**-2 + part * (most**-2 - least**-2)) ** -0.5)


def top_discs(height: int, width: int, radii: FloatArray, rng: np.random.Generator) -> Indices:
    """The number of the disc that is seen at each point, from 1; 0 where there is none.

    Discs may stand out at every side, so that borders are covered like the middle.
    """
    ys, xs = rng.uniform(-radii, height + radii), rng.uniform(-radii, width + radii)
    tops = np.zeros((height, width), np.intp)
    rows, columns = np.arange(height) + 0.5, np.arange(width) + 0.5
    discs = zip(ys.tolist(), xs.tolist(), radii.tolist(), strict=True)
    for number, (y, x, r) in enumerate(discs, start=1):
        box = slice(max(int(y - r), 0), int(y + r) + 1), slice(max(int(x - r), 0), int(x + r) + 1)
        away = (rows[box[0]] - y) ** 2
        tops[box][away[:, None] + (columns[box[1]] - x) ** 2 <= r * r] = number
    return tops


def disc_colours(count: int, channels: int, rng: np.random.Generator) -> FloatArray:
    """So many colours of one image, or grey values; 0 is black and 1 white, some lie beyond."""
    common, own = rng.normal(size=3), rng.normal(size=(count, 3))
    drawn = math.sqrt(SHARED_COLOUR) * common + math.sqrt(1 - SHARED_COLOUR) * own
    values: FloatArray = np.array(COLOUR_MEAN) + (drawn * COLOUR_SPREAD) @ np.array(COLOUR_AXES)
    return values if channels > 1 else values.mean(axis=1, keepdims=True)
