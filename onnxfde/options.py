"""What a user can ask for, as one value that goes from the command line to the passes.

`MergeOptions` decide how neurons are merged; `Options` add where inputs come from and what is
checked. Options that make no sense, alone or together, are refused when the value is created.
Nothing heavy is imported, so that `--help` stays fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, get_args

from onnxfde.errors import OptionError, UsageError

if TYPE_CHECKING:
    from onnxfde.numbers import Data

Semantics = Literal["budget", "paper", "erode"]
Threshold = Literal["paper", "erode"]
Quotient = Literal["minimal", "refit", "single", "exact"]
Relation = Literal["forward", "backward"]
Norm = Literal["sum", "max"]
Linkage = Literal["closure", "diameter"]
Int8 = Literal["dynamic", "static"]
Range = tuple[float, float]
"""The smallest and the largest value of inputs."""

DEFAULT_EPS = 0.1
"""Allowed relative change of a layer's output unless given, where the inputs are known well enough
(`MergeOptions.eps`). Chosen; not tuned."""
DEFAULT_RANGE = (-1.0, 1.0)
"""Range of the inputs if the user says nothing about them. Chosen: where normalised inputs lie."""
DEFAULT_SEED = 0

CHOICES = {
    "semantics": Semantics,
    "quotient": Quotient,
    "relation": Relation,
    "norm": Norm,
    "linkage": Linkage,
    "int8": Int8,
}
NUMBERS = {"eps": Real, "keep": Real, "max_certified_error": Real, "time_limit": Real,
           "neurons": Integral, "seed": Integral}  # fmt: skip
"""The kind of number that an option takes; some may be None."""
FLAGS = ("verify", "certify", "force")
"""Options that are true or false; `certify` may be None."""
PAPER_DEFAULTS = ("forward", "sum", "closure")
"""`relation`, `norm` and `linkage` unless given."""
EPS_AND_COUNT = "--eps cannot be combined with --neurons or --keep"
SHARE_SLACK = 1e-9
"""Subtracted before a share of neurons is rounded up, so that 7 % of 100 (in floating point
7.000000000000001) are 7. Chosen: far above float64's rounding, far below one neuron."""


