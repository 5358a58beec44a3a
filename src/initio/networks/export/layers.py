"""Operations as code: read off the modules that `OPERATIONS` builds, so that both are always the same.

Layers of torch are written as they are, sequences as a class with one layer a line, and Initio's own modules with their
layers and their `forward`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from textwrap import dedent, indent

import torch
from torch import nn

from initio.networks import operations
from initio.networks.export.widths import Width
from initio.networks.graphs import Op
from initio.networks.operations import OPERATIONS, Kit

BODY = " " * 8  # the indentation of a method's statements


@dataclass(frozen=True)
class OperationCode:
    """How an operation is made, with {c_in}, {c_out} and {stride} where they stand, and the classes that this needs."""

    call: str
    classes: Mapping[str, str]  # name -> definition

    def at(self, c_in: str, c_out: str, stride: int) -> str:
        """The call with its widths put in; a class of the file has stride 1 by default."""
        call = self.call.format(c_in=c_in, c_out=c_out, stride=stride)
        return call if call.startswith("nn.") else call.replace(", stride=1)", ")")


def write_operation(kind: str, strides: Collection[int], kit: Kit) -> OperationCode:
    """The code of an operation that a network uses with these strides."""
    module = _made(kind, strides, kit, "{{{}}}".format)
    classes = {
        type(m).__name__: inspect.getsource(type(m)).rstrip()
        for m in module.modules()
        if not _is_torch(m) and not list(m.children())
    }
    if not list(module.children()):
        return OperationCode(_code(module), classes)
    module = _made(kind, strides, kit, str)
    if isinstance(module, nn.Sequential):
        name, base, about, forward = _camel(kind), "nn.Sequential", _about(kind, module), ""
        body = _code(module).replace(base, "super().__init__", 1)
    else:
        name, base, about = type(module).__name__, "nn.Module", str(module.__doc__)
        body = "super().__init__()"
        for child_name, child in module.named_children():
            body += f"\nself.{child_name} = {_code(child)}"
        forward = "\n\n" + indent(dedent(inspect.getsource(type(module).forward)), "    ").rstrip()
    code = indent(body, BODY)
    used = [symbol for symbol in ("c_in", "c_out", "stride") if re.search(rf"\b{symbol}\b(?!=)", code)]
    typed = ["self", *(f"{symbol}: int" for symbol in used)]
    signature = f"    def __init__({', '.join(typed)}) -> None:".replace("stride: int", "stride: int = 1")
    definition = f'class {name}({base}):\n    """{about}"""\n\n{signature}\n{code}{forward}'
    arguments = [f"{{{symbol}}}" for symbol in used]
    call = f"{name}({', '.join(arguments)})".replace("{stride}", "stride={stride}")
    return OperationCode(call, classes | {name: definition})


def _made(kind: str, strides: Collection[int], kit: Kit, symbol: Callable[[str], str]) -> nn.Module:
    """The operation's module with symbols for its widths, and for its stride if there are several."""
    stride = max(strides) if len(strides) == 1 else Width(max(strides), symbol("stride"))
    with torch.device("meta"):  # where nothing is computed
        return OPERATIONS[kind](Op(kind, Width(12, symbol("c_in")), Width(20, symbol("c_out")), stride), kit)


def _is_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")


def _code(module: nn.Module) -> str:
    """The call that makes the module."""
    name = type(module).__name__
    if isinstance(module, nn.Sequential):
        layers = [_code(child) for child in module]
        if len(layers) > 1:
            layers = ["\n", *(indent(f"{layer},\n", "    ") for layer in layers)]
        return f"nn.Sequential({''.join(layers)})"
    arguments = []
    for parameter in list(inspect.signature(type(module).__init__).parameters.values())[1:]:
        if parameter.name in ("device", "dtype") or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = _given(module, parameter.name)
        if parameter.default is parameter.empty:
            arguments.append(_text(value))
        elif value != parameter.default:
            arguments.append(f"{parameter.name}={_text(value)}")
    prefix = "nn." * _is_torch(module)
    return f"{prefix}{name}({', '.join(arguments)})"


def _given(module: nn.Module, name: str) -> object:
    """What the constructor was given: torch keeps it under the same name, a size in two directions as a pair."""
    value = getattr(module, name, None)
    if name == "bias":
        return value is not None or isinstance(module, nn.BatchNorm2d)  # of a batch norm, `affine` says it all
    if isinstance(value, tuple) and len(set(value)) == 1:
        return value[0]
    return value


def _text(value: object) -> str:
    return f"({', '.join(map(_text, value))})" if isinstance(value, tuple) else str(value)


def _camel(kind: str) -> str:
    """`nor_conv_3x3` as NorConv3x3; two numbers in a row keep their underscore."""
    words = re.sub(r"(\d)_(\d)", r"\1~\2", kind).replace("-", "_").split("_")
    return "".join(word[0].upper() + word[1:] for word in words).replace("~", "_")


def _about(kind: str, module: nn.Module) -> str:
    """The docstring of the function that makes the operation, or else the names of its layers."""
    maker = getattr(operations, OPERATIONS[kind].__qualname__.partition(".")[0], None)
    if maker is None or not maker.__doc__:
        return ", ".join(type(child).__name__ for child in module.children()) + "."
    return re.split(r"[;.]", maker.__doc__)[0] + "."
