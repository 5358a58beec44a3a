"""Slow, obviously right oracles: one sample at a time, stock autograd, float64, for tests and benchmarks."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.overrides import TorchFunctionMode

from initio.networks.build import cells_of

CONVOLUTION = nn.Conv1d | nn.Conv2d | nn.Conv3d


def double(model: nn.Module) -> nn.Module:
    """A float64 copy in evaluation mode, but with norms that take the statistics of their input."""
    model = copy.deepcopy(model).double().eval().requires_grad_()
    for module in model.modules():
        if isinstance(module, _NormBase):
            module.train()
    return model


def frozen(model: nn.Module, x: Tensor) -> nn.Module:
    """A copy in evaluation mode whose running statistics are those of the batch."""
    model = double(model)
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]

    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        z = inputs[0].detach()
        dims = [d for d in range(z.ndim) if d != 1]
        module.batch_statistics = (z.mean(dims), z.var(dims, unbiased=False))

    hooks = [m.register_forward_pre_hook(keep) for m in norms]
    model(x)
    for hook in hooks:
        hook.remove()
    for m in norms:
        m.track_running_stats = True
        m.running_mean, m.running_var = m.batch_statistics
        m.eval()
    return model


def flat_gradient(scalar: Tensor, parameters: list[Tensor], retain: bool = False) -> Tensor:
    out = torch.autograd.grad(scalar, parameters, allow_unused=True, retain_graph=retain)
    parts = [torch.zeros_like(p) if g is None else g for g, p in zip(out, parameters, strict=True)]
    return torch.cat([p.flatten() for p in parts])


def theta_of(model: nn.Module, which: str = "all") -> list[nn.Parameter]:
    return [p for p in model.parameters() if which == "all" or p.ndim >= 2]


def scales(parameters: list[nn.Parameter], parameterisation: str) -> Tensor:
    """√(1/fan_in) for every entry of every weight in the ntk parameterisation, else ones."""
    parts = []
    for p in parameters:
        s = 1 / math.sqrt(p[0].numel()) if parameterisation == "ntk" and p.ndim >= 2 else 1.0
        parts.append(torch.full((p.numel(),), s, dtype=torch.float64))
    return torch.cat(parts)


def targets(f: Tensor, y: Tensor, reduction: str) -> list[Callable[[Tensor, int], Tensor]]:
    """Scalars of one sample's outputs that the kernel is made of."""
    if reduction == "label":
        return [lambda out, i: out[y[i]] if f.shape[1] > 1 else out[0]]
    if reduction == "sum":
        return [lambda out, i: out.sum()]
    return [lambda out, i, k=k: out[k] for k in range(f.shape[1])]


def kernel(
    model: nn.Module, x: Tensor, y: Tensor, reduction: str = "label", batch_norm: str = "frozen",
    parameterisation: str = "standard", which: str = "all",
) -> np.ndarray:  # fmt: skip
    """The m x m kernel, one gradient at a time."""
    x = x.double()
    if batch_norm == "hooked":
        return hooked_kernel(model, x, y, reduction, parameterisation)
    net = frozen(model, x) if batch_norm == "frozen" else double(model)
    parameters = theta_of(net, which)
    scale = scales(parameters, parameterisation)
    f = net(x)
    K = torch.zeros(len(x), len(x), dtype=torch.float64)
    for target in targets(f, y, reduction):
        rows = []
        for i in range(len(x)):
            out = net(x[i : i + 1])[0] if batch_norm == "frozen" else f[i]
            rows.append(flat_gradient(target(out, i), parameters, retain=True) * scale)
        J = torch.stack(rows)
        K += J @ J.T
    return K.detach().numpy()


def full_kernel(model: nn.Module, x: Tensor) -> np.ndarray:
    """mn x mn, statistics frozen."""
    x = x.double()
    net = frozen(model, x)
    parameters = theta_of(net)
    rows = []
    for i in range(len(x)):
        out = net(x[i : i + 1])[0]
        rows += [flat_gradient(out[k], parameters, retain=True) for k in range(len(out))]
    J = torch.stack(rows)
    return (J @ J.T).detach().numpy()


