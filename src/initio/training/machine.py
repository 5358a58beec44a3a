"""Where a training computes: one process in full precision, or several, or mixed precision, through Lightning Fabric.

The loop of `fit` knows a machine and nothing of devices. Fabric is imported only where more than one plain process is
asked for; it is the extra `initio[train]`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessRaisedException

from initio.errors import InputError
from initio.networks.build import GraphModule
from initio.networks.shared import SharedNetwork
from initio.training.settings import FABRIC_PRECISION, MachineSettings

N = TypeVar("N", bound=nn.Module)


@dataclass(frozen=True, eq=False)
class PlainMachine:
    """One process, full precision: torch as it is."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    threads: int = 1
    rank: int = 0
    world: int = 1  # processes

    def setup(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """What the loop calls in their place."""
        return network, optimizer

    def arithmetic(self) -> AbstractContextManager[Any]:
        """Around every forward pass."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """The gradient."""
        loss.backward()  # type: ignore[no-untyped-call]

    def clip(self, network: nn.Module, optimizer: torch.optim.Optimizer, norm: float) -> None:
        """Shortens the gradient to at most this norm."""
        nn.utils.clip_grad_norm_(network.parameters(), norm)

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        return values

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, torch has the asked number of threads; behind it, what it had before."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@dataclass(frozen=True, eq=False)
class FabricMachine(PlainMachine):
    """Several processes or mixed precision; each process has its share of every batch."""

    fabric: Any = None

    def setup(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Wrapped, so that gradients are averaged over the processes."""
        wrapped, stepped = self.fabric.setup(network, optimizer)
        return wrapped, stepped

    def arithmetic(self) -> AbstractContextManager[Any]:
        """The precision."""
        return self.fabric.autocast()  # type: ignore[no-any-return]

    def backward(self, loss: Tensor) -> None:
        """The gradient, scaled where the precision needs it."""
        self.fabric.backward(loss)

    def clip(self, network: nn.Module, optimizer: torch.optim.Optimizer, norm: float) -> None:
        """Shortens the gradient, once it is unscaled."""
        self.fabric.clip_gradients(network, optimizer, max_norm=norm, error_if_nonfinite=False)

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        summed: Tensor = self.fabric.all_reduce(values, reduce_op="sum")
        return summed


Work = Callable[[PlainMachine], None]


def run_on(settings: MachineSettings, work: Work) -> None:
    """Runs `work` with a machine: here, or in every process that is asked for; then it must be picklable.

    Under torchrun the processes are there already, on as many machines as torchrun was started on.
    """
    if settings.plain:
        work(PlainMachine(torch.device(settings.chosen), settings.threads))
        return
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise InputError(
            "several processes and mixed precision need Lightning Fabric: pip install 'initio[train]'"
        ) from None
    strategy, started = "auto", "TORCHELASTIC_RUN_ID" in os.environ
    if settings.nodes > 1 and not started:
        raise InputError("several nodes need torchrun: torchrun --nnodes 2 --nproc-per-node 1 -m initio train ...")
    if settings.processes * settings.nodes > 1:
        strategy = "ddp" if started else "ddp_spawn"
    fabric: Any = Fabric(
        accelerator=settings.chosen,
        devices=settings.processes,
        num_nodes=settings.nodes,
        strategy=strategy,
        precision=FABRIC_PRECISION[settings.precision],
    )
    if strategy == "ddp_spawn":
        try:
            fabric.launch(
                partial(_in_process, threads=settings.threads, work=work)
            )  # as an argument, it would be copied
        except ProcessRaisedException as error:  # its last line is what was raised there
            name, _, sentence = str(error).strip().rpartition("\n")[2].partition(": ")
            if name.rpartition(".")[2] == InputError.__name__:
                raise InputError(sentence) from None
            raise
        return
    fabric.launch()
    _in_process(fabric, settings.threads, work)


def _in_process(fabric: Any, threads: int, work: Work) -> None:
    work(FabricMachine(fabric.device, threads, fabric.global_rank, fabric.world_size, fabric))


def laid_out(network: N) -> N:
    """The same network with its weights in the order in memory that is fastest to train with."""
    if _may_be_channels_last(network):
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _may_be_channels_last(network: nn.Module) -> bool:
    """Channels last is faster, up to 1.8 times; your own modules might `view` and are left as they are.

    Torch 2.13 can write out of bounds in the backward pass of 1x1 convolutions with a stride and few channels.
    """
    return isinstance(network, GraphModule | SharedNetwork) and not any(
        isinstance(module, nn.Conv2d) and max(module.stride) > 1 and max(module.kernel_size) == 1
        for module in network.modules()
    )
