"""What a model is made of, and the model with other tensors in the place of its own for a while."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from initio.autodiff import devices
from initio.errors import InputError

# While a model runs with other tensors, no other thread may look at its own ones: it would take them for the model's.
_LOCK = threading.RLock()
COMPUTED_AGAIN = "activations are computed once more (torch.utils.checkpoint), which must be switched off"


class Parts:
    """Modules, named parameters and buffers of a model, each once, from a single walk.

    What `modules`, `named_parameters` and `buffers` give, which make a generator for every module on the way.

    >>> list(Parts(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2))).parameters)
    ['0.weight', '0.bias', '2.weight', '2.bias']
    """

    def __init__(self, model: nn.Module) -> None:
        self.modules: list[nn.Module] = []
        self.parameters: dict[str, Tensor] = {}
        self.buffers: list[Tensor] = []
        with _LOCK:
            self._walk(model, "", set())

    def _walk(self, module: nn.Module, prefix: str, seen: set[int]) -> None:
        if id(module) in seen:
            return
        seen.add(id(module))
        self.modules.append(module)
        for name, p in module._parameters.items():
            if p is not None and id(p) not in seen:
                seen.add(id(p))
                self.parameters[prefix + name] = p
        for b in module._buffers.values():
            if b is not None and id(b) not in seen:
                seen.add(id(b))
                self.buffers.append(b)
        for name, child in module._modules.items():
            if child is not None:
                self._walk(child, f"{prefix}{name}.", seen)

    @property
    def device(self) -> torch.device:
        """Where the model is; one without parameters and buffers is on the CPU."""
        return next((t.device for t in [*self.parameters.values(), *self.buffers]), torch.device("cpu"))

    def buffer_copies(self, dtype: torch.dtype) -> dict[int, Tensor]:
        """For `standing_in`: buffers that the running model may write to, numbers in this dtype."""
        out = {}
        for b in self.buffers:
            out[id(b)] = b.detach().clone()
            if b.is_floating_point():
                out[id(b)] = out[id(b)].to(dtype)
        return out

    def check(self) -> None:
        """An `InputError` for models that other tensors cannot stand in."""
        if any(isinstance(module, torch.jit.ScriptModule) for module in self.modules):
            raise InputError("a compiled model cannot be scored: take the module that it was compiled from")
        device = self.device  # asked once: it lists all tensors
        for t in [*self.parameters.values(), *self.buffers]:
            if t.device != device:
                raise InputError(f"the model is on {device} and on {t.device}: move all of it to one device")
            if t.device.type not in devices.MEASURED_ON:
                raise InputError(
                    f"the model is on the device {t.device}: models are scored on {' or '.join(devices.MEASURED_ON)}, "
                    f"where sums can be in float64, so move it there"
                )
        for name, p in self.parameters.items():
            if not p.is_floating_point():
                kind = str(p.dtype).removeprefix("torch.")
                raise InputError(f"the parameter {name} is of type {kind}: only real numbers have gradients here")

    @contextmanager
    def evaluated(self) -> Iterator[None]:
        """`model.eval()` for a while; every module's own flag comes back."""
        with _LOCK:
            training = [module for module in self.modules if module.training]
            try:
                for module in training:
                    _set_training(module, False)
                yield
            finally:
                for module in training:
                    _set_training(module, True)

    @contextmanager
    def standing_in(self, values: Mapping[int, Tensor], *, spills: bool = False) -> Iterator[None]:
        """The model in evaluation, with values[id(t)] in the place of its parameter or buffer t; the tied stay tied.

        As `torch.func.functional_call`, which looks up every name on its own. Where saved tensors spill, the hooks that
        see to it stay, and whoever records looks out for the model's own.
        """
        old: list[tuple[dict[str, Any], str, Tensor]] = []
        self.check()
        with self.evaluated(), _eager(), _without_hooks(spills):
            try:
                for module in self.modules:
                    tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
                    for table in tables:
                        for name, t in table.items():
                            if id(t) in values:
                                old.append((table, name, t))
                                table[name] = values[id(t)]
                yield
            finally:
                for table, name, t in old:
                    table[name] = t


def _set_training(module: nn.Module, flag: bool) -> None:
    """`module.training = flag`, without torch's search for parameters of that name."""
    if "training" in vars(module):
        vars(module)["training"] = flag
    else:  # compiled modules keep it elsewhere
        module.training = flag


@contextmanager
def _eager() -> Iterator[None]:
    """What `torch.compile` has wrapped runs as it was written."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


@contextmanager
def _without_hooks(spills: bool) -> Iterator[None]:
    """A model that hooks into autograd's saved tensors, to compute them once more, would meet other functions then."""
    disable: Any = torch._C._autograd._saved_tensors_hooks_disable
    if spills or torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() is not None:
        yield
        return
    disable(COMPUTED_AGAIN, False)
    try:
        yield
    finally:
        torch._C._autograd._saved_tensors_hooks_enable()
