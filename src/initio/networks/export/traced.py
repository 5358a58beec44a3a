"""A network as TorchScript and ONNX, for programs that have no Python; the batch may be of any size."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn
from torch.jit._trace import TracerWarning

from initio.errors import InputError

INPUT, OUTPUT = "input", "logits"
DEPRECATED = (  # torch wants torch.export instead, which cannot write these files or takes ten times as long
    r"`torch\.jit\.\w+` is deprecated",
    "You are using the legacy TorchScript-based ONNX export",
    "The feature will be removed",
)


def torchscript(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, facts: Mapping[str, str] | None = None
) -> bytes:
    """What `torch.jit.load` and libtorch read: the trace of a network in evaluation mode; `facts` are extra files."""
    buffer = io.BytesIO()
    with _quiet(), torch.no_grad():
        traced = torch.jit.trace(model, _example(shape, dtype), check_trace=False)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, buffer, _extra_files=dict(facts or {}))
    return buffer.getvalue()


def onnx(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, facts: Mapping[str, str] | None = None
) -> bytes:
    """An ONNX model from `input` (batch, *shape) to `logits` (batch, classes), of a network in evaluation mode.

    `facts` become the model's metadata.

    The exporter that traces is used: the one that is built on torch.export takes more than ten times as long for the
    published DARTS network and needs another package (onnxscript); their files are equally exact, large and fast.
    """
    try:
        from onnx import helper, load_model_from_string
    except ImportError:
        raise InputError("the format onnx needs the package onnx: pip install 'initio[export]'") from None
    buffer = io.BytesIO()
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            model,
            (_example(shape, dtype),),
            buffer,  # type: ignore[arg-type]  # the tracing exporter takes a file as well
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_axes={INPUT: {0: "batch"}, OUTPUT: {0: "batch"}},
            dynamo=False,
        )
    if not facts:
        return buffer.getvalue()
    made = load_model_from_string(buffer.getvalue())
    helper.set_model_props(made, dict(facts))
    content: bytes = made.SerializeToString()
    return content


def _example(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A batch of two: of one, a tracer might take the size for granted."""
    return torch.zeros(2, *shape, dtype=dtype)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that do not matter here: branches on the size of images, which a trace keeps, are meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TracerWarning)
        for message in DEPRECATED:
            warnings.filterwarnings("ignore", message, DeprecationWarning)
        yield