def hooked_kernel(model: nn.Module, x: Tensor, y: Tensor, reduction: str, parameterisation: str) -> np.ndarray:
    """Layer inputs and output gradients of one backward of Σ_i f_i; then stock autograd for each sample and layer."""
    net = double(model)
    layers = [m for m in net.modules() if isinstance(m, CONVOLUTION | nn.Linear)]
    seen: list[tuple[nn.Module, Tensor, Tensor]] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        output.retain_grad()
        seen.append((module, inputs[0].detach(), output))

    hooks = [m.register_forward_hook(keep) for m in layers]
    f = net(x)
    for hook in hooks:
        hook.remove()
    K = torch.zeros(len(x), len(x), dtype=torch.float64)
    for target in targets(f, y, reduction):
        for _, _, output in seen:
            output.grad = None
        total = sum(target(f[i], i) for i in range(len(x)))
        total.backward(retain_graph=True)
        for module, a, output in seen:
            if output.grad is None:
                continue
            rows = []
            for i in range(len(x)):
                weight = module.weight.detach().clone().requires_grad_()
                z = torch.func.functional_call(module, {"weight": weight}, (a[i : i + 1],))
                (g,) = torch.autograd.grad((z * output.grad[i : i + 1]).sum(), weight)
                rows.append(g.flatten())
            J = torch.stack(rows)
            K += J @ J.T / (module.weight[0].numel() if parameterisation == "ntk" else 1)
    return K.numpy()


def loss_gradients(model: nn.Module, x: Tensor, y: Tensor, which: str = "all") -> tuple[list[Tensor], list[Tensor]]:
    """(g, Hθ) by double backward."""
    net = double(model)
    parameters = theta_of(net, which)
    with sdpa_kernel(SDPBackend.MATH):  # the others cannot be differentiated twice
        loss = F.cross_entropy(net(x.double()), y)
    g = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    g = [torch.zeros_like(p) if t is None else t for t, p in zip(g, parameters, strict=True)]
    S = sum((t * p.detach()).sum() for t, p in zip(g, parameters, strict=True))
    Ht = torch.autograd.grad(S, parameters, allow_unused=True)
    Ht = [torch.zeros_like(p) if t is None else t for t, p in zip(Ht, parameters, strict=True)]
    return [t.detach() for t in g], [t.detach() for t in Ht]


def metric_values(model: nn.Module, x: Tensor, y: Tensor, which: str = "weights") -> dict[str, float]:
    """The first- and second-order metrics of the batch loss, the kernel metrics and the rest, all in float64."""
    x = x.double()
    out = first_order(model, x, y, which) | {
        "grasp": grasp(model, x, y, which),
        "nasi_sum": nasi_sum(model, x, y, which),
        "grasp_printed": grasp_printed(model, x, y, which),
        "fisher": fisher(model, x, y),
        "synflow": synflow(model, tuple(x.shape[1:])),
        "jacob_cov": jacob_cov(model, x),
        "zico": zico(model, x, y),
    }
    out |= kernel_metrics(model, x, y, which) | channel_metrics(model, x) | cell_metrics(model, x)
    codes = naswot(model, x)
    return out if codes is None else out | {"naswot": codes}


def first_order(model: nn.Module, x: Tensor, y: Tensor, which: str) -> dict[str, float]:
    """What one gradient of the batch loss gives."""
    net = double(model)
    theta = theta_of(net, which)
    loss = F.cross_entropy(net(x.double()), y)
    g = list(flat_gradient(loss, theta).split([p.numel() for p in theta])) if loss.requires_grad else []
    pairs = [(p.detach().flatten(), t) for p, t in zip(theta, g, strict=False)]
    return {
        "grad": math.sqrt(sum(float((t**2).sum()) for t in g)),
        "grad_norm": sum(float(t.norm()) for p, t in zip(theta, g, strict=False) if p.ndim >= 2),
        "snip": sum(float((p * t).abs().sum()) for p, t in pairs),
        "snip_printed": abs(sum(float((p * t).sum()) for p, t in pairs)),
        "nasi": sum(float((t**2).sum()) for t in g),
    }


