"""A folder of images, sorted by path, in the size and with the channels of the model's input.

Subfolders are read too. If all images lie in subfolders, two at least, these are classes: 0 for the
first by name. Of many images, evenly spread ones are read.
Pillow, which decodes them, is an optional dependency and imported when an image is opened.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxfde.errors import DataError, in_one_line
from onnxfde.graph.input_specs import InputSpec
from onnxfde.numbers import IMAGE_SUFFIXES, Array
from onnxfde.running.data_files import StoredArray, rows_per_block
from onnxfde.running.data_rows import MOST_IN_ONE_RUN, evenly_spread, most_rows
from onnxfde.running.image_inputs import ImageInput, image_input, shape_text

PIXEL = np.dtype(np.uint8)
DEEP_MODES = ("I", "F")
"""How the names of Pillow's modes with more than 8 bits a value begin."""
IMAGE_ERRORS = (
    OSError,
    ValueError,
    SyntaxError,
    TypeError,
    LookupError,
    EOFError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
    Warning,
)
"""What Pillow raises for files that are damaged, or made to do harm."""


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """The images of a folder, for one input of a model."""

    folder: Path
    files: tuple[Path, ...]
    """Those that are read."""
    found: tuple[Path, ...]
    """All that there are."""
    wanted: ImageInput
    size: tuple[int, int]
    """Height and width that every image gets."""
    resizes: bool
    """Whether images of another size are resized, or refused."""

    @classmethod
    def opened(cls, folder: Path, spec: InputSpec) -> ImageFolder:
        """Find the images and the size that they get; none but the first is opened."""
        wanted, files = image_input(spec), image_files(folder)
        if wanted is None:
            raise DataError(
                f"{folder} is a folder of images, the model's input '{spec.name}' is "
                f"{shape_text(spec.dims)}: images need N×C×H×W or N×H×W×C with 1 or 3 channels"
            )
        if not files:
            known = ", ".join(sorted(IMAGE_SUFFIXES))
            raise DataError(
                f"{folder} has no .npz files, and neither it nor subfolders have images ({known})"
            )
        fixed = wanted.height is not None and wanted.width is not None
        own = (0, 0) if fixed else pixels_of(files[0], wanted.channels, None).shape[:2]
        size = wanted.height or own[0], wanted.width or own[1]
        width = math.prod(size) * wanted.channels
        if width > MOST_IN_ONE_RUN:
            raise DataError(f"{files[0]} is too large to be tried out ({size[0]}×{size[1]} pixels)")
        pick = evenly_spread(len(files), max(min(most_rows(width), len(files)), 1))
        used = tuple(files[i] for i in pick)
        return cls(folder, used, tuple(files), wanted, (size[0], size[1]), fixed)

    @property
    def source(self) -> str:
        """What reports call these images."""
        part = f"{len(self.files):,} of its " if len(self.files) < len(self.found) else ""
        classes = f" in {len(self.classes)} classes" if self.classes else ""
        return f"{self.folder} ({part}{len(self.found):,} images{classes})"

    @property
    def classes(self) -> tuple[str, ...]:
        """The subfolders, also of images that are not read, if each lies in one of several."""
        places = [file.relative_to(self.folder).parts for file in self.found]
        names = sorted({parts[0] for parts in places})
        return tuple(names) if len(names) > 1 and all(len(p) > 1 for p in places) else ()

    @property
    def labels(self) -> Array | None:
        """The number of the class of each image, if they have classes.

        Subfolders that are called by numbers have these numbers, others those of their order.
        """
        named = all(name.isdecimal() for name in self.classes)
        number = {name: int(name) if named else i for i, name in enumerate(self.classes)}
        if not number:
            return None
        return np.array([number[f.relative_to(self.folder).parts[0]] for f in self.files])

    def array(self) -> StoredArray:
        """The images as one array, decoded as far as it is read."""
        shape = (len(self.files), *self.wanted.shape(*self.size))
        return StoredArray(shape, PIXEL, lambda: self.blocks(shape))

    def blocks(self, shape: tuple[int, ...]) -> Iterator[Array]:
        """Some images at a time."""
        step = rows_per_block(shape, PIXEL)
        for first in range(0, len(self.files), step):
            yield np.stack([self.image(file) for file in self.files[first : first + step]])

    def image(self, file: Path) -> Array:
        """One image in the layout of the model."""
        found = pixels_of(file, self.wanted.channels, self.size if self.resizes else None)
        if found.shape[:2] != self.size:
            sizes = [f"{height}×{width}" for height, width in (found.shape[:2], self.size)]
            raise DataError(
                f"{file} has {sizes[0]} pixels, {self.files[0].name} has {sizes[1]}: the model "
                "leaves the size open, so all images must have the same"
            )
        return found if self.wanted.channels_last else np.moveaxis(found, -1, 0)

    def sha256(self) -> str:
        """A hash of the images that are read, with their names."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(os.fsencode(file.relative_to(self.folder)) + b"\0")
            with reading(file):
                digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()


def image_files(folder: Path) -> list[Path]:
    """All images of a folder and its subfolders, by path; links are followed, each folder once."""
    found, seen = [], set()

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename or folder}: cannot be read ({error.strerror or error})")

    for place, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        seen.add(os.path.realpath(place))
        folders[:] = sorted(
            name for name in folders if os.path.realpath(os.path.join(place, name)) not in seen
        )
        paths = (Path(place, name) for name in files)
        found += [p for p in paths if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file()]
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


def pixels_of(file: Path, channels: int, size: tuple[int, int] | None) -> Array:
    """An image as height × width × channels, resized (bilinear) if a size is given."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            "reading images needs Pillow: pip install 'onnxfde[images]', or pip install pillow"
        ) from None
    with reading(file), Image.open(file) as image:
        if image.mode.startswith(DEEP_MODES):
            raise DataError(f"{file} has more than 8 bits a value ({image.mode}); convert it first")
        plain = image.convert("L" if channels == 1 else "RGB")
        if size is not None and plain.size != size[::-1]:
            plain = plain.resize(size[::-1], Image.Resampling.BILINEAR)
        return np.asarray(plain, PIXEL).reshape(plain.height, plain.width, channels)


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turn what goes wrong while an image is read into an error that names it."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (*IMAGE_ERRORS, Image.DecompressionBombError) as error:
        raise DataError(f"{file} cannot be read as an image ({in_one_line(error)})") from None
