"""A layer to be made smaller, what is known of its inputs, and how good a smaller layer is.

    within ε              ‖o′ − o‖ / ‖o − mean o‖ ≤ ε    in the metric
    equal up to rounding  |o′(x) − o(x)| ≤ 8·u·A(x)      on sample inputs x

u is the unit roundoff of the stored type and A is `Layer.magnitude`, or that of the polynomials of
which the layer is the completed square (`quadratics`). A layer that is equal up to
rounding must also be close in the metric: at most twice as far away as rounding all weights once
more would move the original. An ε below 16·u means 0.

With evidence, real inputs, layers are ranked by the error to expect on new inputs (`held_out`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from onnxfde.neurons.balance import balanced
from onnxfde.neurons.expanded_layer import ExpandedLayer
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.held_out import Evidence
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.lower_bound import lower_bounds
from onnxfde.neurons.mean_error import MeanErrors
from onnxfde.neurons.merge_order import canonical
from onnxfde.neurons.original_layer import OriginalLayer
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.quadratics import Quadratic, completed_layer, recentred, spelled_layer
from onnxfde.neurons.span_metric import seen_by
from onnxfde.neurons.unit_kernels import SQUARES, Kernel
from onnxfde.neurons.value_range import kernel_fault, storage_fault
from onnxfde.numbers import LARGEST, ROUNDING_STEPS, ROUNDOFF, Blocks, FloatArray, Indices

ROUNDING_SLACK = 2
"""A layer may be equal up to rounding within this factor of what rounding all weights once more
would change: the stored weights of both layers are rounded, the original's and the new one's."""
ESTIMATE_NOISE = 1e-6
"""Added to ε where errors are estimated from Gram matrices, so that rounding excludes no candidate:
half of float64's digits (1.5e-8) and a margin for sums over neurons. Chosen; not tuned."""