def grasp(model: nn.Module, x: Tensor, y: Tensor, which: str) -> float:
    """−⟨g, Hθ⟩."""
    g, Ht = loss_gradients(model, x, y, which)
    return -sum(float((a * b).sum()) for a, b in zip(g, Ht, strict=True))


def kernel_metrics(model: nn.Module, x: Tensor, y: Tensor, which: str) -> dict[str, float]:
    """Those of the frozen kernel of the labels' logits."""
    K = kernel(model, x, y, which=which)
    eigenvalues = np.linalg.eigvalsh(K)
    return {
        "trace": math.sqrt(np.trace(K) / len(x)),
        "kappa": float(eigenvalues[-1] / eigenvalues[0]) if eigenvalues[0] else math.inf,
        "lambda_min": float(eigenvalues[0]),
        "eigen": float(np.trace(K) / len(x)),
        "knas": float(K.mean()),
    }


def nasi_sum(model: nn.Module, x: Tensor, y: Tensor, which: str) -> float:
    net = frozen(model, x)
    theta = theta_of(net, which)
    total = 0.0
    for i in range(len(x)):
        loss = F.cross_entropy(net(x[i : i + 1]), y[i : i + 1])
        total += float((flat_gradient(loss, theta) ** 2).sum())
    return total / math.sqrt(2)


def grasp_printed(model: nn.Module, x: Tensor, y: Tensor, which: str) -> float:
    net = frozen(model, x)
    theta = theta_of(net, which)
    total = 0.0
    for i in range(len(x)):
        with sdpa_kernel(SDPBackend.MATH):
            loss = F.cross_entropy(net(x[i : i + 1]), y[i : i + 1])
        g = torch.autograd.grad(loss, theta, create_graph=True, allow_unused=True)
        parts = [(t, p) for t, p in zip(g, theta, strict=True) if t is not None]
        S = sum(((t * p.detach()).sum() for t, p in parts), torch.zeros(()))  # ∇ of it is H θ
        Ht = torch.autograd.grad(S, theta, allow_unused=True)
        total += sum(
            float((t.detach() * h).sum()) for t, h in zip(g, Ht, strict=True) if t is not None and h is not None
        )
    return abs(total) / len(x)


class _Outputs(TorchFunctionMode):
    """Keeps the outputs of convolutions and linear layers, also where a function is called and no module."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[bool, Tensor, Tensor]] = []

    def __torch_function__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        out = func(*args, **(kwargs or {}))
        convolution = func in (torch.conv1d, torch.conv2d, torch.conv3d)
        if (func is F.linear or convolution) and isinstance(args[1], nn.Parameter) and out.requires_grad:
            out.retain_grad()
            self.kept.append((convolution, args[1], out))
            return out.clone()  # what follows may work in place
        return out


def fisher(model: nn.Module, x: Tensor, y: Tensor) -> float:
    net, layers = double(model), _Outputs()
    with layers:
        f = net(x.double())
    F.cross_entropy(f, y).backward()
    total = 0.0
    for convolution, weight, z in layers.kept:
        if z.grad is None:
            continue
        product = z * z.grad
        if not convolution:
            product = product.movedim(-1, 1)
        product = product.flatten(2).sum(2) if product.ndim > 2 else product
        per_channel = (product**2).mean(0) / 2
        total += sum(float(per_channel[c].detach()) * weight[c].numel() for c in range(len(per_channel)))
    return total


def synflow(model: nn.Module, shape: tuple[int, ...]) -> float:
    net = double(model).eval()
    with torch.no_grad():
        for t in [*net.parameters(), *net.buffers()]:  # as published: all that a state has
            t.abs_()
    for name, module in list(net.named_modules()):
        if isinstance(module, _BatchNorm):
            parent = net.get_submodule(name.rpartition(".")[0]) if "." in name else net
            setattr(parent, name.rpartition(".")[2], nn.Identity())
    net(torch.ones(1, *shape, dtype=torch.float64)).sum().backward()
    total = sum(
        float((p.detach() * p.grad).abs().sum()) for p in net.parameters() if p.grad is not None and p.ndim >= 2
    )
    return math.log(total) if total else -math.inf


def jacob_cov(model: nn.Module, x: Tensor) -> float:
    x = x.double().clone().requires_grad_()
    (J,) = torch.autograd.grad(double(model)(x).sum(), x)
    with np.errstate(invalid="ignore"):
        C = np.corrcoef(J.flatten(1).numpy())
    if not np.isfinite(C).all():
        return math.nan  # a constant row
    v = np.linalg.eigvalsh(C)
    return float(-np.sum(np.log(v + 1e-5) + 1 / (v + 1e-5)))


class _Codes(TorchFunctionMode):
    """Collects the signs of what ReLUs meet, also where a function is called and no module."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[np.ndarray] = []

    def __torch_function__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        relus = (F.relu, torch.relu, Tensor.relu, F.leaky_relu, F.relu6)
        if func in relus and not isinstance(args[0], nn.Parameter):
            self.found.append(args[0].detach().flatten(1).numpy() > 0)
        return func(*args, **(kwargs or {}))


