"""Watches a running forward pass and records what backward passes will need."""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary
from torch.utils._pytree import tree_flatten, tree_unflatten

from initio.autodiff import fused
from initio.autodiff.cells import CellUse
from initio.autodiff.channels import correlation, rows, second_moments
from initio.autodiff.layers import Geometry
from initio.autodiff.parts import COMPUTED_AGAIN
from initio.autodiff.switch import Layer, Memo, Motion, Recall, Switch, Use
from initio.autodiff.weighted import Keep, Weighted
from initio.errors import InputError


@dataclass(frozen=True)
class Purpose:
    """What a forward pass is recorded for, beside its value.

    Args:
        codes: note NASWOT's codes of every ReLU.
        fisher: keep what Fisher's sums are made of.
        features: note how the channels of batch norms, or else of layers, go together.
        frozen: batch statistics do not move with the direction either.
        shares: a value may stand for several equal ones, as long as nothing changes it in place.
        shares_relus: the same for ReLUs; sharing holds on to values that could wait on disk.
        plain: leave all but batch norm and dropout to autograd, for models that recorded functions disturb.
    """

    codes: bool = False
    fisher: bool = False
    features: bool = False
    frozen: bool = False
    shares: bool = True
    shares_relus: bool = True
    plain: bool = False


class Tangents:
    """Tangents beside their tensors; an entry dies with its tensor."""

    def __init__(self, only_differentiable: bool = False) -> None:
        self.entries: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        self.edges: set[tuple[Any, int]] = set()  # where tangents leave autograd's graph
        self.only_differentiable = only_differentiable

    def get(self, t: Tensor) -> Tensor | None:
        """The tangent of a tensor; None is zero."""
        entry = self.entries.get(id(t))
        if entry is None or entry[0]() is not t:
            return None
        return entry[1]

    def set(self, t: Tensor, tangent: Tensor | None) -> None:
        """Puts a tangent beside its tensor; what has no gradient, as under `no_grad`, stands still."""
        if tangent is None or (self.only_differentiable and not t.requires_grad):
            self.entries.pop(id(t), None)
            return
        self.edges.add((tangent.grad_fn, tangent.output_nr))
        key, entries = id(t), self.entries
        self.entries[key] = (weakref.ref(t, lambda _: entries.pop(key, None)), tangent)


@dataclass
class Notes:
    """What the forward pass found out."""

    unknown: set[str] = field(default_factory=set)  # parameters used by operations the fast path does not know
    operations: set[str] = field(default_factory=set)  # those operations
    hidden: set[str] = field(default_factory=set)  # nodes of autograd's graph that no torch function was seen to make
    mixing: set[str] = field(default_factory=set)  # those that might let rows of the batch see each other
    uses: Counter[str] = field(default_factory=Counter)  # how often a parameter takes part in a recorded layer
    batch_norms: int = 0
    kinks: int = 0  # ReLUs and their like
    codes: Tensor | None = None  # NASWOT's Σ over ReLUs of C Cᵀ + (1−C)(1−C)ᵀ
    scales: list[tuple[Tensor, float]] = field(default_factory=list)  # 1/√(v + ε) of batch norms, and ε
    features: list[Tensor] = field(default_factory=list)  # correlations of channels, (C, C), in float64
    cells: list[CellUse] = field(default_factory=list)  # in the order in which they ran

    @property
    def by_row(self) -> bool:
        """Whether every operation is known to treat each row of the batch on its own."""
        return not (self.unknown or self.hidden or self.mixing)


@dataclass(frozen=True)
class Rectified:
    """A ReLU that was computed already."""

    input: weakref.ref[Tensor]
    versions: tuple[int, int]
    out: Tensor
    codes: list[tuple[Any, Tensor]]  # the entry in `patterns`, if codes are noted


@dataclass(frozen=True)
class Watched:
    """A value that the model watches, with its tangent, and δ if an earlier pass left it."""

    value: Tensor
    tangent: Tensor | None
    memo: Memo | None


class SharedValueChangedError(Exception):
    """An operation in place met a value that stands for several ReLUs: record again without sharing."""