REGULARISATION_PER_ROW = 3
"""The share of the mean variance that is added to every variance of a Gaussian prior is the number
of inputs per row, times this. Measured on rows held out, first layers: LeNet-300-100 to 30 % with
2,880 rows 0.0735, 0.0720, 0.0712 and 0.0711 with 0.3, 1, 3 and 10; MNIST 784-256 to half with 2,160
rows 0.1038, 0.1030, 0.1028 and 0.1033. On digits, 64 inputs, 0.001 to 0.1 are equally good."""
MOST_REGULARISATION = 1.0
"""But at most this. Chosen by the same."""
LEAST_REGULARISATION = 0.01
"""But at least this. Chosen; not tuned."""
HEADROOM = 32
"""By how much the mean of a hidden value stays below the largest number of the stored type. The
square of a normal variable exceeds its mean 32 times in one of 65 million draws."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What every search for fewer neurons needs to know."""

    layer: Layer
    metric: Metric
    samples: FloatArray
    """Inputs of the layer on which "equal up to rounding" is decided."""
    dtype: np.dtype[Any]
    """What the weights are stored as."""
    evidence: Evidence | None = None
    """Real inputs with the outputs that the original network has there."""
    seed: int = 0
    int8: bool = False
    """Whether the hidden values will be rounded to 8 bits afterwards."""
    name: str = "layer"
    """What messages call it."""
    spelled_size: FloatArray | None = None
    """A of the samples if the network computes polynomials; None if it computes squares."""
    kept: Quadratic | None = None
    """The polynomial with which the layer will be stored; None if it will be stored as squares."""
    ordered: bool = True
    """Whether neurons are put into canonical form, for searches that depend on their order."""
    other_metrics: tuple[Metric, ...] = ()
    """Other assumptions about the inputs; the largest error counts (`mean_error`)."""
    box: tuple[FloatArray, FloatArray] | None = None
    """The lowest and highest value of each input of the layer, if the user vouches for them."""

    def error_of(self, layer: Layer) -> float:
        """The largest error of a layer under any assumption about the inputs."""
        if self.other_metrics:
            return self._mean_errors.error_of(layer)
        return self._originals[0].error_of(layer)

    @cached_property
    def _mean_errors(self) -> MeanErrors:
        return MeanErrors(self._originals, self.kernel, self.floor)

    @cached_property
    def _originals(self) -> tuple[OriginalLayer | ExpandedLayer, ...]:
        kind = OriginalLayer if self.squares else ExpandedLayer
        return tuple(kind(self.live, metric) for metric in (self.metric, *self.other_metrics))

    @property
    def squares(self) -> bool:
        """Whether its neurons are squares, for which there are closed forms."""
        return self.layer.activation == SQUARE

    @cached_property
    def kernel(self) -> Kernel:
        """How its neurons compare."""
        return SQUARES if self.squares else self.expanded.target.kernel

    @property
    def original(self) -> OriginalLayer:
        """The live neurons, if they are squares, under the first assumption about the inputs."""
        found = self._originals[0]
        if not isinstance(found, OriginalLayer):
            raise TypeError(f"{self.name} has no closed form: its neurons are not squares")
        return found

    @property
    def expanded(self) -> ExpandedLayer:
        """The same if they are not squares."""
        found = self._originals[0]
        if not isinstance(found, ExpandedLayer):
            raise TypeError(f"{self.name} has a closed form: its neurons are squares")
        return found

    @property
    def roundoff(self) -> float:
        """The unit roundoff of the stored type."""
        return ROUNDOFF[self.dtype.name]

    @property
    def floor(self) -> float:
        """The smallest ε that is more than rounding."""
        return ROUNDING_STEPS * self.roundoff

    @cached_property
    def _canonical(self) -> tuple[Layer, Indices]:
        live, alive = self.layer.without_constants(), np.flatnonzero(self.layer.alive)
        if not self.ordered:
            return live, alive
        live, order = canonical(live)
        return live, alive[order]

    @property
    def live(self) -> Layer:
        """The layer without constant neurons, in canonical form if it is ordered."""
        return self._canonical[0]

    @property
    def numbers(self) -> Indices:
        """The number that each live neuron has in the layer."""
        return self._canonical[1]

    @property
    def rows(self) -> FloatArray:
        """The live neurons, whitened."""
        return self._originals[0].rows

    @property
    def total(self) -> float:
        """The norm of the layer's centred output."""
        return self._originals[0].total

    @cached_property
    def _bounds(self) -> FloatArray:
        return lower_bounds(self.rows, self.live.outgoing, self.total)

    def lower_bound(self, count: int) -> float | None:
        """The least error that `count` neurons can have; None where there is no bound."""
        known = self.squares and count <= self.layer.inputs
        return float(self._bounds[count]) if known else None

    def fewest(self, eps: float) -> int:
        """No layer with fewer neurons than this is within ε; 0 where there is no bound."""
        return int(np.sum(self._bounds > eps)) if self.squares else 0

    @cached_property
    def noise(self) -> float:
        """The largest relative error that counts as rounding of the weights."""
        errors = (original.rounding_error(self.roundoff) for original in self._originals)
        return ROUNDING_SLACK * max(errors)

    @cached_property
    def _reference(self) -> tuple[FloatArray, FloatArray]:
        """The outputs on the samples, and how much rounding may change them.

        That is half of what `ROUNDING_STEPS` allows; the runtime's own rounding gets the rest.
        """
        size = self.spelled_size
        size = self.layer.magnitude(self.samples) if size is None else size
        return self.layer(self.samples), ROUNDING_STEPS / 2 * self.roundoff * size

    def worth_building(self, eps: float) -> float:
        """The largest estimated error, in absolute terms, at which a candidate for ε is built."""
        return (max(eps, self.noise) + ESTIMATE_NOISE) * self.total

    def accepts(self, candidate: Reduced, eps: float) -> bool:
        """Whether a layer is within ε or, below the floor, equal up to rounding."""
        if eps >= self.floor:
            return candidate.error <= eps
        if not candidate.error <= self.noise:
            return False
        wanted, allowed = self._reference
        with np.errstate(invalid="ignore", over="ignore"):
            change = np.abs(candidate.layer(self.samples) - wanted)
        return bool(np.all(change <= allowed))

    def measured_error(self, found: Reduced) -> float:
        """The error on samples held out, if there are any, else in the metric."""
        return self.evidence.held_out.error(found.layer) if self.evidence else found.error

    def expected_error(self, found: Reduced) -> float:
        """The error to expect on new inputs, without what earlier layers brought in.

        That is measured on the same samples, with the same margin: it is not charged to this layer.
        """
        if self.evidence is None:
            return found.error
        pairs = zip(self.evidence.expected_errors(found.layer), self._inherited_errors, strict=True)
        own = math.sqrt(max(0.0, *(whole**2 - inherited**2 for whole, inherited in pairs)))
        return max(own, found.error) if self.other_metrics else own

    @cached_property
    def _inherited_errors(self) -> tuple[float, float]:
        assert self.evidence is not None
        return self.evidence.expected_errors(self.layer)

    def with_prior(self) -> Problem:
        """The same with a metric that knows only the rows neurons are fitted to, and less of them.

        Then samples that are held out can tell how much a fit may rely on it.
        """
        if self.evidence is None or self.squares:
            return self
        rows = self.evidence.fitted.inputs
        wanted = REGULARISATION_PER_ROW * self.layer.inputs / len(rows)
        share = min(max(wanted, LEAST_REGULARISATION), MOST_REGULARISATION)
        metric = seen_by(self.live.incoming, Metric.measured(rows, share))
        return replace(self, metric=metric)

    @cached_property
    def inherited_error(self) -> float:
        """The error of the unchanged layer, whose inputs earlier layers have changed."""
        return self.evidence.held_out.error(self.layer) if self.evidence else 0.0

    def rank(self, found: Reduced) -> tuple[float, float]:
        """A key that puts better layers first: by the expected error, then by the measured one."""
        return self.expected_error(found), self.measured_error(found)

    def stored(self, layer: Layer, blocks: Blocks) -> Reduced:
        """A layer balanced, as it reads back from the file, with its error."""
        return self.reduced(self.read_back(self.evened(layer)), blocks)

    def evened(self, layer: Layer, exact: bool = True) -> Layer:
        """The same layer with the scales that suit how it is stored."""
        if self.kept is not None:
            return recentred(layer, self.kept, self.metric)
        ceiling = LARGEST[self.dtype.name] / HEADROOM
        return balanced(layer, self.layer, self.metric, exact, ceiling)

    @cached_property
    def fault(self) -> str | None:
        """Why float64 cannot compare the layer's neurons; None if it can."""
        return kernel_fault(self.layer, self.rows, self.live.outgoing, self.kernel)

    def storage_fault(self, layer: Layer) -> str | None:
        """Why the stored type cannot hold the values of a smaller layer; None if it can."""
        return storage_fault(layer, self.samples, self.dtype, self.kept)

    def read_back(self, layer: Layer) -> Layer:
        """A layer as it reads back from the file."""
        if self.kept is None:
            return layer.stored_as(self.dtype)
        return completed_layer(spelled_layer(layer, self.kept).stored_as(self.dtype), self.kept)

    def reduced(self, layer: Layer, blocks: Blocks) -> Reduced:
        """A layer that is rounded to the stored type already, with its error.

        Under several assumptions about the inputs it gets the offset that suits all of them.
        """
        if self.other_metrics:
            layer, error = self._mean_errors.settled(layer, self.read_back)
            return Reduced(layer, blocks, error)
        return Reduced(layer, blocks, self.error_of(layer))

    def constant(self) -> Reduced | None:
        """The result for a layer whose output never varies: one neuron of zeros."""
        layer = self.layer
        if layer.neurons == 1:
            return None
        nothing = np.zeros((1, layer.inputs + 1))
        offset = layer.without_constants().offset
        parameters = tuple(p[:1] for p in layer.unit_parameters)
        silent = np.zeros((layer.outputs, 1))
        stored = Layer(nothing, silent, offset, layer.activation, parameters)
        return Reduced(self.read_back(stored), (tuple(range(layer.neurons)),), 0.0)