def naswot(model: nn.Module, x: Tensor) -> float | None:
    K = np.zeros((len(x), len(x)))
    codes = _Codes()
    with codes:
        double(model)(x.double())
    if not codes.found:
        return None
    for C in codes.found:
        for i in range(len(x)):
            for j in range(len(x)):
                K[i, j] += (C[i] == C[j]).sum()
    return float(np.linalg.slogdet(K)[1])


# --- channels, cells and parts of the batch --------------------------------------------------------------------------


class _Values(TorchFunctionMode):
    """Keeps what batch norms meet, with their ε, and what convolutions and linear layers were called with and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.normed: list[tuple[Tensor, float, Tensor]] = []
        self.layers: list[tuple[Callable[..., Tensor], tuple, dict, Tensor]] = []

    def __torch_function__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func is F.batch_norm and out.requires_grad:
            out.retain_grad()
            self.normed.append((args[0].detach(), args[7] if len(args) > 7 else kwargs.get("eps", 1e-5), out))
            return out.clone()
        layer = func in (F.linear, torch.conv1d, torch.conv2d, torch.conv3d)
        if layer and isinstance(args[1], nn.Parameter) and out.requires_grad:
            out.retain_grad()
            self.layers.append((func, args, kwargs, out))
            return out.clone()  # what follows may work in place
        return out


def channel_metrics(model: nn.Module, x: Tensor) -> dict[str, float]:
    """`near` by singular values, `meco` by eigenvalues, of the normalised values as matrices (rows, channels)."""
    seen = _Values()
    with seen:
        f = double(model)(x.double())
    if not f.isfinite().all():
        raise ValueError("no numbers")
    f.sum().backward()
    matrices = []
    for z, eps, out in seen.normed:
        if out.grad is None:
            continue  # it does not reach the output
        Z = z.transpose(0, 1).flatten(1).numpy().T
        matrices.append((Z - Z.mean(0)) / np.sqrt(Z.var(0) + eps))
    for func, _, _, out in seen.layers if not seen.normed else ():
        if out.grad is None:
            continue
        Z = out.detach() if func is F.linear else out.detach().movedim(1, -1)
        Z = Z.reshape(-1, Z.shape[-1]).numpy()
        constant = np.ptp(Z, axis=0) <= 1e-14 * np.abs(Z).max(axis=0)
        matrices.append(np.where(constant, 0.0, (Z - Z.mean(0)) / np.where(constant, 1.0, Z.std(0))))
    if not matrices:
        raise ValueError("no values")
    near = meco = 0.0
    for X in matrices:
        s = np.linalg.svd(X, compute_uv=False)
        p = s[s > 1e-7 * s.max()] / s[s > 1e-7 * s.max()].sum()
        near += float(np.exp(-np.sum(p * np.log(p)))) if s.max() > 0 else 0.0
        meco += float(np.linalg.eigvalsh(X.T @ X / len(X))[0])
    return {"near": near, "meco": meco}


def cell_metrics(model: nn.Module, x: Tensor, seed: int = 0) -> dict[str, float]:
    """AZ-NAS's three, every cell run once more on its own."""
    net = double(model)
    runs: list[tuple[nn.Module, tuple, Tensor]] = []
    hooks = [c.register_forward_hook(lambda cell, args, out: runs.append((cell, args, out))) for c in cells_of(net)]
    net(x.double().clone().requires_grad_())
    for hook in hooks:
        hook.remove()
    if not runs:
        return {}
    features = [runs[0][1][-1], *(out for _, _, out in runs)]
    entropies = []
    for feature in features:
        F_ = feature.detach().transpose(0, 1).flatten(1).numpy()
        p = np.linalg.eigvalsh(np.atleast_2d(np.cov(F_)))
        p = p[p > 1e-12 * p.max()] / p[p > 1e-12 * p.max()].sum()
        entropies.append(float(-np.sum(p * np.log(p))))
    scores = []
    for cell, args, out in runs:
        values = {id(a): a.detach() for a in args}  # a value that enters twice is one
        entering = [values[id(a)] for a in args]
        entering[-1].requires_grad_()
        draw = torch.randint(0, 2, out.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8)
        g_out = 2.0 * draw.double() - 1
        (g_in,) = torch.autograd.grad(cell(*entering), entering[-1], g_out, allow_unused=True)
        scores.append(_trainability(torch.zeros_like(entering[-1]) if g_in is None else g_in, g_out))
    return {
        "expressivity": sum(entropies),
        "progressivity": min(b - a for a, b in itertools.pairwise(entropies)),
        "trainability": sum(scores) / len(scores),
    }


