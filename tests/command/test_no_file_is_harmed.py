"""No output replaces a file that an input reads; traps of the file system end in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.errors import UsageError
from tests.command.running import B, C, V, W, run, without_layers
from tests.command.test_errors_in_one_line import assert_one_line_error
from tests.models import contents, mlp, twins

LONG = "n" * 300


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model `e.onnx` whose weights lie in `e.data`."""
    weights = twins(distinct=20, copies=2, inputs=8, outputs=30)
    path = tmp_path / "e.onnx"
    onnx.save(mlp(*weights), path, save_as_external_data=True, location="e.data", size_threshold=0)
    return path


def linked(kind: str, file: Path) -> Path:
    """Another name for a file."""
    link = file.with_name(f"{kind}-{file.name}")
    if kind == "hard":
        link.hardlink_to(file)
    elif kind == "soft":
        link.symlink_to(file)
    return link if kind else file


@pytest.mark.parametrize("kind", ["", "hard", "soft"])
@pytest.mark.parametrize("options", [(), ("--skip", "*")])
def test_out_is_no_file_with_weights_of_in(
    external: Path, kind: str, options: tuple[str, ...]
) -> None:
    out = linked(kind, external.with_name("e.data"))
    before = contents(external.parent)
    done = run("optimize", external, out, *options)
    assert_one_line_error(done, "is a file with weights of", 2)
    assert contents(external.parent) == before


def npz(path: Path) -> None:
    with path.open("wb") as stream:
        np.savez(stream, x=np.zeros((3, 4), np.float32))


@pytest.mark.parametrize("name", ["data.npz", "data.NPY", "notes.txt", "archive", "cut.onnx"])
def test_out_replaces_no_file_that_is_no_model(model: Path, name: str) -> None:
    out = model.with_name(name)
    if name == "archive":
        npz(out)
    else:
        out.write_bytes(model.read_bytes()[:-1] if name == "cut.onnx" else b"my notes: do not lose")
    before = contents(model.parent)
    done = run("optimize", model, out, "--force")
    assert_one_line_error(done, "is named like a data" if "data" in name else "is no model", 2)
    assert contents(model.parent) == before
    with pytest.raises(UsageError, match=r"no model|named like"):
        onnxfde.optimize(model).save(out)
    assert contents(model.parent) == before


def test_a_model_of_another_kind_is_not_promised(model: Path) -> None:
    done = run("optimize", model, model.with_name("small.tflite"))
    assert_one_line_error(done, "call OUT *.onnx or *.ort", 2)
    assert not model.with_name("small.tflite").exists()


def test_a_new_out_is_not_named_like_data(model: Path) -> None:
    done = run("optimize", model, model.with_name("rows.npz"))
    assert_one_line_error(done, "OUT is a model, data goes to --data", 2)


@pytest.mark.parametrize("old", ["other.onnx", "other.ort", "empty"])
def test_out_replaces_models_and_empty_files(model: Path, old: str) -> None:
    out = model.with_name(old)
    if old == "empty":
        out.touch()
    else:
        assert run("optimize", model, out, "--eps", "0", "--quotient", "refit").exit_code == 0
    assert run("optimize", model, out, "--quotient", "refit").exit_code == 0
    assert out.stat().st_size


@pytest.mark.parametrize("kind", ["", "hard", "soft"])
@pytest.mark.parametrize("command", ["optimize", "inspect", "verify", "verify-b", "bench"])
def test_no_report_replaces_a_file_that_is_read(external: Path, kind: str, command: str) -> None:
    external.with_name("e.data").write_bytes(b"{" + external.with_name("e.data").read_bytes()[1:])
    report = linked(kind, external.with_name("e.data"))
    plain = external.with_name("plain.onnx")
    onnx.save(mlp(W, B, V, C), plain)
    words: dict[str, tuple[str | Path, ...]] = {
        "optimize": ("optimize", external, external.with_name("o.onnx")),
        "inspect": ("inspect", external),
        "verify": ("verify", external, plain),
        "verify-b": ("verify", plain, external),
        "bench": ("bench", plain, external),
    }
    before = contents(external.parent)
    done = run(*words[command], "--json", report)
    assert_one_line_error(done, "is a file with weights of", 2)
    assert contents(external.parent) == before


