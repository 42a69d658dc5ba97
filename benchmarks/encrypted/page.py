"""The page of results: promises, then one table per engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import table
from benchmarks.common.found_cells import Found, Result
from benchmarks.encrypted.measuring import EngineCell
from benchmarks.encrypted.subjects import SUBJECTS
from benchmarks.encrypted.variants import ORIGINAL, QUARTER
from onnxfde.command.bench_table import amount, seconds

NOTE = """All variants of a network run in turns in one process, twice (in vector mode for 20
seconds); a ratio is that of the medians. Proofs had both cores of the machine to themselves,
encrypted networks one of them. Variants with as many neurons as one above them are not shown.
Networks: `gly` 7-120-7, `abalone` 10-120-1, `digits` 64-256-10 and `cryptonets dense` 400-128-10
(what is behind the convolution and the first squares of `cryptonets_square`) with x², `mlp`
64-64-32-10 on digits with x² + x. Variants are fitted to unlabelled training rows, and every row
below is a test row.

TenSEAL: SEAL's operations through TenSEAL's own binding, CKKS with 128-bit security. Times are from
encrypted inputs to encrypted outputs. In batch mode all test rows are in the slots of one set of
ciphertexts; vector mode runs one row. "Pruned" has as many nonzero weights as "25 % of the
neurons", the largest of each map. **What is skipped:** in batch mode our runner skips every
multiplication by 0, so pruning saves these too, but neither the squares of neurons nor their
relinearization and rescaling. In vector mode only diagonals that are 0 as a whole are skipped.
ezkl skips nothing: a pruned circuit has as many rows as the original.

How far to trust times: the original and the pruned circuit are equally large, yet their proving
times differ by up to a tenth, and so do those of vector mode where as much is computed.

