"""How a target of the whole model was met: what each layer gave for it, and how often was tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onnxfde.limits import LOSS_GOALS, SIZE_GOALS
from onnxfde.pages.markup import Markup, fill_in, joined_markup
from onnxfde.pages.words import REPORT_PAGE, SIZE_WORDS, field_of, percent, small, whole_number

PLANNED = (
    "First it was estimated how much the outputs would change, and how much would be saved, if one "
    "layer alone had fewer neurons; the numbers below were chosen by these estimates."
)
LOSSLESS = (
    "It was enough to remove what the network can do without: neurons (or channels) whose absence "
    "does not change the outputs beyond rounding."
)
ALREADY_FEWER = "“Before” is what was left once all had gone whose absence changes nothing."
NONE_KEPT = (
    ", but none of them keeps the limit for sure: only what changes nothing beyond rounding was "
    "removed, if anything was."
)
NOTHING_LEFT = "No layer can be made smaller beyond what changes nothing."


def spending_section(report: Mapping[str, Any]) -> Markup:
    """How a target was met, if there is one."""
    goal = report["goal"]
    if not goal or report["unchanged"]:
        return Markup("")
    parts = joined_markup([*limit_words(report), " ", *tries_words(report)])
    return fill_in(REPORT_PAGE, "spending", text=parts, table=spending_table(report))


def limit_words(report: Mapping[str, Any]) -> Iterator[Markup | str]:
    """What was allowed, and what the result has."""
    goal = report["goal"]
    shown = goal_format(report)
    measures = {"error": " change of the outputs", "drop": drop_words(report)}
    sizes = {kind: f" {SIZE_WORDS[kind]}" for kind in SIZE_GOALS}
    time = " of the original's time" if goal["as_share"] else " for one run"
    what = (measures | sizes | {"latency": time})[goal["kind"]]
    yield from ("Allowed: at most ", field_of(report, "goal.limit", shown), f"{what}. Reached: ")
    known = "reached" if goal["reached"] is not None else "chosen_by"
    yield from (field_of(report, f"goal.{known}", shown), ".")


def goal_format(report: Mapping[str, Any]) -> Callable[[float], str]:
    """How a number of the target is written."""
    goal = report["goal"]
    if goal["kind"] == "error" or goal["as_share"]:
        return percent
    if goal["kind"] == "latency":
        return lambda value: f"{value:.3g} ms"
    return whole_number if goal["kind"] in SIZE_GOALS else small


def drop_words(report: Mapping[str, Any]) -> str:
    """What a drop is counted in."""
    found = report["verification"] or {}
    if found.get("metric") not in (None, "accuracy"):
        return " percent more mean squared error"
    return " points of accuracy lost (one point is one input in a hundred)"


def tries_words(report: Mapping[str, Any]) -> Iterator[Markup | str]:
    """How often was tried."""
    goal = report["goal"]
    if not goal["spent"]:
        yield NOTHING_LEFT if goal["kind"] in LOSS_GOALS else LOSSLESS
        return
    done = "timed" if goal["kind"] == "latency" else "made and measured"
    count = field_of(report, "goal.tries")
    networks = "network was" if goal["tries"] == 1 else "networks were"
    yield from (f"{PLANNED} ", count, f" {networks} {done}")
    if nothing_spent(goal):
        yield NONE_KEPT
    else:
        yield "." if goal["tries"] == 1 else ", and the best that keeps the limit was taken."


def nothing_spent(goal: Mapping[str, Any]) -> bool:
    """Whether all layers have as many units as without loss."""
    return all(one["before"] == one["after"] for one in goal["spent"])


def spending_table(report: Mapping[str, Any]) -> Markup:
    """What each layer gave."""
    goal = report["goal"]
    if nothing_spent(goal):
        return Markup("")
    rows = []
    for number, one in enumerate(goal["spent"]):
        path = f"goal.spent.{number}"
        numbers = {name: field_of(report, f"{path}.{name}") for name in ("before", "after")}
        shares = {
            name: field_of(report, f"{path}.{name}", share_of_all)
            for name in ("error_share", "saving_share")
        }
        rows.append(fill_in(REPORT_PAGE, "spent", name=one["name"], **numbers, **shares))
    saved = SIZE_WORDS.get({"latency": "macs"}.get(goal["kind"], goal["kind"]), "parameters")
    given = {layer["name"]: layer["neurons_before"] for layer in report["layers"]}
    fewer = any(one["before"] < given.get(one["name"], 0) for one in goal["spent"])
    note = " " + ALREADY_FEWER if fewer else ""
    return fill_in(REPORT_PAGE, "spent_table", saved=saved, note=note, rows=joined_markup(rows))


def share_of_all(value: float) -> str:
    """A share of a sum, without decimals."""
    return f"{100 * value:.0f}\N{NO-BREAK SPACE}%"
