"""What a user can ask for, as one value that goes from the command line to the passes.

`MergeOptions` decide how neurons are merged; `Options` add where inputs come from and what is
checked. Options that make no sense, alone or together, are refused when the value is created.
Nothing heavy is imported, so that `--help` stays fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, get_args

from onnxfde.data_use import DATA_USES, DataUse, as_texts
from onnxfde.errors import OptionError, UsageError
from onnxfde.limits import (
    GOALS,
    LOSS_GOALS,
    SHARE_SLACK,
    SIZE_GOALS,
    GoalKind,
    Limit,
    check_limit,
    is_number,
    latency_limit,
    option,
    plain_number,
)

if TYPE_CHECKING:
    from onnxfde.numbers import Data

Semantics = Literal["budget", "paper", "erode"]
Threshold = Literal["paper", "erode"]
Quotient = Literal["minimal", "refit", "single", "exact"]
Relation = Literal["forward", "backward"]
Norm = Literal["sum", "max"]
Linkage = Literal["closure", "diameter"]
UnitKind = Literal["dense", "channels"]
"""What the units of a layer are: neurons of a dense layer, or channels of a convolution."""
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
           "neurons": Integral, "seed": Integral, "max_macs": Real, "max_params": Real,
           "max_bytes": Real, "max_error": Real, "max_drop": Real, "align": Integral}  # fmt: skip
"""The kind of number that an option takes; some may be None."""
FLAGS = ("verify", "certify", "force")
"""Options that are true or false; `certify` may be None."""
PAPER_DEFAULTS = ("forward", "sum", "closure")
"""`relation`, `norm` and `linkage` unless given."""
EPS_AND_COUNT = (
    "--eps cannot be combined with --neurons, --keep or a goal of the whole model (--max-…)"
)
COUNTS = ("neurons", "keep", *(f"max_{kind}" for kind in GOALS))
"""Options that say what the result is to be like, instead of ε."""
ALIGNMENTS = (1, 4, 8)
"""Multiples to which runtimes round channels in memory."""


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
    max_macs: Limit | None = None
    """Leave at most so many multiply-adds in the model, instead of ε."""
    max_params: Limit | None = None
    """Leave at most so many parameters in the model, instead of ε."""
    max_bytes: Limit | None = None
    """Leave at most so many bytes of the file, instead of ε."""
    max_error: float | None = None
    """Change the model's outputs by at most this (relative L2), instead of ε."""
    max_drop: float | None = None
    """Lose at most so many points of accuracy, or percent of the MSE, instead of ε."""
    max_latency: str | None = None
    """Take at most so many milliseconds ("5") or this share of the time ("60%"), instead of ε."""
    latency_target: str = "cpu"
    """The machine on which the time is measured."""
    align: int | None = None
    """Leave a multiple of so many channels in each layer; None: what runs fastest."""
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
                share = "; a share is 0.5" if str(value).endswith("%") else ""
                raise UsageError(f"{option(name)} {value!r} is not {what}{share}")
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
            if eps >= 1 and self.semantics == "budget":
                hint = f"; for {eps:g} % give {eps:g}% or {eps / 100:g}" if eps < 100 else ""
                raise UsageError(
                    f"--eps {name and name + '='}{eps:g} allows any change: give a number below 1"
                    f"{hint}"
                )
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

        self._check_goals()
        if self.align is not None and self.align not in ALIGNMENTS:
            known = ", ".join(map(str, ALIGNMENTS))
            raise UsageError(f"--align {self.align} is not one of {known}")

    def _check_goals(self) -> None:
        for kind in SIZE_GOALS:
            check_limit(f"max_{kind}", getattr(self, f"max_{kind}"))
        if self.max_error is not None and not 0 < self.max_error < 1:
            asked = self.max_error
            hint = f"; for {asked:g} % give {asked:g}%" if 1 <= asked < 100 else ""
            hint = "; --eps 0 merges without loss" if asked == 0 else hint
            raise UsageError(f"--max-error {asked:g} is not between 0 and 1{hint}")
        if self.max_drop is not None and not 0 < self.max_drop < 100:
            raise UsageError(f"--max-drop {self.max_drop:g} is not between 0 and 100 points")
        if self.max_latency is not None:
            latency_limit(self.max_latency)
        if self.max_bytes is not None and self.int8:
            raise UsageError(
                "--max-bytes cannot be combined with --int8: limit --max-params, each takes a byte "
                "in 8 bits"
            )

    def _check_combinations(self) -> None:
        if len(self.sizes) > 1:
            raise UsageError(f"{' and '.join(self.sizes)} cannot be combined: give one")
        if self.goal and self.semantics != "budget":
            raise UsageError(f"{self.sizes[0]} needs --semantics budget")
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
    def sizes(self) -> list[str]:
        """The options by which the user asks for a size instead of ε."""
        return [option(name) for name in COUNTS if getattr(self, name) is not None]

    @property
    def asks_for_count(self) -> bool:
        """Whether the user asks for a size instead of ε."""
        return bool(self.sizes)

    @property
    def asks_to_approximate(self) -> bool:
        """Whether the user says how much may change, or how small the model is to be."""
        return self.asks_for_count or any(
            eps > 0 for eps in (self.eps or 0.0, *dict(self.layer_eps).values())
        )

    @property
    def goal(self) -> GoalKind | None:
        """What is asked for of the whole model, if anything is."""
        return next((kind for kind in GOALS if getattr(self, f"max_{kind}") is not None), None)

    def without_goal(self, **other: Any) -> Self:
        """The same without anything that is asked for of the whole model."""
        nothing: dict[str, Any] = {f"max_{kind}": None for kind in GOALS}
        return replace(self, **nothing, **other)

    @property
    def method(self) -> Self:
        """How to merge: the same without ε, counts and the choice of layers."""
        return self.without_goal(
            eps=None, layer_eps=(), neurons=None, keep=None, align=None, layers=(), skip=(),
        )  # fmt: skip

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

    def count_of(self, name: str, neurons: int) -> int | None:
        """How many of a layer's neurons to leave; None if ε decides."""
        if self.keep is not None:
            return max(1, math.ceil(self.keep * neurons - SHARE_SLACK))
        return self.neurons

    def selected(
        self, names: Sequence[str], others: Callable[[], Sequence[str]] = tuple
    ) -> list[str]:
        """The layers to work on, of those with these names.

        A name or glob that matches none of them, nor any of the model's other layers, is an error.
        """
        for wanted in (*(name for name, _ in self.layer_eps), *self.layers, *self.skip):
            if names and not any(listed(n, (wanted,)) for n in names):
                every = [*others(), *names]
                if not any(listed(n, (wanted,)) for n in every):
                    known = ", ".join(every)
                    raise OptionError(f"no layer is called '{wanted}'; the layers are {known}")
        chosen = [n for n in names if not self.layers or listed(n, self.layers)]
        return [n for n in chosen if not listed(n, self.skip)]


