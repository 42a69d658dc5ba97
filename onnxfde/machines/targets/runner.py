"""Runs models with onnxruntime and prints the measurements as one line of JSON.

This file needs Python 3.9, numpy and onnxruntime but nothing of onnxfde, so that it runs on this
machine, under an emulator and on a board. `runner.py REQUEST` first tries each model in a separate
process (outputs, peak memory, failures). Then it times the models that work, in turns, so that a
disturbance of the machine affects all of them alike. `runner.py --count I REQUEST` instead runs
model I between markers for an instruction counter.
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
"""How the line with the answer begins, whatever else is printed."""
TIMING_ROUNDS = 8
"""How often new sessions are made; chosen so that rounds can be resampled, not tuned."""
WARM_UP_RUNS = 3
"""Runs before the first that is timed; chosen, not tuned."""
FEWEST_TURNS = 2
"""Timed runs of each model per round, however short the time; chosen, not tuned."""
MOST_TURNS = 250
"""Times of a model to keep per round; chosen to keep the answer small, not tuned."""
REGIONS = ("warm-up", "warm-up", "nothing", "counted", "counted", "counted")
"""What happens between each pair of markers; `nothing` gives the cost of the markers."""
SHORT_RUN_SECONDS = 0.05
"""Shorter runs are counted `SHORT_RUN_REPEATS` at a time; chosen, not tuned."""
SHORT_RUN_REPEATS = 50
"""Averages out what varies between short runs; chosen, not tuned."""
MOST_OUTPUT_VALUES = 1 << 18
"""Values of each output to send back: 1 MB of float32; chosen, not tuned."""
NUMBER_TYPES = "float double float16 bool int8 uint8 int16 uint16 int32 uint32 int64 uint64"
NUMBER_TENSORS = tuple(f"tensor({kind})" for kind in NUMBER_TYPES.split())
LONGEST_MESSAGE = 300
"""Characters of an error message to send back; chosen to fit a few lines of a terminal."""

Answer = dict[str, Any]
ModelInputs = dict[str, Any]


class LoadedModel:
    """A session whose inputs and outputs stay at the same place in memory."""

    def __init__(self, file: str, threads: int) -> None:
        """Load a model as a deployment would, but with idle threads that do not spin.

        Spinning threads would slow down the other models.
        """
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

    def bind(self, inputs: ModelInputs) -> None:
        """Read the inputs from a file, run once, and keep the outputs' memory for later runs."""
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
        """Run one inference."""
        self.session.run_with_iobinding(self.binding)

    def outputs(self) -> str:
        """The first values of each numeric output, as a .npz in base64."""
        import numpy

        values = [
            value for value in self.binding.get_outputs() if value.data_type() in NUMBER_TENSORS
        ]
        stream = io.BytesIO()
        numpy.savez_compressed(stream, *(v.numpy().ravel()[:MOST_OUTPUT_VALUES] for v in values))
        return base64.b64encode(stream.getvalue()).decode()


def onnxruntime_errors() -> Any:
    """All exceptions that onnxruntime may raise."""
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    kinds = (k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, Exception))
    return (*kinds, RuntimeError, ValueError, TypeError, MemoryError, OSError)


def short_message(error: BaseException) -> str:
    """An error message on one line, cut to LONGEST_MESSAGE."""
    return (" ".join(str(error).split()) or type(error).__name__)[:LONGEST_MESSAGE]


class Request:
    """What to run: the models, their inputs for each batch size, and the settings."""

    def __init__(self, file: str) -> None:
        """Read the request; paths in it are relative to its folder."""
        with open(file, encoding="utf-8") as stream:
            self.content = json.load(stream)
        self.file, self.folder = file, os.path.dirname(file)
        self.models: list[Answer] = self.content["models"]

    def load(self, index: int) -> LoadedModel:
        """Load a model."""
        return LoadedModel(self.place(self.models[index]["file"]), self.content["threads"])

    def inputs(self, index: int) -> dict[str, ModelInputs]:
        """For each batch size, the names of the inputs and the file that holds them."""
        model = self.models[index]
        return {
            batch: {"names": model["names"], "file": self.place(file)}
            for batch, file in model["inputs"].items()
        }

    def place(self, file: str) -> str:
        """The path of a file that the request names."""
        return os.path.join(self.folder, file)