def test_no_report_takes_the_place_of_a_data_file_of_out(external: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "o.onnx"
    assert run("optimize", external, out, "--eps", "0").exit_code == 0
    (data,) = folder.glob("o.onnx.*")
    data.unlink()
    before = contents(tmp_path)
    done = run("optimize", external, out, "--eps", "0", "--json", data)
    assert_one_line_error(done, "is another file of this run", 2)
    done = run("optimize", external, out, "--skip", "*", "--html", folder / "e.data")
    assert_one_line_error(done, "is another file of this run", 2)
    done = run("optimize", external, out, "--json", out)
    assert_one_line_error(done, "is another file of this run", 2)
    assert contents(tmp_path) == before


def test_the_demo_does_not_replace_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("digits.onnx", "digits.npz"):
        (tmp_path / name).write_bytes(b"the package's")
    monkeypatch.setattr("onnxfde.demo.demo_model", lambda name: tmp_path / f"{name}.onnx")
    monkeypatch.setattr("onnxfde.demo.demo_data", lambda name: tmp_path / f"{name}.npz")
    assert_one_line_error(run("demo", "--save", tmp_path), "choose another file to write to", 2)
    assert contents(tmp_path) == dict.fromkeys(("digits.onnx", "digits.npz"), b"the package's")


@pytest.mark.parametrize("name", ["pipe", "/dev/zero"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = run("optimize", tmp_path / name, tmp_path / "o.onnx")
    assert_one_line_error(done, f"{name} is no regular file (a pipe or a device); give a file")


def test_a_model_from_a_pipe_is_refused(tmp_path: Path) -> None:
    path = "/dev/stdin"
    command = [sys.executable, "-m", "onnxfde", "optimize", path, str(tmp_path / "o.onnx")]
    raw = mlp(W, B, V, C).SerializeToString()
    done = subprocess.run([*command, "--skip", "*"], input=raw, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == (
        f"onnxfde: {path} is no regular file (a pipe or a device); give a file\n"
    )
    assert not (tmp_path / "o.onnx").exists()


def test_a_model_that_changes_during_the_run_is_not_copied(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxfde import pipeline

    optimized = pipeline.optimized

    def meanwhile(*args: Any, **more: Any) -> Any:
        found = optimized(*args, **more)
        onnx.save(mlp(*twins(distinct=4)), model)
        return found

    monkeypatch.setattr(pipeline, "optimized", meanwhile)
    done = run("optimize", model, model.with_name("o.onnx"), "--skip", "*")
    assert_one_line_error(done, "in.onnx was changed by another program; run again")
    assert not model.with_name("o.onnx").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((LONG, "o.onnx"), "cannot be read (File name too long)"),
        (("in.onnx", LONG), "cannot be written (File name too long)"),
        (("in.onnx", "o.onnx", "--json", LONG), "cannot be written (File name too long)"),
        (("in.onnx", "o.onnx", "--data", LONG), "cannot be read (File name too long)"),
        (("loop", "o.onnx"), "cannot be read (Too many levels of symbolic links)"),
        (("in.onnx", "loop"), "cannot be written (Too many levels of symbolic links)"),
        (("in.onnx", "o.onnx", "--json", "loop"), "cannot be written (Too many levels of"),
        (("in.onnx", "loop/o.onnx"), "no such folder"),
        (("in.onnx", "o.onnx", "--json", "in.onnx/r.json"), "no such folder"),
    ],
)
def test_names_that_lead_nowhere_get_one_line(
    model: Path, args: tuple[str, ...], message: str
) -> None:
    folder = model.parent
    (folder / "loop").symlink_to("loop")
    before = contents(folder)
    words = [word if word.startswith("--") else folder / word for word in args]
    assert_one_line_error(run("optimize", *words), message)
    assert contents(folder) == before


def test_a_file_name_that_is_not_utf8_works(model: Path) -> None:
    odd = model.with_name(os.fsdecode(b"\xff.onnx"))
    model.rename(odd)
    out = odd.with_name(os.fsdecode(b"\xfe.onnx"))
    report = odd.with_name(os.fsdecode(b"\xfd.json"))
    assert run("optimize", odd, out, "--eps", "0", "-q", "--json", report).exit_code == 0
    assert json.loads(report.read_bytes())["layers"][0]["neurons_after"] == 3


def test_external_weights_cannot_go_to_a_name_that_is_not_utf8(external: Path) -> None:
    before = contents(external.parent)
    out = external.with_name(os.fsdecode(b"\xfe.onnx"))
    done = run("optimize", external, out, "--eps", "0")
    assert_one_line_error(done, "cannot name a file that is not UTF-8")
    assert contents(external.parent) == before


def as_nobody(commands: list[list[str | Path]]) -> list[list[Any]]:
    """Exit code, stdout and stderr of commands that a user without rights gives."""
    read, write = os.pipe()
    process = os.fork()
    if not process:
        try:
            os.setgid(65534)
            os.setuid(65534)
            done = [run(*words) for words in commands]
            found = json.dumps([[each.exit_code, each.stdout, each.stderr] for each in done])
            os.write(write, found.encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(process, 0)
    with os.fdopen(read) as stream:
        answers: list[list[Any]] = json.load(stream)
    return answers


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can do that")
def test_closed_folders_get_one_line() -> None:
    """root may enter any folder, so a user without rights does the work."""
    with tempfile.TemporaryDirectory() as name:
        folder, closed = Path(name), Path(name) / "closed"
        folder.chmod(0o755)
        closed.mkdir(mode=0o000)
        model = folder / "in.onnx"
        onnx.save(mlp(W, B, V, C), model)
        assert run("optimize", model, folder / "o.onnx").exit_code == 0
        found = as_nobody(
            [
                ["optimize", closed / "in.onnx", folder / "o"],
                ["optimize", model, closed / "o.onnx"],
                ["optimize", model, folder / "o.onnx"],
                ["inspect", model, "--json", closed / "r.json"],
            ]
        )
    for code, stdout, stderr in found:
        assert (code, stdout, stderr.count("\n")) == (1, "", 1)
        assert "cannot be" in stderr or "is not writable" in stderr


@pytest.mark.parametrize("data", [np.full((200, 2), np.nan), np.full(200, np.nan)])
def test_labels_that_are_no_numbers_do_not_harm_the_report(model: Path, data: Any) -> None:
    folder = model.parent
    np.savez(folder / "d.npz", x=np.random.default_rng(0).normal(size=(200, 3)), y=data)
    words = ("--data", folder / "d.npz", "--json", folder / "r.json", "-q")
    assert run("optimize", model, folder / "o.onnx", *words).exit_code == 0
    assert json.loads((folder / "r.json").read_text())["verification"]["metric_after"] is None


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_report_that_cannot_be_written_leaves_the_model(
    model: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    out, report = model.with_name("o.onnx"), model.with_name("r")
    report.write_bytes(b"{}" if option == "--json" else b"<html>")
    before, rename = contents(model.parent), os.replace

    def fail_on_report(source: Any, target: Any) -> None:
        if Path(target) == report:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "replace", fail_on_report)
    done = run("optimize", model, out, "--eps", "0", option, report)
    told = f"{out} was written, but {report} cannot be written (Input/output error)"
    assert_one_line_error(done, told)
    assert contents(model.parent) == before | {"o.onnx": out.read_bytes()}
    assert onnxfde.inspect(out).layers[0].neurons == 3


def test_a_model_that_cannot_be_written_has_no_report(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(model.parent)

    def fail(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", fail)
    done = run("optimize", model, model.with_name("o.onnx"), "--json", model.with_name("r.json"))
    assert_one_line_error(done, "o.onnx cannot be written (Input/output error)")
    assert contents(model.parent) == before


@pytest.mark.parametrize("more", [(), ("--json", "-")])
def test_a_full_stdout_says_that_out_was_written(model: Path, more: tuple[str, ...]) -> None:
    out = model.with_name("o.onnx")
    words = [sys.executable, "-m", "onnxfde", "optimize", str(model), str(out), *more]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*words, "--input-range", "0:1", "--eps", "0"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    told = without_layers(done.stderr)
    assert told.startswith(f"onnxfde: {out} was written, but stdout cannot be written")
    assert told.count("\n") == 1
    assert onnx.load(out).graph.node


def test_out_and_its_weights_are_named(external: Path) -> None:
    done = run("optimize", external, external.with_name("o.onnx"), "--eps", "0")
    (data,) = external.parent.glob("o.onnx.*")
    assert f"o.onnx, weights in {data.name}" in "".join(done.stdout.split("\n"))
    refused = run("optimize", external, "-")
    assert (refused.exit_code, "a model is written to a file" in refused.stderr) == (2, True)


def test_a_file_above_2_gib_is_told_the_way(model: Path) -> None:
    large = model.with_name("large.onnx")
    with large.open("wb") as stream:
        stream.truncate(2**31)
    done = run("optimize", large, model.with_name("o.onnx"))
    assert_one_line_error(done, "2,147,483,648 bytes; an .onnx file cannot hold more than 2 GiB")
    assert "external data" in done.stderr