@dataclass(frozen=True)
class MergeOptions:
    """How the neurons of layers are merged."""

    eps: float | None = None
    """Allowed relative change of a layer's output (budget), or pairwise threshold (paper).

    None: `DEFAULT_EPS`, but 0 for the change of layers whose activation is no polynomial if there
    is no data."""
    layer_eps: tuple[tuple[str, float], ...] = ()
    """ε for single layers, by name or glob."""
    neurons: int | None = None
    """Leave at most this many neurons in each layer, instead of ε."""
    keep: float | None = None
    """Leave at most this fraction of each layer's neurons, instead of ε."""
    semantics: Semantics = "budget"
    """What ε means: a bound on the change, or a pairwise threshold."""
    quotient: Quotient | None = None
    """How a layer gets fewer neurons; minimal for budget and single for paper unless given."""
    seed: int = DEFAULT_SEED
    """Seed of the random starts of minimal."""
    relation: Relation = "forward"
    """Paper: compare outgoing or incoming weights."""
    norm: Norm = "sum"
    """Paper, backward: how differences add up."""
    linkage: Linkage = "closure"
    """Paper: blocks by chains of neighbours, or all pairs within ε."""
    layers: tuple[str, ...] = ()
    """Only layers whose name matches one of these globs."""
    skip: tuple[str, ...] = ()
    """Not the layers whose name matches one of these globs."""
    int8: Int8 | None = None
    """How values will be rounded to 8 bits; minimal then avoids large weights that cancel."""

    def __post_init__(self) -> None:
        """Refuse options that make no sense, alone or together."""
        for name, kind in CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise UsageError(f"--{name} '{value}' is not one of {known}")
        self._check_types()
        self._check_values()
        self._check_combinations()

    def _check_types(self) -> None:
        for name, kind in NUMBERS.items():
            value = getattr(self, name, None)
            if value is not None and not is_number(value, kind):
                what = "a whole number" if kind is Integral else "a number"
                raise UsageError(f"{option(name)} {value!r} is not {what}")
        for name, eps in self.layer_eps:
            if not is_number(eps):
                raise UsageError(f"--eps {name}={eps!r} is not a number")
        for name in FLAGS:
            if not isinstance(getattr(self, name, None), bool | None):
                raise UsageError(f"{option(name)} {getattr(self, name)!r} is not true or false")

    def _check_values(self) -> None:
        common = DEFAULT_EPS if self.eps is None else self.eps
        for name, eps in (("", common), *self.layer_eps):
            if not (math.isfinite(eps) and eps >= 0):
                raise UsageError(f"--eps {name and name + '='}{eps} is not a number ≥ 0")
        if self.neurons is not None and self.neurons < 1:
            raise UsageError(f"--neurons {self.neurons} is not a number ≥ 1")
        if self.seed < 0:
            raise UsageError(f"--seed {self.seed} is not a number ≥ 0")
        if self.keep is not None and not 0 < self.keep <= 1:
            hint = f"; for {self.keep:g} % give {self.keep:g}% or {self.keep / 100:g}"
            raise UsageError(
                f"--keep {self.keep:g} is not a fraction above 0 and up to 1"
                f"{hint if 1 < self.keep <= 100 else ''}"
            )

    def _check_combinations(self) -> None:
        if self.neurons is not None and self.keep is not None:
            raise UsageError("--neurons and --keep cannot be combined: give one")
        if self.layer_eps and self.asks_for_count:
            raise UsageError(EPS_AND_COUNT)
        if self.quotient == "minimal" and self.semantics != "budget":
            raise UsageError("--quotient minimal needs --semantics budget")
        if self.quotient == "exact" and (self.semantics == "budget" or self.relation == "backward"):
            raise UsageError("--quotient exact needs --semantics paper and --relation forward")
        if self.quotient == "exact" and self.asks_for_count:
            raise UsageError("--quotient exact decides the count: give --eps")
        if self.semantics == "erode" and (self.norm, self.linkage) != PAPER_DEFAULTS[1:]:
            raise UsageError("--norm and --linkage need --semantics paper: ERODE sums and chains")
        if self.norm == "max" and self.relation == "forward":
            raise UsageError("--norm max needs --relation backward")
        chosen = (self.relation, self.norm, self.linkage)
        if self.semantics == "budget" and chosen != PAPER_DEFAULTS:
            raise UsageError("--relation, --norm and --linkage need --semantics paper")

    @property
    def quotient_used(self) -> Quotient:
        """The quotient, with the default of the semantics."""
        return self.quotient or ("minimal" if self.semantics == "budget" else "single")

    @property
    def asks_for_count(self) -> bool:
        """Whether the user asks for a number of neurons instead of ε."""
        return self.neurons is not None or self.keep is not None

    @property
    def method(self) -> Self:
        """How to merge: the same without ε, counts and the choice of layers."""
        return replace(self, eps=None, layer_eps=(), neurons=None, keep=None, layers=(), skip=())

    @property
    def largest_eps(self) -> float:
        """The largest ε of any layer."""
        common = DEFAULT_EPS if self.eps is None else self.eps
        return max(common, *(eps for _, eps in self.layer_eps), 0.0)

    def eps_given(self, name: str) -> float | None:
        """ε of one layer: given by its name, else by a glob, else the common one."""
        own = dict(self.layer_eps)
        matching = (eps for glob, eps in self.layer_eps if fnmatchcase(name, glob))
        return own.get(name, next(matching, self.eps))

    def count_of(self, neurons: int) -> int | None:
        """How many of a layer's neurons to leave; None if ε decides."""
        if self.keep is not None:
            return max(1, math.ceil(self.keep * neurons - SHARE_SLACK))
        return self.neurons

    def selected(self, names: Sequence[str]) -> list[str]:
        """The layers to work on; a name or glob that matches no layer is an error."""
        for wanted in (*(name for name, _ in self.layer_eps), *self.layers, *self.skip):
            if names and not any(listed(n, (wanted,)) for n in names):
                raise OptionError(
                    f"no layer is called '{wanted}'; the layers are {', '.join(names)}"
                )
        chosen = [n for n in names if not self.layers or listed(n, self.layers)]
        return [n for n in chosen if not listed(n, self.skip)]


def listed(name: str, globs: tuple[str, ...]) -> bool:
    """Whether a layer's name equals or matches one of the globs."""
    return any(name == glob or fnmatchcase(name, glob) for glob in globs)


def option(name: str) -> str:
    """How an option is written on the command line."""
    return f"--{name.replace('_', '-')}"


def is_number(value: object, kind: type = Real) -> bool:
    """Whether a value is a number of a kind; true and false are not numbers."""
    return isinstance(value, kind) and not isinstance(value, bool)