ezkl: the table of a circuit has a power of two of rows, and proving takes as long as that. "Halves
at": the number of rows, or a little less, at which the next smaller table is enough. The base of
digits is chosen so that it does not enlarge the table: with ezkl's own settings every circuit here
has 2^15 rows or more ("by default"), so only `cryptonets dense` would get a smaller table."""
BATCH_HEADER = (
    "network | variant | maps | by weights | of values | time | faster | per sample | "
    "error | same as onnxruntime | decrypted | plain"
)
VECTOR_HEADER = "network | variant | by weights | rotations | time | faster | rotation keys | error"
PROOF_HEADER = (
    "network | variant | constraints | rows | logrows | by default | halves at | proving | "
    "faster | setup | witness | verification | proving key | error"
)
COUNT_HEADER = "network | variant | mode | by weights | of values | rotations | rescales"
COUNTED = ("plain_multiplications", "ciphertext_multiplications", "rotations", "rescales")
Model = tuple[str, str, Result, Result]
"""A network, a variant, its result and that of the original."""


def models_in(found: Found, engine: str) -> Iterator[Model]:
    """All models that were measured in an engine."""
    for net in SUBJECTS:
        models = (found.get(EngineCell(net, engine)) or {"models": {}})["models"]
        for name, model in in_order(models):
            yield net, name, model, models[ORIGINAL]


def in_order(models: dict[str, Result]) -> list[tuple[str, Result]]:
    """Variants by their weights, the pruned one, whose maps are as large as before, last."""
    return sorted(models.items(), key=lambda item: (item[0] == "pruned", -weights(item[1])))


def weights(model: Result) -> int:
    """The number of weights of all maps."""
    return int(sum(a * b for a, b in model["maps"]))


def ratio(model: Result, original: Result) -> float:
    """How many times faster than the original."""
    return float(median(original["times"]) / median(model["times"]))


def times_faster(model: Result, original: Result) -> str:
    """The same as text."""
    return "" if model is original else f"{ratio(model, original):.2f} ×"


def shapes(model: Result) -> str:
    """The sizes of its maps."""
    return ", ".join(f"{max(pair)}×{min(pair)}" for pair in model["maps"])


def score_text(model: Result, name: str) -> str:
    """Accuracy, or the mean squared error."""
    value = model[name]
    return f"{value:.2%}" if "same" in model else f"MSE {value:.3g}"


def batch_rows(found: Found) -> Iterator[list[str]]:
    """Batch mode."""
    for net, name, model, original in models_in(found, "batch"):
        figures: dict[str, Any] = model["figures"]
        time = median(model["times"])
        yield [
            net, name, shapes(model),
            f"{figures['plain multiplications']:,}", f"{figures['ciphertext multiplications']:,}",
            seconds(time), times_faster(model, original), seconds(time / model["samples"]),
            f"{model['error']:.1e}",
            f"{model['same']:.2%} of {model['samples']:,}" if "same" in model else "",
            score_text(model, "score"), score_text(model, "plain_score"),
        ]  # fmt: skip


def vector_rows(found: Found) -> Iterator[list[str]]:
    """Vector mode."""
    for net, name, model, original in models_in(found, "vector"):
        figures = model["figures"]
        yield [
            net, name, f"{figures['plain multiplications']:,}", f"{figures['rotations']:,}",
            seconds(median(model["times"])), times_faster(model, original),
            amount(figures.get("rotation keys"), "B"), f"{model['error']:.1e}",
        ]  # fmt: skip


def proof_rows(found: Found) -> Iterator[list[str]]:
    """Proofs, and circuits that were only counted."""
    for net, name, model, original in models_in(found, "proof"):
        figures = model["figures"]
        logrows = int(figures["logrows"])
        steps = [seconds(figures.get(step)) for step in ("setup", "witness", "verification")]
        yield [
            net, name, f"{model['constraints']:,}", f"{figures['rows']:,}", str(logrows),
            str(int(figures["logrows by default"])), f"{2 ** (logrows - 1):,}",
            seconds(median(model["times"])), times_faster(model, original),
            *steps, amount(figures.get("proving key"), "B"),
            f"{model['error']:.1e}",
        ]  # fmt: skip


def count_rows(found: Found) -> Iterator[list[str]]:
    """Estimates and what the runner issued."""
    for mode in ("batch", "vector"):
        for net, name, model, _ in models_in(found, mode):
            pairs = [(model[mode][c], model["figures"][c.replace("_", " ")]) for c in COUNTED]
            yield [net, name, mode, *(f"{a:,} / {b:,}" for a, b in pairs)]


def promise_rows(found: Found) -> Iterator[list[str]]:
    """What was promised, and what was found."""
    for net in ("digits", "cryptonets dense"):
        models = (found.get(EngineCell(net, "batch")) or {"models": {}})["models"]
        if QUARTER in models:
            faster = ratio(models[QUARTER], models[ORIGINAL])
            yield [f"{net}: 25 % of the neurons, batch mode, at least 3 × faster",
                   f"{faster:.2f} ×", verdict(faster >= 3)]  # fmt: skip
        if models:
            least = min(models.values(), key=lambda model: model["same"])
            yield [f"{net}: same predictions as onnxruntime for 99.5 % of 500 test rows or more",
                   f"{least['same']:.2%} of {least['samples']:,}, the worst variant",
                   verdict(least["same"] >= 0.995 and least["samples"] >= 500)]  # fmt: skip
    for net in SUBJECTS:
        models = (found.get(EngineCell(net, "proof")) or {"models": {}})["models"]
        for name, model in models.items():
            if name != ORIGINAL:
                yield [f"{net}: rows and proving time, {name}", proof_text(model, models[ORIGINAL]),
                       "shown"]  # fmt: skip
    counts = [cells[3:] for cells in count_rows(found)]
    equal = sum(all(len(set(cell.split(" / "))) == 1 for cell in cells) for cells in counts)
    yield ["estimated operations are those that the runner issued",
           f"equal for {equal} of {len(counts)} models", verdict(equal == len(counts))]  # fmt: skip


def proof_text(model: Result, original: Result) -> str:
    """Rows and proving time before and after."""
    before, after = original["figures"], model["figures"]
    text = f"{before['rows']:,} → {after['rows']:,} rows, {ratio(model, original):.2f} × faster"
    if after["logrows"] < before["logrows"]:
        return text
    half = 2 ** (int(before["logrows"]) - 1)
    return f"{text}: the table has 2^{int(after['logrows'])} rows as before; it halves at {half:,}"


def verdict(kept: bool) -> str:
    """Whether a promise is kept."""
    return "kept" if kept else "**not kept**"


def sections(found: Found) -> Iterator[table.Section]:
    """All tables."""
    yield table.Section("Promises", "promise | found | verdict", promise_rows(found))
    yield table.Section("Encrypted, one sample per slot", BATCH_HEADER, batch_rows(found))
    yield table.Section("Encrypted, one sample per ciphertext", VECTOR_HEADER, vector_rows(found))
    yield table.Section("Proofs", PROOF_HEADER, proof_rows(found))
    yield table.Section("Operations, estimated / issued", COUNT_HEADER, count_rows(found))


def write_page(found: Found, path: Path) -> None:
    """Write the page."""
    title = "Encrypted inference and zero-knowledge proofs"
    path.write_text(table.text("encrypted", title, sections(found), NOTE))