def _trainability(g_in: Tensor, g_out: Tensor) -> float:
    """2 − s − 1/(s + 1e-6), the mean of outer products taken one position at a time."""
    if g_in.shape == g_out.shape and bool((g_in == g_out).all()):
        return -math.inf
    if g_in.ndim == 2:
        g_in, g_out = g_in[..., None, None], g_out[..., None, None]
    side = g_out.shape[2]
    step = -(-g_in.shape[2] // side)
    wide = torch.zeros(*g_in.shape[:2], step * side, step * side, dtype=torch.float64)
    wide[:, :, : g_in.shape[2], : g_in.shape[3]] = g_in
    M = torch.zeros(g_in.shape[1] * step**2, g_out.shape[1], dtype=torch.float64)
    for row in range(side):
        for column in range(side):
            square = wide[:, :, step * row : step * (row + 1), step * column : step * (column + 1)]
            M += square.flatten(1).T @ g_out[:, :, row, column]
    s = float(np.linalg.svd((M / (len(g_out) * side**2)).numpy(), compute_uv=False)[0])
    return 2 - s - 1 / (s + 1e-6)


def zico(model: nn.Module, x: Tensor, y: Tensor, parts: int = 4) -> float:
    """Every layer's gradient from its own inputs and output gradients, one part of the rows at a time."""
    net, seen = double(model), _Values()
    with seen:
        f = net(x.double())
    if len(x) < parts or not f.isfinite().all():
        raise ValueError("no parts")
    F.cross_entropy(f, y).backward()
    gradients: dict[nn.Parameter, Tensor] = {}
    for func, args, kwargs, out in seen.layers:
        if out.grad is None:
            continue
        rows, found = len(args[0]), []
        for k in range(parts):
            part = slice(rows * k // parts, rows * (k + 1) // parts)
            weight = args[1].detach().clone().requires_grad_()
            z = func(args[0][part].detach(), weight, *args[2:], **kwargs)
            found.append(torch.autograd.grad((z * out.grad[part]).sum(), weight)[0])
        gradients[args[1]] = gradients.get(args[1], torch.zeros(())) + torch.stack(found)
    if not gradients:
        raise ValueError("no layers")
    total = 0.0
    for g in gradients.values():
        deviation = g.std(0, correction=0)
        moves = deviation > 0
        if moves.any():
            total += math.log(float((g.abs().mean(0)[moves] / deviation[moves]).sum()))
    return total
