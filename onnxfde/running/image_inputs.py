"""Inputs of a model that are images: N×C×H×W or N×H×W×C with one channel (grey) or three (RGB)."""

from __future__ import annotations

from dataclasses import dataclass

from onnxfde.graph.input_specs import InputSpec
from onnxfde.graph.shapes import Dims

IMAGE_CHANNELS = (1, 3)
"""Grey, and red, green, blue."""


@dataclass(frozen=True)
class ImageInput:
    """What a model wants of an image; None stands for a height or width that is open."""

    channels: int
    height: int | None
    width: int | None
    channels_last: bool

    def shape(self, height: int, width: int) -> tuple[int, int, int]:
        """The shape of one image of this size."""
        if self.channels_last:
            return height, width, self.channels
        return self.channels, height, width


def image_input(spec: InputSpec) -> ImageInput | None:
    """An input as an image; None if it is none. Channels first if both ends could be channels."""
    if len(spec.dims) != 4:
        return None
    _, *row = spec.dims
    for place, (height, width) in ((0, row[1:]), (2, row[:2])):
        channels = row[place]
        if isinstance(channels, int) and channels in IMAGE_CHANNELS:
            return ImageInput(channels, length(height), length(width), place == 2)
    return None


def length(dim: int | str | None) -> int | None:
    """The length of an axis, if the model fixes it."""
    return dim if isinstance(dim, int) else None


def shape_text(dims: Dims) -> str:
    """A shape as a user reads it."""
    return "×".join(str(d or "?") for d in dims)
