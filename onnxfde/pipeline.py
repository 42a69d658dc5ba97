"""From one model file to another: `optimize` a model, or `verify` one against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

import numpy as np

from onnxfde import __version__
from onnxfde.data_use import DataUse
from onnxfde.graph.stamp import is_own_work
from onnxfde.numbers import Data
from onnxfde.optimization import Optimization, Result, samples_to_compare
from onnxfde.options import DEFAULT_RANGE, MoreOptions, Options, Range
from onnxfde.passes.certified_merging import CertifiedMerging
from onnxfde.passes.quantize import Quantize
from onnxfde.progress import Progress
from onnxfde.running.open_files import Model, open_data, open_model, open_model_or_ort
from onnxfde.running.side_by_side import SideBySide, require_same_interface
from onnxfde.running.verification import Verification


def optimize(
    model: Model,
    eps: float | None = None,
    *,
    progress: Progress | None = None,
    **options: Unpack[MoreOptions],
) -> Result:
    """Merge neurons that do the same thing; the model given is not changed.

    Args:
        model: A path or an `onnx.ModelProto`.
        eps: Allowed change of each layer's output, relative to its spread; 0.1 if neither `eps` nor
            `neurons` nor `keep` is given, but without data 0 for all but polynomials.
        progress: Receives reports of what is being done.
        **options: Any of the following, by name.

    Options:
        layer_eps: ε of single layers, by name or glob: `{"fc1": 0.05}`.
        neurons: Leave at most this many neurons in each layer, instead of ε.
        keep: Leave at most this fraction (up to 1) of each layer's neurons, instead of ε.
        max_error: As small as possible, with outputs that change by at most this (relative L2) on
            data that nothing was chosen by, instead of ε; `GoalMissed` if they change more.
        max_drop: As small as possible, with at most so many points of accuracy less, or percent of
            the mean squared error more, if the data has labels or targets.
        max_params: As good as possible, with at most so many parameters (an int), or at most this
            share of the original's (a float up to 1.0).
        max_macs: The same for multiply-adds of one sample.
        max_bytes: The same for the bytes of the file.
        max_latency: The same for the time of one run: "60%" of the original's, or "2.5"
            milliseconds.
        latency_target: The machine that this is about: "cpu" (default), "arm64", "ssh://…".
        align: Leave a multiple of so many channels in each layer of convolutions: 8, 4 or 1; None
            (default): 8 where a layer has at least 16.
        layers: Only layers whose name matches one of these globs.
        skip: Not the layers whose name matches one of these globs.
        data: Real inputs, one row per sample: a .npz or .npy file, a folder of .npz files, a table
            (.csv with a header), a folder of images (subfolders are classes), `{name: array}` with
            one array per input ("y" for labels or targets), or the array of the only input.
        preprocess: What is done to the values of the data, (x · scale − mean) / std, and where it
            has its channels: "scale=1/255,mean=0.5:0.4:0.4,std=0.2:0.2:0.3,layout=nhwc", with
            "NAME:" in front for one of several inputs, in a list.
        inputs: Arrays of the data by the inputs that take them, where the names differ:
            `{"x": "images"}`.
        labels: The array of the data, or the column of a table, with labels or targets; "y" if
            there is one of that name.
        input_range: `(low, high)` of the inputs if there is no data, and for the certificate;
            `(-1, 1)` if not given.
        verify: Run the result beside the original and compare them (default).
        certify: Bound the change of every output for all inputs in the range; None (default): only
            if that is cheap.
        max_certified_error: Merge only as much as keeps that bound within this.
        int8: Then round weights and values to 8 bits: "dynamic" or "static" (needs data).
        time_limit: Seconds from the start after which the search for fewer neurons ends and the
            best so far is taken, or what "refit" gives; that, proof and verification always
            finish.
        force: Optimize a model again even if onnxfde made it with the same settings.
        semantics: What ε means: "budget" (default), or a pairwise threshold on the weights of
            neurons as in the "paper" or its tool "erode".
        quotient: How a layer gets fewer neurons: "minimal" (default for budget) chooses them
            freely; "refit", "single" (default for paper) and "exact" merge blocks of neurons.
        seed: Seed of the random starts of minimal.
        relation: For paper and erode: compare outgoing ("forward", default) or incoming
            ("backward") weights.
        norm: For paper, backward: how differences add up, "sum" (default) or "max".
        linkage: For paper: blocks by chains of neighbours ("closure", default), or all pairs within
            ε ("diameter").

    Raises:
        OnnxfdeError: Something is wrong with the model, the data or the options.

    >>> from onnxfde.demo import demo_data, demo_model
    >>> result = optimize(demo_model(), eps=0.1, data=demo_data())
    >>> result.report.grp_percent < 30
    True
    """
    return optimized(model, Options.given(eps, **options), progress)


@np.errstate(all="ignore")
def optimized(
    model: Model, options: Options, progress: Progress | None = None, frontiers: bool = False
) -> Result:
    """`optimize` with its options as one value; `frontiers` costs some time, for pages."""
    progress = (progress or Progress()).restarted()
    with progress.timed("load"):
        run = Optimization.opened(model, options, progress, frontiers)
    if not options.force and is_own_work(run.source.graph, __version__, run.settings):
        return run.unchanged("onnxfde made it with these settings before")
    if options.int8:
        Quantize(options.int8).check(run.source.graph)
    done = run.merged(CertifiedMerging.of(options))
    return run.rounded_to_8_bits(done, Quantize(options.int8)) if options.int8 else done


@np.errstate(all="ignore")
def verify(
    model: Model,
    other: Model,
    *,
    data: Data | None = None,
    preprocess: str | Sequence[str] = (),
    inputs: Mapping[str, str] | None = None,
    labels: str | None = None,
    input_range: Range = DEFAULT_RANGE,
    progress: Progress | None = None,
) -> Verification:
    """Run two models on the same inputs and measure how far apart they are.

    >>> from onnxfde.demo import demo_model
    >>> verify(demo_model(), demo_model()).max_abs_error
    0.0
    """
    first, second = open_model(model).graph, open_model_or_ort(other)
    require_same_interface(first, second)
    source, _ = open_data(first, data, input_range, DataUse.given(preprocess, inputs, labels))
    samples = samples_to_compare(first, source, wanted=True)
    side_by_side = SideBySide(first, samples, progress or Progress(), source.clock)
    return side_by_side.compare(second).verification