def try_model(request: Request, index: int) -> Answer:
    """Load one model and run each batch size; return outputs, failures and peak memory."""
    before = peak_memory(restart=True)
    try:
        model = request.load(index)
    except onnxruntime_errors() as error:
        return {"error": short_message(error)}
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
        except onnxruntime_errors() as error:
            failed[batch] = short_message(error)
    return {"outputs": outputs, "failed": failed, "memory": memory}


def peak_memory(restart: bool = False) -> int | None:
    """The most bytes this process has held, if the system can tell; `restart` forgets the past."""
    try:
        if restart:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as stream:
                stream.write("5")
        with open("/proc/self/status", encoding="ascii", errors="replace") as stream:
            found = [line.split() for line in stream if line.startswith("VmHWM:")]
    except OSError:
        return None
    return int(found[0][1]) * 1024 if found else None


def time_models(request: Request, tried: list[Answer]) -> None:
    """Add to each model's answer its load times and, for each batch size and round, its run times.

    Each round makes new sessions, because a session's speed depends on where its memory lies.
    """
    works = [i for i, found in enumerate(tried) if "error" not in found]
    for i in works:
        tried[i]["loads"] = []
        tried[i]["times"] = {batch: [] for batch in tried[i]["outputs"]}
        tried[i]["least"] = dict.fromkeys(tried[i]["outputs"], float("inf"))
    batches = dict.fromkeys(b for i in works for b in tried[i]["outputs"])
    models: dict[int, LoadedModel] = {}
    for number in range(TIMING_ROUNDS if works else 0):
        for i in works[number % len(works) :] + works[: number % len(works)]:
            models.pop(i, None)
            start = time.perf_counter()
            models[i] = request.load(i)
            tried[i]["loads"].append(time.perf_counter() - start)
        for batch in batches:
            able = [i for i in works if batch in tried[i]["outputs"]]
            for i in able:
                models[i].bind(request.inputs(i)[batch])
            seconds = request.content["seconds"] / TIMING_ROUNDS
            step, turns = take_turns([models[i] for i in able], seconds)
            for i, times in zip(able, turns):
                tried[i]["times"][batch].append(times[::step])
                tried[i]["least"][batch] = min(tried[i]["least"][batch], *times)


def take_turns(models: list[LoadedModel], seconds: float) -> tuple[int, list[list[float]]]:
    """Run the models in turns; return `step` and the times of each model, of which to keep 1/step.

    Each turn runs every model twice, first to have its weights in the cache, then to time it. The
    order rotates, and `step` shares no factor with the number of models: among the turns kept, each
    model comes first equally often.
    """
    clock = time.perf_counter
    for model in models:
        for _ in range(WARM_UP_RUNS):
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


def count_model(request: Request, index: int) -> Answer:
    """Run one model through all REGIONS for each batch size; the counts go to the counter's log.

    A model that does nothing follows, whose count is the cost of a call.
    """
    marker = request.content["marker"]
    try:
        model = request.load(index)
    except onnxruntime_errors() as error:
        return {"error": short_message(error)}
    outputs, failed, repeats = {}, {}, {}
    for batch, inputs in request.inputs(index).items():
        try:
            model.bind(inputs)
            often = SHORT_RUN_REPEATS if shortest_run(model) < SHORT_RUN_SECONDS else 1
            outputs[batch], repeats[batch] = model.outputs(), often
        except onnxruntime_errors() as error:
            failed[batch] = short_message(error)
            continue
        run_regions(model, often, marker)
    idle = request.content["idle"]
    model = request.load(idle)
    model.bind(next(iter(request.inputs(idle).values())))
    run_regions(model, SHORT_RUN_REPEATS, marker)
    answer = {"outputs": outputs, "failed": failed, "repeats": repeats}
    return {**answer, "idle_repeats": SHORT_RUN_REPEATS, **machine_facts()}


