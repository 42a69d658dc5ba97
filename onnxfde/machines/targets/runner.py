"""Runs models with onnxruntime and says in one line of JSON what it saw.

It needs Python 3.9, numpy and onnxruntime and nothing of onnxfde, so that one file measures on this
machine, under an emulator and on a board. `runner.py REQUEST` tries every model in a process of
its own (outputs, peak memory, what fails) and then times those that work, in turns: whatever
disturbs the machine disturbs all of them alike. `--count I` instead runs model I between markers
for an instruction counter.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import gc
import importlib.util
import io
import json
import math
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

RESULT = "onnxfde-result "
ROUNDS = 8
WARM_UP = 3
FEWEST_TURNS = 2
MOST_TURNS = 250
REGIONS = ("warm-up", "warm-up", "nothing", "counted", "counted", "counted")
SHORT_RUN, OFTEN = 0.05, 50
MOST_VALUES = 1 << 18
KINDS = "float double float16 bool int8 uint8 int16 uint16 int32 uint32 int64 uint64"
NUMBERS = tuple(f"tensor({kind})" for kind in KINDS.split())
LONGEST_MESSAGE = 300

Found = dict[str, Any]
Inputs = dict[str, Any]


class Model:
    """A session whose inputs and outputs stay in place."""

    def __init__(self, file: str, threads: int) -> None:
        """Load as a deployment would; workers rest between runs, or they would slow the others."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = onnxruntime.InferenceSession(
            file, options, providers=["CPUExecutionProvider"]
        )
        self.binding = self.session.io_binding()

    def bind(self, inputs: Inputs) -> None:
        """Take the inputs from a file, run once, and keep the outputs' memory."""
        import numpy

        self.binding = self.session.io_binding()
        with numpy.load(inputs["file"]) as arrays:
            for name, key in zip(inputs["names"], arrays.files):
                self.binding.bind_cpu_input(name, arrays[key])
        names = [output.name for output in self.session.get_outputs()]
        for name in names:
            self.binding.bind_output(name)
        self.run()
        for name, value in zip(names, self.binding.get_outputs()):
            if value.is_tensor():
                self.binding.bind_ortvalue_output(name, value)

    def run(self) -> None:
        """One inference."""
        self.session.run_with_iobinding(self.binding)

    def outputs(self) -> str:
        """The first values of every output, as a .npz in base64."""
        import numpy

        values = [value for value in self.binding.get_outputs() if value.data_type() in NUMBERS]
        stream = io.BytesIO()
        numpy.savez_compressed(stream, *(v.numpy().ravel()[:MOST_VALUES] for v in values))
        return base64.b64encode(stream.getvalue()).decode()


def failures() -> Any:
    """Everything that onnxruntime raises."""
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    kinds = (k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, Exception))
    return (*kinds, RuntimeError, ValueError, TypeError, MemoryError, OSError)


def one_line(error: BaseException) -> str:
    """A message on one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:LONGEST_MESSAGE]


class Request:
    """What to run: the models, their inputs by batch, and how."""

    def __init__(self, file: str) -> None:
        """Read it; paths in it are relative to its folder."""
        with open(file, encoding="utf-8") as stream:
            self.content = json.load(stream)
        self.file, self.folder = file, os.path.dirname(file)
        self.models: list[Found] = self.content["models"]

    def load(self, index: int) -> Model:
        """Load a model."""
        return Model(self.place(self.models[index]["file"]), self.content["threads"])

    def inputs(self, index: int) -> dict[str, Inputs]:
        """The names and the file of the inputs for each batch size."""
        model = self.models[index]
        return {
            batch: {"names": model["names"], "file": self.place(file)}
            for batch, file in model["inputs"].items()
        }

    def place(self, file: str) -> str:
        """Where a file of the request is."""
        return os.path.join(self.folder, file)


def trial(request: Request, index: int) -> Found:
    """Load one model, run every batch once, and watch the memory."""
    before = peak_memory(restart=True)
    try:
        model = request.load(index)
    except failures() as error:
        return {"error": one_line(error)}
    outputs, failed, memory = {}, {}, None
    for batch, inputs in request.inputs(index).items():
        try:
            model.bind(inputs)
            model.run()
            after = peak_memory()
            if before is not None and after is not None:
                memory = max(after - before, memory or 0)
            outputs[batch] = model.outputs()
            peak_memory(restart=True)
        except failures() as error:
            failed[batch] = one_line(error)
    return {"outputs": outputs, "failed": failed, "memory": memory}


def peak_memory(restart: bool = False) -> int | None:
    """The most bytes this process has held, where the system says so; or hold from now on."""
    try:
        if restart:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
                stream.write("5")
        with open("/proc/self/status", encoding="ascii", errors="replace") as stream:
            found = [line.split() for line in stream if line.startswith("VmHWM:")]
    except OSError:
        return None
    return int(found[0][1]) * 1024 if found else None


def timed(request: Request, tried: list[Found]) -> None:
    """Add, for every round, load times and for each batch the time of every turn in seconds.

    Each round makes new sessions: where a session's memory happens to lie changes its speed.
    """
    works = [i for i, found in enumerate(tried) if "error" not in found]
    for i in works:
        tried[i]["loads"] = []
        tried[i]["times"] = {batch: [] for batch in tried[i]["outputs"]}
        tried[i]["least"] = dict.fromkeys(tried[i]["outputs"], float("inf"))
    batches = dict.fromkeys(b for i in works for b in tried[i]["outputs"])
    models: dict[int, Model] = {}
    for turn in range(ROUNDS if works else 0):
        for i in works[turn % len(works) :] + works[: turn % len(works)]:
            models.pop(i, None)
            start = time.perf_counter()
            models[i] = request.load(i)
            tried[i]["loads"].append(time.perf_counter() - start)
        for batch in batches:
            able = [i for i in works if batch in tried[i]["outputs"]]
            for i in able:
                models[i].bind(request.inputs(i)[batch])
            seconds = request.content["seconds"] / ROUNDS
            step, turns = take_turns([models[i] for i in able], seconds)
            for i, times in zip(able, turns):
                tried[i]["times"][batch].append(times[::step])
                tried[i]["least"][batch] = min(tried[i]["least"][batch], *times)


def take_turns(models: list[Model], seconds: float) -> tuple[int, list[list[float]]]:
    """Run by run, each model in turn: once to have its weights at hand, once for the clock.

    Also which turns to keep of very many: every so-manieth, but not always those in which the same
    model was the first.
    """
    clock = time.perf_counter
    for model in models:
        for _ in range(WARM_UP):
            model.run()
    times: list[list[float]] = [[] for _ in models]
    gc.disable()
    end, turn = clock() + seconds, 0
    while turn < FEWEST_TURNS or clock() < end:
        for k in range(len(models)):
            place = (k + turn) % len(models)
            models[place].run()
            start = clock()
            models[place].run()
            times[place].append(clock() - start)
        turn += 1
    gc.enable()
    step = -(-turn // MOST_TURNS)
    while math.gcd(step, len(models)) > 1:
        step += 1
    return step, times


def counted(request: Request, index: int) -> Found:
    """Run one model between markers, for each batch all REGIONS; the counter's log has the rest."""
    marker = request.content["marker"]
    try:
        model = request.load(index)
    except failures() as error:
        return {"error": one_line(error)}
    outputs, failed, repeats = {}, {}, {}
    for batch, inputs in request.inputs(index).items():
        try:
            model.bind(inputs)
            often = OFTEN if shortest(model) < SHORT_RUN else 1
            outputs[batch], repeats[batch] = model.outputs(), often
        except failures() as error:
            failed[batch] = one_line(error)
            continue
        gc.collect()
        gc.disable()
        for kind in REGIONS:
            runs = range(0 if kind == "nothing" else often)
            mark(marker)
            for _ in runs:
                model.run()
            mark(marker)
        gc.enable()
    return {"outputs": outputs, "failed": failed, "repeats": repeats, **host()}