def listed(name: str, globs: tuple[str, ...]) -> bool:
    """Whether a layer's name equals or matches one of the globs."""
    return any(name == glob or fnmatchcase(name, glob) for glob in globs)


@dataclass(frozen=True)
class Options(MergeOptions):
    """Everything that `optimize` can be asked for."""

    data: Data | None = None
    """Real inputs: a file, a folder of images, arrays by name, or the only input's array."""
    data_use: DataUse = field(default_factory=DataUse)
    """How the data becomes inputs."""
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
        if self.goal in LOSS_GOALS and self.data is None:
            raise UsageError(
                f"--max-{self.goal} is about real inputs: give --data"
                f"{' with labels' if self.goal == 'drop' else ''}"
            )
        if self.goal in LOSS_GOALS and not self.verify:
            raise UsageError(f"--max-{self.goal} is checked at the end: drop --no-verify")
        self._check_proof()
        self._check_time()

    @classmethod
    def given(cls, eps: float | None, **more: Unpack[MoreOptions]) -> Options:
        """Options as Python callers write them: a single glob, ε of layers as a mapping."""
        settled: dict[str, Any] = {name: plain_number(value) for name, value in more.items()}
        if unknown := sorted(settled.keys() - MoreOptions.__annotations__.keys()):
            raise UsageError(f"optimize takes no option '{unknown[0]}'")
        for name in ("layers", "skip"):
            settled[name] = as_texts(option(name), settled.get(name, ()), "names or globs")
        use = {name: settled.pop(name) for name in DATA_USES if name in settled}
        settled["data_use"] = DataUse.given(**use)
        by_layer = settled.get("layer_eps") or {}
        if not isinstance(by_layer, Mapping):
            raise UsageError(f"layer_eps {by_layer!r} is not a mapping from layers to ε")
        own = ((str(name), plain_number(value)) for name, value in by_layer.items())
        settled["layer_eps"] = tuple(sorted(own))
        made = cls(eps=plain_number(eps), **settled)
        if eps is not None and made.asks_for_count:
            raise UsageError(EPS_AND_COUNT)
        return made

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


class MoreOptions(TypedDict, total=False):
    """The fields of `Options` besides ε, for callers that give them by name."""

    layer_eps: Mapping[str, float]
    neurons: int | None
    keep: float | None
    max_macs: Limit | None
    max_params: Limit | None
    max_bytes: Limit | None
    max_error: float | None
    max_drop: float | None
    max_latency: str | None
    latency_target: str
    align: int | None
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
    preprocess: str | Sequence[str]
    inputs: Mapping[str, str] | None
    labels: str | None
    input_range: Range | None
    verify: bool
    certify: bool | None
    max_certified_error: float | None
    time_limit: float | None
    force: bool
