"""What a report says, in sentences, and its numbers with the field that each comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxfde.limits import latency_limit
from onnxfde.options import DEFAULT_EPS
from onnxfde.pages.markup import Markup, fill_in, joined_markup

REPORT_PAGE = "report.html"
"""The template of the page of one run."""
UNKNOWN_NUMBER = "–"
TOO_LOOSE = "too loose"
"""Stands for a bound that is proven, but of no use."""
SIZE_WORDS = {
    "params": "parameters",
    "macs": "multiply-adds",
    "bytes": "bytes",
}
LEFT_WORDS = {"params": "the parameters", "macs": "the multiply-adds", "bytes": "the file's bytes"}


def whole_number(value: float) -> str:
    """A whole number."""
    return f"{value:,.0f}"


def small(value: float) -> str:
    """A number of any size in three digits."""
    return f"{value:.3g}"


def percent(value: float) -> str:
    """A share.

    >>> [text.split() for text in map(percent, (0.0519, 0.25, 3e-8))]
    [['5.19', '%'], ['25', '%'], ['3e-06', '%']]
    """
    value = 100 * value
    text = f"{value:.2g}" if value and abs(value) < 0.01 else f"{value:.2f}".removesuffix(".00")
    return f"{text}\N{NO-BREAK SPACE}%"


def one_decimal(value: float) -> str:
    """Percent with one decimal."""
    return f"{value:.1f}\N{NO-BREAK SPACE}%"


def field_of(
    report: Mapping[str, Any], path: str, shown: Callable[[float], str] = whole_number
) -> Markup | str:
    """A number of the report as it is shown, which also names its field and exact value."""
    value = value_at(report, path)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return UNKNOWN_NUMBER
    exact = format(value, ".17g") if isinstance(value, float) else str(value)
    return fill_in(REPORT_PAGE, "number", path=path, exact=exact, text=shown(value))


def measured_field(
    report: Mapping[str, Any], path: str, shown: Callable[[float], str]
) -> Markup | str:
    """The same with the range in which it lies for all inputs of this kind."""
    number = field_of(report, path, shown)
    return joined_markup([number, range_words(value_at(report, f"{path}_interval"), shown)])


def value_at(report: Mapping[str, Any], path: str) -> Any:
    """A field of the report."""
    value: Any = report
    for part in path.split("."):
        value = value[int(part)] if part.isdecimal() else (value or {}).get(part)
    return value


def range_words(interval: Sequence[float] | None, shown: Callable[[float], str]) -> str:
    """An interval behind a number; nothing where none is known."""
    if not interval or None in interval:
        return ""
    return f" ({shown(interval[0])} to {shown(interval[1])})"


def asked(report: Mapping[str, Any]) -> str:
    """What the user asked for, after "Asked for"."""
    settings = report["settings"]
    for kind, what in LEFT_WORDS.items():
        limit = settings.get(f"max_{kind}")
        if limit is not None:
            share = percent(limit) if isinstance(limit, float) else whole_number(limit)
            of = f"of {what}" if isinstance(limit, float) else SIZE_WORDS[kind]
            return f"at most {share} {of}, and the smallest change that this allows"
    if settings.get("max_error") is not None:
        limit = percent(settings["max_error"])
        vary = "of how much they vary from input to input"
        return f"the smallest model whose outputs change by at most {limit} {vary}"
    if settings.get("max_drop") is not None:
        return f"the smallest model that is at most {settings['max_drop']:g} points worse"
    if settings.get("max_latency") is not None:
        number, is_share = latency_limit(settings["max_latency"])
        time = f"{percent(number)} of the time" if is_share else f"{number:g} ms for one run"
        return f"at most {time}, and the smallest change for it"
    if settings.get("neurons") is not None:
        return f"at most {whole_number(settings['neurons'])} neurons or channels in each layer"
    if settings.get("keep") is not None:
        return f"at most {percent(settings['keep'])} of the neurons or channels of each layer"
    words = f"fewer neurons, {eps_words(settings.get('eps'), settings.get('semantics'))}"
    if settings.get("max_certified_error") is not None:
        limit, _ = settings["max_certified_error"]
        words += f", and a proof that no output changes by more than {small(limit)}"
    return words


def eps_words(eps: float | None, semantics: str | None) -> str:
    """What ε allows."""
    if semantics not in (None, "budget"):
        return f"merging those whose weights differ by at most {eps}"
    if eps == 0:
        return "with outputs that stay the same up to rounding"
    allowed = percent(DEFAULT_EPS if eps is None else eps)
    return f"while the output of each layer may change by about {allowed} of how much it varies"


def units_word(layer: Mapping[str, Any]) -> str:
    """What the units of a layer are called."""
    return "channels" if layer["kind"] == "channels" else "neurons"


def came_out(report: Mapping[str, Any]) -> str:
    """What became of the model, as a sentence."""
    if report["unchanged"]:
        return f"Nothing changed: {report['unchanged']}."
    changed = sum(one["neurons_after"] != one["neurons_before"] for one in report["layers"])
    left = f"{one_decimal(report['grp_percent'])} of the parameters are left"
    how = f"{changed} of {len(report['layers'])} layers became narrower and {left}"
    if report["int8"]:
        how += ", stored in 8 bits"
    return f"{how[0].upper()}{how[1:]}. {measured(report)}"


def measured(report: Mapping[str, Any]) -> str:
    """What running both models showed, as a sentence."""
    found = report["verification"]
    if not found or found["unverified"]:
        reason = found["unverified"] if found else "they were not run"
        return f"How much the outputs change is not known: {reason}."
    rows = f"{whole_number(found['samples'])} {rows_word(found)}"
    if found["relative_l2"] is None:
        text = f"the largest change of an output is {small(found['max_abs_error'] or 0.0)}"
    else:
        ends = range_words(found["relative_l2_interval"], percent)
        text = f"the outputs change by {percent(found['relative_l2'])}{ends}"
    score = score_words(found)
    return f"On {rows}, {text}{', and ' + score if score else ''}."


def rows_word(found: Mapping[str, Any]) -> str:
    """What kind of inputs both models ran on."""
    if found["held_out"]:
        return "inputs that were kept aside for this check"
    return "random inputs" if found["held_out"] is None else "inputs it was also fitted to"


def score_words(found: Mapping[str, Any]) -> str:
    """What the labels say, if there are any."""
    if found["metric"] is None or found["metric_before"] is None:
        return ""
    name = score_name(found)
    shown = score_format(found)
    before, after = (
        shown(found[f"metric_{when}"]) + range_words(found[f"metric_{when}_interval"], shown)
        for when in ("before", "after")
    )
    return f"{name} goes from {before} to {after}"


def score_name(found: Mapping[str, Any]) -> str:
    """What labels or targets measure, in words."""
    return "accuracy" if found["metric"] == "accuracy" else "mean squared error"


def score_format(found: Mapping[str, Any]) -> Callable[[float], str]:
    """How that is written."""
    return percent if found["metric"] == "accuracy" else small


def left_percent(change: Mapping[str, Any] | None) -> str:
    """What is left of a number, in percent."""
    if change is None or not change["before"]:
        return UNKNOWN_NUMBER
    return one_decimal(100 * change["after"] / change["before"])