def plain_number(value: Any) -> Any:
    """A number as an int or a float, whatever type it has; anything else as it is."""
    if is_number(value, Integral):
        return int(value)
    return float(value) if is_number(value) else value


@dataclass(frozen=True)
class Options(MergeOptions):
    """Everything that `optimize` can be asked for."""

    data: Data | None = None
    """Real inputs: a file, arrays by the names of the model's inputs, or the only input's array."""
    input_range: Range | None = None
    """The range of the inputs, which the certificate covers; the default one if not given."""
    verify: bool = True
    """Run the result beside the original and compare them."""
    certify: bool | None = None
    """Bound the change of every output for all inputs in the range; None: only if that is cheap."""
    max_certified_error: float | None = None
    """Merge only as much as keeps that bound within this."""
    time_limit: float | None = None
    """Seconds from the start after which minimal takes the best it has found so far."""
    force: bool = False
    """Optimize a model again even if onnxfde made it with the same settings."""

    def __post_init__(self) -> None:
        """Refuse options that make no sense, alone or together."""
        super().__post_init__()
        self._check_proof()
        self._check_time()

    @classmethod
    def given(cls, eps: float | None, **more: Unpack[MoreOptions]) -> Options:
        """Options as Python callers write them: a single glob, ε of layers as a mapping."""
        settled: dict[str, Any] = {name: plain_number(value) for name, value in more.items()}
        if unknown := sorted(settled.keys() - MoreOptions.__annotations__.keys()):
            raise UsageError(f"optimize takes no option '{unknown[0]}'")
        for name in ("layers", "skip"):
            settled[name] = as_globs(name, settled.get(name, ()))
        by_layer = settled.get("layer_eps") or {}
        if not isinstance(by_layer, Mapping):
            raise UsageError(f"layer_eps {by_layer!r} is not a mapping from layers to ε")
        own = ((str(name), plain_number(value)) for name, value in by_layer.items())
        settled["layer_eps"] = tuple(sorted(own))
        if eps is not None and (
            settled.get("neurons") is not None or settled.get("keep") is not None
        ):
            raise UsageError(EPS_AND_COUNT)
        return cls(eps=plain_number(eps), **settled)

    def _check_proof(self) -> None:
        limit = self.max_certified_error
        if limit is not None and not (math.isfinite(limit) and limit >= 0):
            raise UsageError(f"--max-certified-error {limit} is not a number ≥ 0")
        if limit is not None and self.certify is False:
            raise UsageError("--max-certified-error needs a certificate: drop --no-certify")
        if self.int8 and (self.certify or limit is not None):
            option = "--certify" if limit is None else "--max-certified-error"
            raise UsageError(f"{option} cannot hold for --int8, which rounds every value: drop one")
        if self.int8 == "static" and self.data is None:
            raise UsageError("--int8 static measures ranges on real inputs: give --data")

    def _check_time(self) -> None:
        limit = self.time_limit
        if limit is not None and not (math.isfinite(limit) and limit > 0):
            raise UsageError(f"--time-limit {limit} is not a number of seconds > 0")
        if limit is not None and self.quotient_used != "minimal":
            raise UsageError(
                "--time-limit needs --quotient minimal: the others do not search, and always finish"
            )

    @property
    def range_used(self) -> Range:
        """The range of the inputs, or the default one."""
        return DEFAULT_RANGE if self.input_range is None else self.input_range


def as_globs(name: str, globs: Any) -> tuple[str, ...]:
    """One glob or several, as a tuple."""
    if isinstance(globs, str):
        return (globs,)
    if not isinstance(globs, Iterable) or not all(isinstance(glob, str) for glob in globs):
        raise UsageError(f"--{name} {globs!r} is not a list of names or globs")
    return tuple(globs)


class MoreOptions(TypedDict, total=False):
    """The fields of `Options` besides ε, for callers that give them by name."""

    layer_eps: Mapping[str, float]
    neurons: int | None
    keep: float | None
    semantics: Semantics
    quotient: Quotient | None
    seed: int
    relation: Relation
    norm: Norm
    linkage: Linkage
    layers: Sequence[str]
    skip: Sequence[str]
    int8: Int8 | None
    data: Data | None
    input_range: Range | None
    verify: bool
    certify: bool | None
    max_certified_error: float | None
    time_limit: float | None
    force: bool
