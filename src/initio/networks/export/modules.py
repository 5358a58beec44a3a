"""Operations as code: read off the modules that `OPERATIONS` builds, so that both are always the same.

An operation is built at several widths and strides (on the meta device, where nothing is computed); each number in its
layers becomes the formula of `c_in`, `c_out` and `stride` that gives it at all of them. Layers of torch are written as
they are, sequences as a class with one layer a line, and Initio's own modules with their layers and their `forward`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import dedent, indent

import torch
from torch import nn

from initio.errors import InputError
from initio.networks import operations
from initio.networks.export.expressions import Call, Values, express
from initio.networks.graphs import Op
from initio.networks.operations import OPERATIONS, Kit

WIDTHS = ((12, 20), (13, 22), (14, 25), (17, 24), (19, 31))  # (c_in, c_out) at which operations are read
SYMBOLS = ("c_in", "c_out", "stride")
MAX_INLINE = 3  # layers of a sequence that is written in place when it occurs once


@dataclass(frozen=True)
class Written:
    """An operation as code: how it is called, and the classes that this needs."""

    call: Call
    classes: Mapping[str, str]  # name -> definition

    @property
    def symbols(self) -> tuple[str, ...]:
        """Which of `c_in`, `c_out` and `stride` the call has."""
        return _symbols(str(self.call))

    def at(self, c_in: str, c_out: str, stride: int) -> Call:
        """The call with its widths put in."""
        return _filled(self.call, {"c_in": c_in, "c_out": c_out, "stride": str(stride)})


def _filled(call: Call, values: Mapping[str, str]) -> Call:
    arguments: list[str | Call] = []
    for argument in call.arguments:
        if isinstance(argument, Call):
            arguments.append(_filled(argument, values))
        elif argument in values:
            arguments.append(values[argument])
        elif argument != "stride=stride" or call.function.startswith("nn.") or values["stride"] != "1":
            arguments.append(re.sub(r"(?<![\w.])(c_in|c_out|stride)(?![\w=])", lambda m: _atom(values[m[1]]), argument))
    return Call(call.function, tuple(arguments))


def _atom(text: str) -> str:
    return text if text.replace("_", "").isalnum() else f"({text})"


def write_operation(kind: str, strides: Collection[int], kit: Kit, *, once: bool) -> Written:
    """The code of an operation that a network uses with these strides; `once` when a single line does."""
    places = [Op(kind, c_in, c_out, stride) for stride in sorted(strides) for c_in, c_out in WIDTHS]
    with torch.device("meta"):
        modules = [OPERATIONS[kind](op, kit) for op in places]
    known: dict[str, Values] = {symbol: tuple(getattr(op, symbol) for op in places) for symbol in SYMBOLS}
    first = modules[0]
    if _is_torch(first) and not isinstance(first, nn.Sequential):
        return Written(_call(modules, known), {})
    if isinstance(first, nn.Sequential):
        if once and len(first) <= MAX_INLINE:
            return Written(_call(modules, known), _own_classes(first))
        name, definition = _camel(kind), _sequence(_camel(kind), kind, modules, known)
        return Written(_own_call(name, definition), _own_classes(first) | {name: definition})
    name = type(first).__name__
    if not list(first.children()):
        return Written(_call(modules, known), {name: class_source(type(first))})
    definition = _own(modules, known)
    return Written(_own_call(name, definition), {name: definition})


def class_source(cls: type[nn.Module]) -> str:
    """The source of a module that needs nothing but torch."""
    return inspect.getsource(cls).rstrip()


# --- layers ----------------------------------------------------------------------------------------------------------


def _is_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")


def _call(modules: Sequence[nn.Module], known: Mapping[str, Values]) -> Call:
    """The constructor call that makes each of these modules, which differ in numbers only."""
    first = modules[0]
    name = f"nn.{type(first).__name__}" if _is_torch(first) else type(first).__name__
    if isinstance(first, nn.Sequential):
        children = zip(*(module.children() for module in modules), strict=True)
        return Call(name, tuple(_call(column, known) for column in children))
    arguments = []
    for parameter in list(inspect.signature(type(first).__init__).parameters.values())[1:]:
        values = [_attribute(module, parameter.name) for module in modules]
        if parameter.name in ("device", "dtype") or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty:
            arguments.append(_text(values, known))
        elif any(value != parameter.default for value in values):
            arguments.append(f"{parameter.name}={_text(values, known)}")
    return Call(name, tuple(arguments))


def _attribute(module: nn.Module, name: str) -> object:
    """What the constructor was given: torch keeps it under the same name, a size in two directions as a pair."""
    value = getattr(module, name, None)
    if name == "bias":
        return value is not None or isinstance(module, nn.BatchNorm2d)  # of a batch norm, `affine` says it all
    if isinstance(value, tuple) and len(set(value)) == 1:
        return value[0]
    return value


def _text(values: Sequence[object], known: Mapping[str, Values]) -> str:
    first = values[0]
    if isinstance(first, bool) or not isinstance(first, int | tuple):
        assert all(value == first for value in values)
        return repr(first)
    if any(isinstance(value, tuple) for value in values):
        pairs = [value if isinstance(value, tuple) else (value, value) for value in values]
        return "(" + ", ".join(_text(column, known) for column in zip(*pairs, strict=True)) + ")"
    numbers = tuple(int(str(value)) for value in values)
    if (text := express(numbers, known)) is None:
        raise InputError(f"no formula of c_in, c_out and stride gives the sizes {numbers}")
    return text


# --- classes ---------------------------------------------------------------------------------------------------------


def _camel(kind: str) -> str:
    """`nor_conv_3x3` as NorConv3x3; two numbers in a row keep their underscore."""
    words = re.sub(r"(\d)_(\d)", r"\1~\2", kind).replace("-", "_").split("_")
    return "".join(word[0].upper() + word[1:] for word in words).replace("~", "_")


def _sequence(name: str, kind: str, modules: Sequence[nn.Module], known: Mapping[str, Values]) -> str:
    call = _call(modules, known)
    body = Call("super().__init__", call.arguments).lines("        ")
    return "\n".join([f"class {name}(nn.Sequential):", f'    """{_about(kind)}"""', "", _signature(str(call)), *body])


def _own(modules: Sequence[nn.Module], known: Mapping[str, Values]) -> str:
    """One of Initio's modules: its layers as they are, its `forward` as it is written."""
    cls = type(modules[0])
    calls = {
        name: _call([module.get_submodule(name) for module in modules], known)
        for name, _ in modules[0].named_children()
    }
    layers = [line for name, call in calls.items() for line in call.lines("        ", f"self.{name} = ")]
    signature = _signature(" ".join(map(str, calls.values())))
    forward = indent(dedent(inspect.getsource(cls.forward)), "    ").rstrip()
    head = [f"class {cls.__name__}(nn.Module):", f'    """{cls.__doc__}"""', ""]
    return "\n".join([*head, signature, "        super().__init__()", *layers, "", forward])


