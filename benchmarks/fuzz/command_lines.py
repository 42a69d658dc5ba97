"""Command lines to try on a file, chosen by a seed: usual ones, and ones with odd values."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Words:
    """A command line, and the files that it writes."""

    argv: tuple[str, ...]
    out: str | None = None
    """OUT of `optimize`, if it is to be written."""
    json: str | None = None
    """The file of --json."""
    code: int | None = None
    """The exit code that must come; None: any of those documented."""

    @property
    def command(self) -> str:
        """The name of the command."""
        return next((word for word in self.argv if not word.startswith("-")), "")


OPTIMIZE = (
    ("--eps", "0"), ("--eps", "0"), ("--eps", "0.1"), ("--eps", "0.1"), (), ("--no-verify",),
    ("--neurons", "2"), ("--keep", "50%"), ("--int8", "dynamic"), ("--semantics", "paper"),
    ("--semantics", "erode", "--eps", "0.5"), ("--certify",), ("--max-certified-error", "0.1"),
    ("--quotient", "refit"), ("--dry-run",), ("--fail-if-unchanged",), ("--input-range", "0:1"),
    ("--eps", "0", "--no-verify"), ("--semantics", "paper", "--relation", "backward"),
    ("--eps", "0", "--certify"),
)  # fmt: skip
WITH_DATA = (
    ("--data", "rows.npz"), ("--data", "rows.npz", "--eps", "0"), ("--data", "rows.npz",
    "--int8", "static"), ("--data", "rows.npz", "--certify"), ("--data", "rows.npz", "--neurons",
    "2"),
)  # fmt: skip
OUTPUTS = ("out.onnx",) * 6 + ("in.onnx",) * 3 + ("out.ort", "deep/out.onnx", "base.onnx")
"""OUT; deep is there only for models with a data file in it."""


def usual_words(rng: Random, with_data: bool) -> Words:
    """A command with options that make sense."""
    json = rng.choice((None, None, None, "-", "report.json"))
    more = [] if json is None else ["--json", json]
    more += rng.choice(([], [], [], ["-q"], ["-v"]))
    target = None if json == "-" else json
    data = with_data or rng.random() < 0.15
    kind = rng.random()
    if kind < 0.7:
        out = rng.choice(OUTPUTS)
        options = rng.choice(WITH_DATA if data else OPTIMIZE)
        argv = ("optimize", "in.onnx", out, *options, *more)
        return Words(argv, None if "--dry-run" in options else out, target)
    with_rows = ["--data", "rows.npz"] if data else []
    if kind < 0.85:
        return Words(("inspect", "in.onnx", *with_rows, *more), json=target)
    pair = rng.choice((("in.onnx", "base.onnx"), ("base.onnx", "in.onnx"), ("in.onnx", "in.onnx")))
    tolerance = rng.choice(([], ["--tolerance", "0.1"]))
    return Words(("verify", *pair, *with_rows, *tolerance, *more), json=target)


LONG = "a" * 300
ODD_VALUES: dict[str, tuple[str, ...]] = {
    "--eps": ("nan", "-1", "1e400", "", "x=0.1", "=", "1e-320", "٣", "first=0", "first=nan", "inf",
              "*=0.2", "1_0", "9" * 5000),
    "--neurons": ("0", "-1", str(2**63), "1e3", "", "9" * 5000),
    "--keep": ("0", "0%", "101%", "nan", "%", "", "50%%", "1e-300", "inf%", "0.5"),
    "--input-range": ("0", "1:0", "nan:1", "-inf:inf", "-1e308:1e308", "0:1e-320", "0:1e300", ":",
                      "1:1", "-1e38:1e38", "0:5e-324", "1e18:2e18"),
    "--seed": ("-1", str(2**64), "9" * 30, "x"),
    "--layers": ("[", "*", "", "first", "nothing"),
    "--skip": ("[", "*", "", "first", "nothing"),
    "--json": (".", "in.onnx", f"{LONG}.json", "no/x.json", "", "out.onnx", "rows.npz",
               "\udcff.json", "w.data", "../outside.data", "base.onnx"),
    "--data": (".", "missing.npz", "in.onnx", "", LONG, "/dev/null", "\udcff", "out.onnx"),
    "--max-certified-error": ("nan", "-1", "1e400", "0", "1e-300", ""),
    "--semantics": ("nothing", "", "erode"),
    "--quotient": ("exact", "single", "nothing"),
    "--int8": ("nothing", "static", "dynamic"),
    "--linkage": ("diameter", "x"),
    "--norm": ("max",),
    "--tolerance": ("nan", "-1", "inf", "", "0"),
    "--no-such-option": ("1",),
}  # fmt: skip
ODD_OUTPUTS = (
    ".", "", "no/out.onnx", f"{LONG}.onnx", "out\n.onnx", "out.onnx/", "deep/../out.onnx",
    "\udcff.onnx", "rows.npz", "w.data", "in.onnx.data", "é.onnx", "-", ".ort", "out.ORT",
    "../out.onnx", "in.onnx/out.onnx", "..", "base.onnx", "deep/w.data", "-x",
)  # fmt: skip
"""OUT. Nothing outside of the folder of the case: the fuzzer may run as root."""
ODD_INPUTS = (
    ".", "", "missing.onnx", LONG, "in.onnx/", "\udcff", "rows.npz", "w.data", "/dev/null",
    "./in.onnx", "deep/../in.onnx",
)  # fmt: skip


def odd_words(rng: Random) -> Words:
    """A command with one or two values that make no sense, alone or here."""
    argv, out = ["optimize", "in.onnx", "out.onnx"], "out.onnx"
    if rng.random() < 0.2:
        argv, out = rng.choice((["inspect", "in.onnx"], ["verify", "in.onnx", "base.onnx"])), ""
    for _ in range(rng.choice((1, 1, 2))):
        option = rng.choice(list(ODD_VALUES))
        argv += [option, rng.choice(ODD_VALUES[option])]
    if rng.random() < 0.2:
        argv[1] = rng.choice(ODD_INPUTS)
    if rng.random() < 0.3 and out:
        argv[2] = out = rng.choice(ODD_OUTPUTS)
    if rng.random() < 0.05:
        argv = argv[: rng.randint(0, 3)]
    json = argv[argv.index("--json") + 1] if "--json" in argv[:-1] else None
    return Words(tuple(argv), out or None, json)
