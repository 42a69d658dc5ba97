"""Operations on maps (N, C, H, W), with their gradients.

    y = W ⋆ x + b                           Convolution: one product, W · windows(x)
    y_c = w_c ⋆ x_c + b_c                   Depthwise
    y_c = s_c x_c + t_c                     ScaleShift (BatchNormalization, factors, shifts)
    y = σ(x)                                Activated: a row of the table
    y = mean or largest of each window      AveragePool, MaxPool, GlobalAverage
    y = W vec(x) + b                        Dense: flatten, then a matrix

`forward` gives the result and a tape; from it and dL/dy, `backward` gives dL/dx and `gradients`
dL/d(parameter) by name. `cropped` is the operation that makes a region of the output, and the
region that it reads. Signals are maps with one row. Numbers have the type of the maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np

from onnxfde.neurons.activation import Activation
from onnxfde.neurons.map_windows import MapRegion, MapWindow, Size, images_first, images_last, whole
from onnxfde.numbers import Array

Parameters = Mapping[str, Array]
"""Arrays of an operation by the name of its field."""


SHIFTS = ("bias", "shift")
"""Parameters that are added to the result."""


class Operation(Protocol):
    """A step of a chain."""

    @property
    def parameters(self) -> Parameters:
        """What gradients are taken of."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        """The result, and what the gradients need."""

    def gradients(self, tape: Any, dy: Array) -> Parameters:
        """Of each parameter."""

    def backward(self, tape: Any, dy: Array) -> Array:
        """Of what the operation reads."""

    def size(self, size: Size) -> Size:
        """How large the result is."""

    def cropped(self, region: MapRegion, size: Size) -> tuple[Operation, MapRegion]:
        """What makes a region of the result from maps of a size, and the region that it reads."""


@dataclass(frozen=True, eq=False)
class _Weighted:
    weight: Array
    bias: Array | None = None

    @property
    def parameters(self) -> Parameters:
        return {"weight": self.weight} | ({} if self.bias is None else {"bias": self.bias})

    def _named(self, weight: Array, bias: Array) -> Parameters:
        return {"weight": weight} | ({} if self.bias is None else {"bias": bias})


@dataclass(frozen=True, eq=False)
class _Windowed:
    window: MapWindow = field(default=MapWindow(), kw_only=True)

    def size(self, size: Size) -> Size:
        return self.window.size(size)

    def cropped(self, region: MapRegion, size: Size) -> tuple[Self, MapRegion]:
        window, needed = self.window.cropped(region, size)
        return replace(self, window=window), needed


@dataclass(frozen=True, eq=False)
class _Pointwise:
    def size(self, size: Size) -> Size:
        return size

    def cropped(self, region: MapRegion, size: Size) -> tuple[Self, MapRegion]:
        return self, region


@dataclass(frozen=True, eq=False)
class _Whole:
    def size(self, size: Size) -> Size:
        return (1, 1)

    def cropped(self, region: MapRegion, size: Size) -> tuple[Self, MapRegion]:
        return self, whole(size)


@dataclass(frozen=True, eq=False)
class Convolution(_Windowed, _Weighted):
    """Weight (outputs, inputs, kernel), bias (outputs); one group."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        """W · windows(x) + b."""
        columns = self.window.columns(x)
        made = self.weight.reshape(len(self.weight), -1) @ columns
        if self.bias is not None:
            made += self.bias[:, None]
        shape = (len(self.weight), *self.size(x.shape[2:]), len(x))
        return images_first(made.reshape(shape)), (columns, x.shape)

    def gradients(self, tape: Any, dy: Array) -> Parameters:
        """The product dy · windowsᵀ, and the sum of dy."""
        rows = images_last(dy).reshape(len(self.weight), -1)
        return self._named((rows @ tape[0].T).reshape(self.weight.shape), rows.sum(axis=1))

    def backward(self, tape: Any, dy: Array) -> Array:
        """Wᵀ · dy, each number added where it was read."""
        rows = images_last(dy).reshape(len(self.weight), -1)
        return self.window.spread(self.weight.reshape(len(self.weight), -1).T @ rows, tape[1])


@dataclass(frozen=True, eq=False)
class Depthwise(_Windowed, _Weighted):
    """Weight (channels, kernel), bias (channels): each channel by itself."""

    def _places(self) -> Array:
        return self.weight.reshape(len(self.weight), -1).T[:, :, None, None, None]

    def forward(self, x: Array) -> tuple[Array, Any]:
        """Σ_t w_t x(t) + b over the places t of the kernel."""
        padded, size = self.window.padded(x), self.size(x.shape[2:])
        made = np.zeros((len(padded), *size, len(x)), x.dtype)
        if self.bias is not None:
            made += self.bias[:, None, None, None]
        for weight, tap in zip(self._places(), self.window.taps(padded, size), strict=True):
            made += weight * tap
        return images_first(made), (padded, x.shape)

    def gradients(self, tape: Any, dy: Array) -> Parameters:
        """Σ dy x(t) for each place, and the sum of dy."""
        slope = images_last(dy)
        taps = self.window.taps(tape[0], dy.shape[2:])
        weight = np.stack([np.einsum("chwn,chwn->c", slope, tap) for tap in taps], axis=1)
        return self._named(weight.reshape(self.weight.shape), slope.sum(axis=(1, 2, 3)))

    def backward(self, tape: Any, dy: Array) -> Array:
        """w_t dy added at each place."""
        padded, slope = self.window.blank(tape[1], dy.dtype), images_last(dy)
        taps = self.window.taps(padded, dy.shape[2:])
        for weight, tap in zip(self._places(), taps, strict=True):
            tap += weight * slope
        return self.window.gathered(padded, tape[1])


@dataclass(frozen=True, eq=False)
class ScaleShift(_Pointwise):
    """A factor and a shift for each channel."""

    scale: Array
    shift: Array

    @property
    def parameters(self) -> Parameters:
        """Both."""
        return {"scale": self.scale, "shift": self.shift}

    def forward(self, x: Array) -> tuple[Array, Any]:
        """The map s x + t."""
        return x * self.scale[:, None, None] + self.shift[:, None, None], x

    def gradients(self, tape: Any, dy: Array) -> Parameters:
        """Σ dy x and Σ dy."""
        return {"scale": np.einsum("nchw,nchw->c", tape, dy), "shift": dy.sum(axis=(0, 2, 3))}

    def backward(self, tape: Any, dy: Array) -> Array:
        """The product s dy."""
        return np.asarray(dy * self.scale[:, None, None])


class _Fixed:
    @property
    def parameters(self) -> Parameters:
        return {}

    def gradients(self, tape: Any, dy: Array) -> Parameters:
        return {}


@dataclass(frozen=True, eq=False)
class Activated(_Fixed, _Pointwise):
    """An activation, with a number for each channel for each of its parameters."""

    activation: Activation
    unit_parameters: tuple[Array, ...] = ()

    def _numbers(self, x: Array) -> list[Array]:
        return [p.astype(x.dtype)[:, None, None] for p in self.unit_parameters]

    def forward(self, x: Array) -> tuple[Array, Any]:
        """σ(x)."""
        made = self.activation.value(x, *self._numbers(x))
        return np.asarray(made, x.dtype), x

    def backward(self, tape: Any, dy: Array) -> Array:
        """σ′(x) dy."""
        slope = self.activation.slope(tape, *self._numbers(tape))
        return np.multiply(dy, slope, dtype=dy.dtype, casting="same_kind")


@dataclass(frozen=True, eq=False)
class AveragePool(_Fixed, _Windowed):
    """The mean of each window; padding counts as zeros, or not at all."""

    padding_counts: bool = True

    def _counts(self, size: Size, dtype: np.dtype[Any]) -> Array:
        if self.padding_counts:
            return np.asarray(self.window.kernel[0] * self.window.kernel[1], dtype)
        inside = self.window.padded(np.ones((1, 1, *size), dtype))
        return np.asarray(sum(self.window.taps(inside, self.size(size))))

    def forward(self, x: Array) -> tuple[Array, Any]:
        """The mean."""
        padded, size = self.window.padded(x), self.size(x.shape[2:])
        made = np.zeros((len(padded), *size, len(x)), x.dtype)
        for tap in self.window.taps(padded, size):
            made += tap
        return images_first(made / self._counts(x.shape[2:], x.dtype)), x.shape

    def backward(self, tape: Any, dy: Array) -> Array:
        """The same share for each that was counted."""
        padded = self.window.blank(tape, dy.dtype)
        share = images_last(dy) / self._counts(tape[2:], dy.dtype)
        for tap in self.window.taps(padded, dy.shape[2:]):
            tap += share
        return self.window.gathered(padded, tape)


@dataclass(frozen=True, eq=False)
class MaxPool(_Fixed, _Windowed):
    """The largest of each window."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        """The largest."""
        padded, size = self.window.padded(x, -np.inf), self.size(x.shape[2:])
        made = np.full((len(padded), *size, len(x)), -np.inf, x.dtype)
        for tap in self.window.taps(padded, size):
            np.maximum(made, tap, out=made)
        return images_first(made), (padded, made, x.shape)

    def backward(self, tape: Any, dy: Array) -> Array:
        """All for the first that is the largest."""
        padded, made, shape = tape
        found, left = self.window.blank(shape, dy.dtype), images_last(dy).copy()
        size = dy.shape[2:]
        for tap, seen in zip(
            self.window.taps(found, size), self.window.taps(padded, size), strict=True
        ):
            here = seen == made
            tap += left * here
            left *= ~here
        return self.window.gathered(found, shape)


@dataclass(frozen=True, eq=False)
class GlobalAverage(_Fixed, _Whole):
    """The mean of each map."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        """The mean."""
        return x.mean(axis=(2, 3), keepdims=True), x.shape

    def backward(self, tape: Any, dy: Array) -> Array:
        """The same share for each."""
        return np.broadcast_to(dy / (tape[2] * tape[3]), tape)


@dataclass(frozen=True, eq=False)
class Dense(_Whole, _Weighted):
    """Weight outputs × (channels · rows · columns), bias (outputs): reads the flattened maps."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        """W vec(x) + b."""
        rows = x.reshape(len(x), -1)
        made = rows @ self.weight.T
        if self.bias is not None:
            made += self.bias
        return made[:, :, None, None], (rows, x.shape)

    def gradients(self, tape: Any, dy: Array) -> Parameters:
        """dyᵀ vec(x), and the sum of dy."""
        slope = dy[:, :, 0, 0]
        return self._named(slope.T @ tape[0], slope.sum(axis=0))

    def backward(self, tape: Any, dy: Array) -> Array:
        """The product dy W."""
        return np.asarray((dy[:, :, 0, 0] @ self.weight).reshape(tape[1]))