def run_regions(model: LoadedModel, often: int, marker: int) -> None:
    """Run a model through all REGIONS, with markers around each."""
    gc.collect()
    gc.disable()
    for kind in REGIONS:
        runs = range(0 if kind == "nothing" else often)
        mark(marker)
        for _ in runs:
            model.run()
        mark(marker)
    gc.enable()


def shortest_run(model: LoadedModel) -> float:
    """The shortest time of a few runs, which a busy machine distorts least."""
    times = []
    for _ in range(WARM_UP_RUNS):
        start = time.perf_counter()
        model.run()
        times.append(time.perf_counter() - start)
    return min(times)


def mark(marker: int) -> None:
    """Make a system call that only the instruction counter acts on."""
    with contextlib.suppress(ProcessLookupError):
        os.getpgid(marker)


class TrialProcess:
    """The child process that tries a model; it must not outlive this process."""

    def __init__(self) -> None:
        """Start with no process."""
        self.process: subprocess.Popen[bytes] | None = None

    def try_model(self, request: Request, index: int) -> Answer:
        """Try a model in a separate process, so that a crash becomes an error message."""
        command = [sys.executable, os.path.abspath(__file__), "--trial", str(index), request.file]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = self.process.communicate()
        code, self.process = self.process.returncode, None
        for line in out.decode(errors="replace").splitlines():
            if line.startswith(RESULT):
                found: Answer = json.loads(line[len(RESULT) :])
                return found
        last = (err.decode(errors="replace").strip().splitlines() or [""])[-1]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return {"error": f"onnxruntime crashed ({how}) {last}".strip()}

    def end(self) -> None:
        """Kill the process, if there is one."""
        if self.process is not None:
            self.process.kill()


def stop_when_orphaned(child: TrialProcess) -> None:
    """Stop on SIGTERM, or when standard input is closed because the parent process is gone."""

    def stop(*_: Any) -> None:
        child.end()
        os._exit(1)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        stop()

    signal.signal(signal.SIGTERM, stop)
    threading.Thread(target=watch, daemon=True).start()


def machine_facts() -> Answer:
    """The machine and the version of onnxruntime."""
    import onnxruntime

    return {
        "onnxruntime": onnxruntime.__version__,
        "machine": platform.machine(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
    }


def cpu_name() -> str:
    """The name of the board or processor, if the system knows it."""
    for file, key in (("/proc/device-tree/model", ""), ("/proc/cpuinfo", "model name")):
        try:
            with open(file, encoding="utf-8", errors="replace") as stream:
                for line in stream:
                    if line.startswith(key):
                        return line.rpartition(":")[2].strip(" \t\n\0")
        except OSError:
            continue
    return platform.processor() or platform.machine()


def missing_modules() -> list[str]:
    """The required modules that are not installed."""
    return [m for m in ("numpy", "onnxruntime") if importlib.util.find_spec(m) is None]


def print_answer(found: Answer) -> None:
    """Print the answer as one line."""
    sys.stdout.write(RESULT + json.dumps(found) + "\n")
    sys.stdout.flush()


def run_request() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Run models with onnxruntime; prints JSON.")
    parser.add_argument("request")
    parser.add_argument("--trial", type=int)
    parser.add_argument("--count", type=int)
    parser.add_argument("--watch", action="store_true")
    options = parser.parse_args()
    if missing_modules():
        print_answer({"missing": missing_modules(), "python": sys.executable})
        return
    try:
        import onnxruntime  # noqa: F401
    except ImportError as error:
        print_answer({"broken": short_message(error), "python": sys.executable})
        return
    request, child = Request(options.request), TrialProcess()
    if options.watch:
        stop_when_orphaned(child)
    if options.trial is not None:
        print_answer(try_model(request, options.trial))
    elif options.count is not None:
        print_answer(count_model(request, options.count))
    else:
        tried = [child.try_model(request, i) for i in range(len(request.models))]
        time_models(request, tried)
        print_answer({"models": tried, **machine_facts()})


if __name__ == "__main__":
    run_request()