class CurvedError(Exception):
    """An operation that is not piecewise linear: a second pass must send δ back as well as δ̇."""


class NoTangentError(Exception):
    """An operation whose tangent cannot be had, or not be differentiated: second derivatives need another way."""


Handler = Callable[..., Any]


class Recorder(TorchFunctionMode):
    """Sends every torch function of a running forward pass to its handler (see `handlers.py`), or to autograd.

    Args:
        parameters: the model's, by name; those of the running pass, not copies.
        direction: v, by parameter name, where tangents are to be carried; a parameter without v stands still.
        handlers: for torch functions; one may return NotImplemented.
        purpose: what else is recorded.
        recall: what an earlier pass computed, or where this one leaves it.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], direction: Mapping[str, Tensor] | None,
        handlers: Mapping[Any, Handler], purpose: Purpose, recall: Recall | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.names = {id(p): name for name, p in parameters.items()}
        self.handlers, self.purpose, self.recall = handlers, purpose, recall
        self.dual, self.direction = direction is not None, direction or {}
        self.switch = Switch()
        self.tangents = Tangents(torch.is_grad_enabled())
        self.hooks: Any = None  # into autograd's saved tensors: those of `spill.py`
        self.nodes: set[Any] = set()  # of autograd's graph, made by functions that were seen
        self.watched: dict[int, Watched] = {}  # by identity of the value
        self.rectified: dict[int, Rectified] = {}  # by the identity of the input
        self.fixed: dict[int, weakref.ref[Tensor]] = {}  # values that an operation in place must not meet
        self.notes = Notes()
        self.patterns: list[tuple[Any, Tensor]] = []  # (graph node of a ReLU's output, its code matrix)
        self.features: list[tuple[Any, Tensor]] = []  # (graph node of a value, the correlations of its channels)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Dispatches on the function."""
        kwargs = kwargs or {}
        if _saved_tensor_hooks(False) != self.hooks:
            raise InputError(COMPUTED_AGAIN)
        if _inside_transform() is not None:  # torch.func: tensors of its own, which are no values of this pass
            return func(*args, **kwargs)
        handler = self.handlers.get(func)
        if handler is not None and not (args and id(args[0]) in self.names):  # handlers work on values
            out = handler(self, *args, **kwargs)
            if out is not NotImplemented:
                if not args or out is not args[0]:
                    self.nodes.add(out.grad_fn)
                return out
        return self.other(func, args, kwargs)

    def __enter__(self) -> Recorder:
        self.hooks = _saved_tensor_hooks(False)
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def forget(self) -> None:
        """Drops the tangents, and through them whole graphs, which would wait for the cycle collector."""
        self.tangents.entries.clear()
        self.tangents.edges.clear()
        self.nodes.clear()
        self.rectified.clear()
        self.patterns.clear()
        self.features.clear()

    # --- operations that nothing special is known about ----------------------------------------------------------

    def other(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs the function under autograd; marks parameters it reads; carries tangents by forward-mode derivatives."""
        name = getattr(func, "__name__", str(func))
        if name in ("__set__", "dim", "size", "__len__", "is_floating_point", "numel"):
            return func(*args, **kwargs)
        if name == "__get__":
            return self._property(func, args[0])
        if name == "register_hook" and self.dual:  # it would meet δ̇ in the place of δ
            raise NoTangentError(name)
        leaves, spec = tree_flatten((args, kwargs))
        if in_place(name) and leaves and self.is_fixed(leaves[0]):
            raise SharedValueChangedError
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        before = {t.grad_fn for t in tensors}
        read = {self.names[id(t)] for t in tensors if id(t) in self.names}
        tangents = [self.tangent(leaf) for leaf in leaves]
        if all(t is None for t in tangents):
            out = func(*args, **kwargs)
        else:
            out = self._with_tangents(func, name, leaves, spec, tangents, args, kwargs)
        if read and any(isinstance(o, Tensor) and o.requires_grad for o in tree_flatten(out)[0]):
            self.notes.unknown |= read
            self.notes.operations.add(name)
        self._account_for(out, before)
        return out

    def _account_for(self, out: Any, before: set[Any]) -> None:
        """Remembers the nodes that a function added to autograd's graph, between its inputs' nodes and its outputs'."""
        todo = [t.grad_fn for t in tree_flatten(out)[0] if isinstance(t, Tensor)]
        while todo:
            node = todo.pop()
            if node is not None and node not in before and node not in self.nodes:
                self.nodes.add(node)
                todo += [n for n, _ in node.next_functions]

    def _property(self, func: Any, t: Tensor) -> Any:
        """`t.shape`, `t.T` and their like; those that are tensors with a gradient are linear."""
        out = func(t)
        if isinstance(out, Tensor) and out is not t and out.requires_grad:
            self._account_for(out, {t.grad_fn})
            if id(t) in self.names:
                self.notes.unknown.add(self.names[id(t)])
                self.notes.operations.add("a property")
            tangent = self.tangent(t)
            if tangent is not None:
                self.tangents.set(out, func(tangent))
        return out

    def tangent(self, leaf: Any) -> Tensor | None:
        """That of a value, or the direction at a parameter, which is a constant; None is zero."""
        if not (self.dual and isinstance(leaf, Tensor)):
            return None
        tangent = self.tangents.get(leaf)
        if tangent is None and (name := self.name(leaf)) in self.direction:
            tangent = self.direction[name].detach()
        return tangent

    def _with_tangents(
        self, func: Any, name: str, leaves: list[Any], spec: Any, tangents: list[Tensor | None], args: Any, kwargs: Any
    ) -> Any:
        if in_place(name):
            return self._changed(func, args, kwargs, tangents)
        if func in _LINEAR and (tangent := _linear_tangent(func, args, kwargs, leaves, spec, tangents)) is not None:
            out = func(*args, **kwargs)
            self._attach(out, tangent)
            return out
        if name not in _DIFFERENTIABLE_TANGENTS:
            out = func(*args, **kwargs)
            if any(isinstance(t, Tensor) and t.requires_grad for t in tree_flatten(out)[0]):
                raise NoTangentError(name)
            return out  # a constant
        if self.recall is not None and func not in _PIECEWISE_LINEAR:
            raise CurvedError(name)
        spots = [i for i, t in enumerate(tangents) if t is not None]

        def run(*values: Tensor) -> Any:
            filled = list(leaves)
            for spot, value in zip(spots, values, strict=True):
                filled[spot] = value
            a, k = tree_unflatten(filled, spec)
            return func(*a, **k)

        primals = tuple(leaves[i] for i in spots)
        moved = tuple(t for t in tangents if t is not None)
        forward_mode()
        try:
            out, tangent = torch.func.jvp(run, primals, moved)[:2]
        except (RuntimeError, NotImplementedError):
            raise NoTangentError(name) from None
        for o, t in zip(tree_flatten(out)[0], tree_flatten(tangent)[0], strict=True):
            if isinstance(o, Tensor) and o.is_floating_point():
                self._attach(o, t)
        return out

    def _changed(self, func: Any, args: Any, kwargs: Any, tangents: list[Tensor | None]) -> Any:
        """A sum in place; tangents of other changes, and of values that a changed view is a part of, are lost."""
        if (
            func not in _ADDITIVE_IN_PLACE
            or kwargs
            or not all(isinstance(a, Tensor) for a in args)
            or args[0]._is_view()
        ):
            raise NoTangentError(func.__name__)
        parts = [torch.zeros_like(a) if t is None else t for a, t in zip(args, tangents, strict=True)]
        tangent = _ADDITIVE_IN_PLACE[func](*parts)
        out = func(*args)
        self.tangents.set(out, tangent)
        return out

    def _attach(self, out: Any, tangent: Any) -> None:
        for o, t in zip(tree_flatten(out)[0], tree_flatten(tangent)[0], strict=True):
            self.tangents.set(o, t)

    # --- what the handlers share ---------------------------------------------------------------------------------

    def is_value(self, t: Any) -> bool:
        """Whether it is a tensor of the running pass and not a parameter."""
        return isinstance(t, Tensor) and not self.name(t)

    def name(self, t: Tensor | None) -> str:
        """The parameter's name, or nothing."""
        return self.names.get(id(t), "")

    def knows(self, *parameters: Tensor | None) -> bool:
        """Whether all of these are parameters of the model, or missing."""
        return all(p is None or self.name(p) for p in parameters)

    def use(self, weight: Tensor | None, bias: Tensor | None, geometry: Geometry | None = None) -> Use:
        """The record of one use of these parameters."""
        names = self.name(weight), self.name(bias)
        self.notes.uses.update(name for name in names if name)
        shape: tuple[int, ...] = ()
        if weight is not None:
            shape = tuple(weight.shape)
        if geometry is not None and self.recall is not None:
            geometry = replace(geometry, free=True)
        v, u = (self.direction.get(name) for name in names)
        motion = Motion(v, u, v is not None and v is weight, u is not None and u is bias)
        return Use(Layer(*names, geometry, shape), self.switch, self.dual, motion, self.memo())

    def memo(self) -> Memo | None:
        """What an earlier pass left here, or where to leave it."""
        if self.recall is None:
            return None
        return self.recall.take()

    def run(self, function: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, use: Use, *rest: Any) -> Any:
        """The value of a recorded function; its tangent is put beside it."""
        out = function.apply(x, self.tangents.get(x), weight, bias, use, *rest)
        if not self.dual:
            return out
        value, tangent = out
        self.tangents.set(value, tangent)
        return value

    def weighted(self, x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Any:
        """A convolution or linear layer whose weights are parameters of the model."""
        if not self.name(weight) or not self.knows(bias) or self.tangents.get(weight) is not None:
            return NotImplemented
        keep: Keep = "no"
        if self.purpose.fisher:
            keep = "yes" if self.purpose.shares else "copy"
        out = self.run(Weighted, x, weight, bias, self.use(weight, bias, geometry), keep)
        if keep == "yes":
            self.fix(out)
        if self.purpose.features and not self.notes.batch_norms:
            self.features.append((out.grad_fn, correlation(rows(out, bool(geometry.stride)))))
        return out

    def normalised(self, out: Tensor, values: Callable[[], Tensor]) -> None:
        """Notes a batch norm and, if asked, how its normalised values go together; layers no longer stand for them."""
        self.notes.batch_norms += 1
        if not self.purpose.features:
            return
        if self.notes.batch_norms == 1:
            self.features.clear()
        self.features.append((out.grad_fn, second_moments(rows(values().detach()))))

    def fix(self, t: Tensor) -> None:
        """Remembers a value that is needed as it is."""
        self.fixed[id(t)] = weakref.ref(t)

    def is_fixed(self, t: Any) -> bool:
        """Whether it is such a value."""
        return id(t) in self.fixed and self.fixed[id(t)]() is t

    def kink(self, x: Tensor, out: Tensor) -> None:
        """Notes a ReLU and, if asked, its NASWOT codes."""
        self.notes.kinks += 1
        if self.purpose.codes:
            if x.ndim:
                K = code_matrix(x.unsqueeze(1) if x.ndim == 1 else x)
            else:
                K = torch.zeros(0, 0, device=x.device)  # no rows
            self.patterns.append((out.grad_fn, K))


def watch(t: Tensor) -> Tensor:
    """t under a name of its own, whose tangent and gradients the tape can be asked for; t itself where none records.

    Zeros are watched too: added to a value, they have its gradients.
    """
    if not has_torch_function_unary(t):
        return t
    return handle_torch_function(watch, (t,), t)


def code_matrix(x: Tensor) -> Tensor:
    """C Cᵀ + (1−C)(1−C)ᵀ for the binary codes C = [x > 0] of one ReLU: how many units two inputs share.

    >>> code_matrix(torch.tensor([[1.0, -1.0, 2.0], [1.0, 1.0, 1.0]]))
    tensor([[3., 2.],
            [2., 3.]], dtype=torch.float64)
    """
    x = x.detach()
    if x[0].numel() % 64 == 0 and (lib := fused.usable(x)):
        return fused.agreement(lib, x)
    C = (x > 0).to(torch.float32)
    if C.ndim == 4:
        C = C.permute(0, 2, 3, 1)
    C = C.reshape(len(C), -1)
    both = (C @ C.T).double()  # whole numbers below 2^24: exact
    n = both.diagonal()
    return 2 * both - n[:, None] - n[None, :] + C.shape[1]


def _linear_tangent(
    func: Any, args: Any, kwargs: Any, leaves: list[Any], spec: Any, tangents: list[Tensor | None]
) -> Any:
    """A linear function of the tangents, which is what a linear function's tangent is; None if it is not so simple."""
    if func in _ADDITIVE or func is torch.cat:
        if func in _ADDITIVE and not (len(args) > 1 and isinstance(args[0], Tensor) and isinstance(args[1], Tensor)):
            return None
        filled = list(leaves)
        for i, (leaf, tangent) in enumerate(zip(leaves, tangents, strict=True)):
            if tangent is not None:
                filled[i] = tangent
            elif isinstance(leaf, Tensor):
                filled[i] = torch.zeros_like(leaf)
        a, k = tree_unflatten(filled, spec)
        return func(*a, **k)
    if tangents[0] is None or any(t is not None for t in tangents[1:]) or args[0] is not leaves[0]:
        return None
    return func(tangents[0], *args[1:], **kwargs)


@lru_cache(maxsize=1)
def forward_mode() -> None:
    """Loads torch's forward-mode derivatives, which warn of torch's own use of its deprecated parts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.func.jvp(torch.sin, (torch.zeros(()),), (torch.ones(()),))


def in_place(name: str) -> bool:
    """Whether a torch function changes its first argument, by its name.

    >>> [in_place(name) for name in ("add_", "__iadd__", "add", "__add__", "__invert__", "__index__")]
    [True, True, False, False, False, False]
    """
    if name.startswith("__"):
        return name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
    return name.endswith("_")


_saved_tensor_hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks
_inside_transform = torch._C._functorch.peek_interpreter_stack
# Functions whose forward-mode derivative is itself differentiable, and rightly so: each is tested against a double
# backward. Torch's derivatives of others hold on to constants (statistics, factorisations), and are wrong in silence.
_SMOOTH = """
    __rdiv__ abs add addcmul addmm affine amax amin baddbmm bmm chunk clamp clamp_min clone cos cumsum div einsum elu
    exp expand flip gather gelu group_standardised hardswish hardtanh index_select interpolate leaky_relu linear log
    log_softmax logsumexp masked_fill matmul max_pool1d max_pool2d max_pool3d mish mm mul narrow neg pad pixel_shuffle
    pow prelu reciprocal relu relu6 repeat rsqrt rsub select sigmoid silu sin softmax softplus split sqrt square squeeze
    stack standardised sub tanh unbind unflatten unsqueeze where
    """
_DIFFERENTIABLE_TANGENTS = frozenset(_SMOOTH.split())
_PIECEWISE_LINEAR = {F.max_pool2d, F.pad, F.leaky_relu, F.relu6, torch.zeros_like, torch.cat}
_ADDITIVE = {
    torch.add,
    torch.Tensor.add,
    torch.Tensor.__add__,
    torch.sub,
    torch.Tensor.sub,
    torch.Tensor.__sub__,
}
_ADDITIVE_IN_PLACE = {
    torch.Tensor.add_: torch.add,
    torch.Tensor.__iadd__: torch.add,
    torch.Tensor.sub_: torch.sub,
    torch.Tensor.__isub__: torch.sub,
}
_LINEAR = {
    *_ADDITIVE,
    F.avg_pool1d, F.avg_pool2d, F.avg_pool3d,
    F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d,
    torch.mean, torch.Tensor.mean, torch.sum, torch.Tensor.sum,
    torch.flatten, torch.Tensor.flatten, torch.reshape, torch.Tensor.reshape, torch.Tensor.view,
    torch.permute, torch.Tensor.permute, torch.transpose, torch.Tensor.transpose,
    torch.Tensor.contiguous, torch.Tensor.__getitem__, torch.cat,
}  # fmt: skip