def _own_classes(sequence: nn.Module) -> dict[str, str]:
    """Definitions of what a sequence holds beside torch's layers."""
    return {type(m).__name__: class_source(type(m)) for m in sequence.modules() if not _is_torch(m)}


def _signature(text: str) -> str:
    """`def __init__` with those of the symbols that the text uses."""
    typed = [f"{symbol}: int" + (" = 1" if symbol == "stride" else "") for symbol in _symbols(text)]
    return f"    def __init__({', '.join(['self', *typed])}) -> None:"


def _symbols(text: str) -> tuple[str, ...]:
    """The symbols in a text, not counting the names of keyword arguments."""
    return tuple(symbol for symbol in SYMBOLS if re.search(rf"\b{symbol}\b(?!=)", text))


def _own_call(name: str, definition: str) -> Call:
    """The call that fits the definition's `__init__`."""
    signature = definition.partition("def __init__(self")[2].partition(")")[0]
    return Call(name, tuple(f"{s}={s}" if s == "stride" else s for s in _symbols(signature)))


def _about(kind: str) -> str:
    """The docstring of the function that makes the operation, when it has one of its own."""
    maker = getattr(operations, OPERATIONS[kind].__qualname__.partition(".")[0], None)
    if maker is None or not maker.__doc__:
        return f"The operation {kind}."
    return re.split(r"[;.]", maker.__doc__)[0] + "."
