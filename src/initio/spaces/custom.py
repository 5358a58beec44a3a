"""Your own space: a function that builds a module from named choices, or a plain list of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from initio.errors import InputError, did_you_mean
from initio.networks.graphs import NetworkSettings
from initio.records import Architecture
from initio.spaces.base import Cell, Decision, Edge, Space

if TYPE_CHECKING:
    from torch import nn

RESERVED = set(":,=\n")
TOLD = ("shape", "classes")  # of the data, that a builder may ask for


@dataclass(frozen=True)
class CustomSpace(Space):
    """Named choices and the function that builds a module from them; made by `space` and `space_of_modules`."""

    builder: Callable[..., nn.Module] = field(repr=False)
    values: tuple[tuple[Any, ...], ...] = field(repr=False)  # what the builder gets, for each decision's options

    wired = False

    def _identity(self) -> object:
        return self.decisions, [[type(value).__name__ for value in row] for row in self.values]

    def parse(self, text: str) -> Architecture:
        """Reads `name:kernel=3,width=64`; every choice must be named once, the name's digest may be left out."""
        name, _, rest = text.strip().rpartition(":")
        if name not in (self.name, self.name.removesuffix(f"-{self.digest}")):
            raise InputError(f"an architecture of {self.name} begins with '{self.name}:', not {name!r}")
        given: dict[str, str] = {}
        for part in rest.split(","):
            key, equals, value = part.partition("=")
            if not equals or key in given:
                example = ",".join(f"{d.name}={d.options[0]}" for d in self.decisions)
                raise InputError(f"{part!r} must be one choice as in '{example}'")
            given[key] = value
        names = [decision.name for decision in self.decisions]
        if unknown := [key for key in given if key not in names]:
            raise InputError(f"{self.name} has no choice {unknown[0]!r}: {did_you_mean(unknown[0], names)}")
        if missing := [key for key in names if key not in given]:
            raise InputError(f"{self.name} needs the choice {missing[0]!r} as well")
        return self.architecture(*(self.option(decision, given[decision.name]) for decision in self.decisions))

    def format(self, arch: Architecture) -> str:
        """`name:choice=option,choice=option`."""
        pairs = zip(self.decisions, self.check(arch).choices, strict=True)
        return f"{self.name}:" + ",".join(f"{d.name}={d.options[choice]}" for d, choice in pairs)

    def cells(self, arch: Architecture) -> tuple[Cell, ...]:
        """The choices in a row, since nothing is known of the structure."""
        pairs = zip(self.decisions, self.check(arch).choices, strict=True)
        nodes = ("input", *(f"{d.name} = {d.options[choice]}" for d, choice in pairs), "output")
        return (Cell(self.name, nodes, tuple(Edge(i, i + 1) for i in range(len(nodes) - 1))),)

    def choices_of(self, arch: Architecture) -> dict[str, Any]:
        """The values that the builder gets."""
        self.check(arch)
        return {d.name: v[c] for d, v, c in zip(self.decisions, self.values, arch.choices, strict=True)}

    def resolve(self, settings: NetworkSettings) -> NetworkSettings:
        """The same settings: a width or a number of cells would have no effect, and are refused."""
        if settings.channels is not None or settings.cells is not None:
            raise InputError(f"{self.name} builds its own networks: make width and depth choices of the space")
        return settings

    def build(self, arch: Architecture, settings: NetworkSettings | None = None, *, seed: int = 0) -> nn.Module:
        """Calls the builder with torch's generator seeded, and puts the generator back as it was.

        Of the settings it is told `shape` and `classes`, if it has arguments of these names that are no choices; all
        else is the builder's own affair.
        """
        import torch

        choices, settings = self.choices_of(arch), settings or NetworkSettings()
        told = {name: getattr(settings, name) for name in signature(self.builder).parameters if name in TOLD}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.builder(**told | choices)
        if not isinstance(module, torch.nn.Module):
            raise InputError(f"the builder of {self.name} must return a torch.nn.Module, not {type(module).__name__}")
        return module


def space(name: str, builder: Callable[..., nn.Module], /, **choices: Iterable[Any]) -> CustomSpace:
    """A space over named choices.

    Args:
        name: a name of your own. It is followed by a digest of the choices, so that two spaces of one name but
            different choices never share a score; give another name when the builder changes.
        builder: called with one value for each choice, by name; returns a `torch.nn.Module`. If it has arguments
            `shape` and `classes`, it gets the shape of an input and the number of outputs.
        choices: for each name the values to choose from.

    >>> own = space("tiny", lambda kernel, width: None, kernel=[3, 5], width=[16, 32, 64])
    >>> own.count()
    6
    >>> own.format(own.architecture(1, 2))
    'tiny-34b507:kernel=5,width=64'
    """
    if not choices:
        raise InputError(f"the space {name!r} needs at least one choice")
    values = {key: _values(key, given) for key, given in choices.items()}
    decisions = tuple(_decision(key, given) for key, given in values.items())
    return _custom(name, builder, decisions, tuple(values.values()))


def space_of_modules(name: str, modules: Mapping[str, Callable[[], nn.Module]]) -> CustomSpace:
    """A space that is a list: each named function builds one module.

    >>> own = space_of_modules("mine", {"small": lambda: None, "large": lambda: None})
    >>> [own.format(arch) for arch in own.architectures()]
    ['mine-f7ea92:module=small', 'mine-f7ea92:module=large']
    """
    if not isinstance(modules, Mapping) or not all(callable(make) for make in modules.values()):
        raise InputError(f"the modules of {name!r} must be named functions: {{'small': lambda: ..., ...}}")
    if made := [key for key, make in modules.items() if not isinstance(make, type) and hasattr(make, "state_dict")]:
        raise InputError(f"module {made[0]!r} of {name!r} must be a function that builds it, not the module itself")
    decisions = (_decision("module", list(modules)),)
    return _custom(name, lambda module: modules[module](), decisions, (tuple(modules),))


def _custom(
    name: str, builder: Callable[..., nn.Module], decisions: tuple[Decision, ...], values: tuple[tuple[Any, ...], ...]
) -> CustomSpace:
    if not name or RESERVED & set(name):
        raise InputError(f"the name of a space must be a word without ':', ',' and '=', not {name!r}")
    unnamed = CustomSpace("", f"{name}: your own choices", decisions, builder, values)
    return replace(unnamed, name=f"{name}-{unnamed.digest}")


def _values(name: str, given: Iterable[Any]) -> tuple[Any, ...]:
    try:
        return tuple(given)
    except TypeError:
        raise InputError(f"choice {name!r} needs a list of values, not {given!r}") from None


def _decision(name: str, values: Sequence[Any]) -> Decision:
    options = tuple(getattr(value, "__name__", str(value)) for value in values)  # a class goes by its name
    if not options or len(set(options)) != len(options):
        raise InputError(f"choice {name!r} needs different values to choose from, not {list(options)}")
    if wrong := [text for text in (name, *options) if not text or RESERVED & set(text)]:
        raise InputError(f"choice {name!r}: {wrong[0]!r} cannot be written in a name, avoid ':', ',' and '='")
    return Decision(name, options)