def shortest(model: Model) -> float:
    """The least time of a few runs, whatever else the machine does."""
    times = []
    for _ in range(WARM_UP):
        start = time.perf_counter()
        model.run()
        times.append(time.perf_counter() - start)
    return min(times)


def mark(marker: int) -> None:
    """A system call that only the counter notices."""
    with contextlib.suppress(ProcessLookupError):
        os.getpgid(marker)


class Children:
    """The child process at work, which must not outlive this one."""

    def __init__(self) -> None:
        """None yet."""
        self.process: subprocess.Popen[bytes] | None = None

    def trial(self, request: Request, index: int) -> Found:
        """Try a model in a process of its own: a crash is a finding."""
        command = [sys.executable, os.path.abspath(__file__), "--trial", str(index), request.file]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = self.process.communicate()
        code, self.process = self.process.returncode, None
        for line in out.decode(errors="replace").splitlines():
            if line.startswith(RESULT):
                found: Found = json.loads(line[len(RESULT) :])
                return found
        last = (err.decode(errors="replace").strip().splitlines() or [""])[-1]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return {"error": f"onnxruntime crashed ({how}) {last}".strip()}

    def end(self) -> None:
        """Stop it."""
        if self.process is not None:
            self.process.kill()


def stop_when_left_alone(children: Children) -> None:
    """Stop when told to, or when whoever asked is gone: standard input ends then."""

    def stop(*_: Any) -> None:
        children.end()
        os._exit(1)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        stop()

    signal.signal(signal.SIGTERM, stop)
    threading.Thread(target=watch, daemon=True).start()


def host() -> Found:
    """What this was measured on."""
    import onnxruntime

    return {
        "onnxruntime": onnxruntime.__version__,
        "machine": platform.machine(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
    }


def cpu_name() -> str:
    """The processor's or the board's name, where the system has one."""
    for file, key in (("/proc/device-tree/model", ""), ("/proc/cpuinfo", "model name")):
        try:
            with open(file, encoding="utf-8", errors="replace") as stream:
                for line in stream:
                    if line.startswith(key):
                        return line.rpartition(":")[2].strip(" \t\n\0")
        except OSError:
            continue
    return platform.processor() or platform.machine()


def missing() -> list[str]:
    """The modules that are not installed."""
    return [m for m in ("numpy", "onnxruntime") if importlib.util.find_spec(m) is None]


def answer(found: Found) -> None:
    """Print a result."""
    sys.stdout.write(RESULT + json.dumps(found) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description="Run models with onnxruntime; prints JSON.")
    parser.add_argument("request")
    parser.add_argument("--trial", type=int)
    parser.add_argument("--count", type=int)
    parser.add_argument("--watch", action="store_true")
    options = parser.parse_args()
    if missing():
        answer({"missing": missing(), "python": sys.executable})
        return
    try:
        import onnxruntime  # noqa: F401
    except ImportError as error:
        answer({"broken": one_line(error), "python": sys.executable})
        return
    request, children = Request(options.request), Children()
    if options.watch:
        stop_when_left_alone(children)
    if options.trial is not None:
        answer(trial(request, options.trial))
    elif options.count is not None:
        answer(counted(request, options.count))
    else:
        tried = [children.trial(request, i) for i in range(len(request.models))]
        timed(request, tried)
        answer({"models": tried, **host()})


if __name__ == "__main__":
    main()
