"""Torch operations, each on values and on a parameter of a small network."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tests.anymodule.cases import EVERY, Case, ImageHost, on_images, on_values

_PER_SAMPLE = ("trace", "kappa", "lambda_min", "eigen", "knas", "nasi_sum", "grasp_printed")
_FLAGGED = {
    "linear_of_parameter": ("fisher", "zico", "near", "meco"),  # a layer that is no layer of the batch
    "logcumsumexp": ("grasp_printed",),  # not a number
    "masked_scatter": _PER_SAMPLE,  # takes the values of other samples
}

# --- one argument: op(h) @ op(w), both moved into the operation's domain ----------------------------------------------


def _any(t: Tensor) -> Tensor:
    return t


def _unit(t: Tensor) -> Tensor:
    return 0.1 + 0.8 * torch.sigmoid(t)


def _positive(t: Tensor) -> Tensor:
    return 0.3 + t.square()


def _large(t: Tensor) -> Tensor:
    return 1.5 + t.square()


_UNARY = {
    _any: (
        "abs asinh atan ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac neg positive round sgn sigmoid "
        "sign sin sinc sinh square tanh trunc nan_to_num angle conj resolve_conj resolve_neg i0 special.i0e special.i1 "
        "special.i1e special.ndtr special.log_ndtr special.erfcx conj_physical real special.expit"
    ),
    _unit: "acos asin atanh erfinv logit tan special.ndtri special.entr",
    _positive: ("digamma lgamma log log10 log1p log2 reciprocal rsqrt sqrt special.gammaln special.psi"),
    _large: "acosh",
}


def _function(path: str) -> object:
    found: object = torch
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _unary(path: str, domain: object) -> Case:
    op = _function(path)
    return on_values(path, lambda h, w: op(domain(h)) @ op(domain(w)) / 3)  # type: ignore[operator]


_ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "gelu": F.gelu,
    "gelu_tanh": lambda t: F.gelu(t, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "logsigmoid": F.logsigmoid,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "threshold": lambda t: F.threshold(t, 0.1, -1.0),
    "rrelu": F.rrelu,
    "glu": F.glu,
    "softmax": lambda t: F.softmax(t, 1),
    "log_softmax": lambda t: F.log_softmax(t, 1),
    "softmin": lambda t: F.softmin(t, 1),
    "normalize": F.normalize,
    "clamp": lambda t: t.clamp(-0.5, 0.5),
    "clamp_min": lambda t: t.clamp_min(0.0),
    "relu_method": lambda t: t.relu(),
    "sigmoid_method": Tensor.sigmoid,
    "mvlgamma": lambda t: torch.mvlgamma(2 + t.square(), 2),
    "polygamma": lambda t: torch.polygamma(1, 1 + t.square()),
    "crelu": lambda t: torch.cat([t.relu(), (-t).relu()], 1),
}


def _activation(name: str, op: object) -> Case:
    def run(h: Tensor, w: Tensor) -> Tensor:
        a = op(h)  # type: ignore[operator]
        return a @ op(w)[: a.shape[1]].tile(2, 1)[: a.shape[1]] + a[:, :1]  # type: ignore[operator]

    counted = {"relu", "relu6", "leaky_relu", "relu_method", "crelu", "rrelu"}  # in NASWOT's codes, unlike the oracle's
    return on_values(name, run, flagged=("naswot",) if name in counted else ())


# --- two arguments --------------------------------------------------------------------------------------------------

_BINARY = {
    "add": lambda h, w: torch.add(h, w[0], alpha=2.0),
    "radd": lambda h, w: 1.0 + h + w[1],
    "rad2deg": lambda h, w: torch.rad2deg(h / 60) @ torch.rad2deg(w / 60),
    "sub": lambda h, w: torch.sub(h, w[0]),
    "rsub": lambda h, w: torch.rsub(h, w[0]),
    "mul": lambda h, w: h * w[0],
    "div": lambda h, w: h / _positive(w[0]),
    "div_floor": lambda h, w: torch.div(h, _positive(w[0]), rounding_mode="floor") + h * w[0],
    "pow": lambda h, w: _positive(h) ** w[0],
    "pow_scalar": lambda h, w: h**3 @ w**2,
    "rpow": lambda h, w: 2.0**h @ w,
    "float_power": lambda h, w: torch.float_power(_positive(h), w[0]).to(h.dtype),
    "atan2": lambda h, w: torch.atan2(h, w[0]),
    "maximum": lambda h, w: torch.maximum(h, w[0]),
    "minimum": lambda h, w: torch.minimum(h, w[0]),
    "fmax": lambda h, w: torch.fmax(h, w[0]),
    "fmin": lambda h, w: torch.fmin(h, w[0]),
    "hypot": lambda h, w: torch.hypot(h, w[0]),
    "logaddexp": lambda h, w: torch.logaddexp(h, w[0]),
    "logaddexp2": lambda h, w: torch.logaddexp2(h, w[0]),
    "fmod": lambda h, w: torch.fmod(h, _positive(w[0])),
    "remainder": lambda h, w: torch.remainder(h, _positive(w[0])),
    "lerp": lambda h, w: torch.lerp(h, h @ w, 0.3),
    "lerp_tensor": lambda h, w: torch.lerp(h, h.sin(), w[0]),
    "addcmul": lambda h, w: torch.addcmul(h, h.sin(), w[0], value=0.5),
    "addcdiv": lambda h, w: torch.addcdiv(h, h.sin(), _positive(w[0]), value=0.5),
    "addmm": lambda h, w: torch.addmm(w[0], h, w),
    "mm": lambda h, w: torch.mm(h, w),
    "matmul": lambda h, w: torch.matmul(h, w),
    "matmul_operator": lambda h, w: h @ w.T,
    "linear": lambda h, w: F.linear(h, w),
    "linear_of_slice": lambda h, w: F.linear(h, w[:3]),
    "linear_of_parameter": lambda h, w: h @ F.linear(w, w),
    "linear_twice": lambda h, w: F.linear(F.linear(h, w).sin(), w),
    "linear_first_samples": lambda h, w: F.linear(h[:, None].expand(-1, 2, -1), w),
    "linear_time_first": lambda h, w: F.linear(h.view(-1, 2, 3).transpose(0, 1), w[:, :3]).transpose(0, 1).flatten(1),
    "linear_time_first_own": lambda h, w: F.linear(torch.stack([h, h.sin(), h.cos(), h * h]), w).sum(0),
    "bmm": lambda h, w: torch.bmm(h.view(-1, 2, 3), w[:3, :3].expand(len(h), 3, 3)),
    "baddbmm": lambda h, w: torch.baddbmm(h.view(-1, 2, 3), h.view(-1, 2, 3), w[:3, :3].expand(len(h), 3, 3)),
    "addbmm": lambda h, w: h + torch.addbmm(w[:3, :3], w[:2, :3, None], w[3:5, None, :3]).flatten()[:6],
    "mv": lambda h, w: h * torch.mv(w, w[0]),
    "addmv": lambda h, w: h * torch.addmv(w[0], w, w[1]),
    "outer": lambda h, w: h @ torch.outer(w[0], w[1]),
    "addr": lambda h, w: h @ torch.addr(w, w[0], w[1]),
    "dot": lambda h, w: h * torch.dot(w[0], w[1]),
    "vdot": lambda h, w: h * torch.vdot(w[0], w[1]),
    "inner": lambda h, w: torch.inner(h, w),
    "tensordot": lambda h, w: torch.tensordot(h, w, dims=([1], [0])),
    "kron": lambda h, w: torch.kron(h, w[:1, :2]),
    "einsum": lambda h, w: torch.einsum("ij,jk,ik->ik", h, w, h),
    "multi_dot": lambda h, w: torch.linalg.multi_dot([h, w, w.T]),
    "chain": lambda h, w: (h @ w).sin() @ w.T @ w,
    "cdist": lambda h, w: torch.cdist(h, w),
    "dist": lambda h, w: h * torch.dist(w[0], w[1], 3),
    "cross": lambda h, w: torch.linalg.cross(h.view(-1, 2, 3), w[:2, :3].expand(len(h), 2, 3)),
    "cosine_similarity": lambda h, w: F.cosine_similarity(h[:, None], w[None], dim=2),
    "pairwise_distance": lambda h, w: h * F.pairwise_distance(h, w[:1])[:, None],
    "bilinear": lambda h, w: F.bilinear(h, h.sin(), torch.stack([w, w.T])),
    "where": lambda h, w: torch.where(h > 0, h @ w, h),
    "masked_fill": lambda h, w: (h @ w).masked_fill(h > 0.2, 0.5),
    "copysign": lambda h, w: torch.copysign(h, w[0]),
    "ldexp": lambda h, w: torch.ldexp(h, w[0]),
    "xlogy": lambda h, w: torch.xlogy(h, _positive(w[0])),
    "xlog1py": lambda h, w: torch.special.xlog1py(h, _positive(w[0])),
    "clamp_tensor": lambda h, w: torch.clamp(h, min=-_positive(w[0]), max=_positive(w[1])),
    "prelu": lambda h, w: F.prelu(h, w[0]),
    "comparison": lambda h, w: (h > w[0]).to(h.dtype) * (h @ w),
    "embedding": lambda h, w: h * F.embedding((h.detach() > 0).sum(1).clamp(max=5), w),
    "embedding_bag": lambda h, w: h * F.embedding_bag((h.detach() > 0).long(), w, mode="mean"),
    "nll": lambda h, w: h * F.cross_entropy(w, torch.arange(6)),
    "mse_of_parameters": lambda h, w: h * F.mse_loss(w, w.T),
    "kl_div": lambda h, w: h * F.kl_div(F.log_softmax(w, 1), F.softmax(w.T, 1), reduction="batchmean"),
    "huber": lambda h, w: h * F.huber_loss(w, w.T),
}

_REDUCTIONS = {
    "sum": lambda t: t.sum(1),
    "mean": lambda t: torch.mean(t, 1),
    "prod": lambda t: t.prod(1),
    "std": lambda t: t.std(1),
    "var": lambda t: torch.var(t, 1),
    "var_mean": lambda t: torch.stack(torch.var_mean(t, 1), 1),
    "std_mean": lambda t: torch.stack(torch.std_mean(t, 1), 1),
    "logsumexp": lambda t: t.logsumexp(1),
    "amax": lambda t: t.amax(1),
    "amin": lambda t: t.amin(1),
    "max": lambda t: t.max(1).values,
    "min": lambda t: t.min(1).values,
    "median": lambda t: t.median(1).values,
    "nanmedian": lambda t: t.nanmedian(1).values,
    "mode": lambda t: t.mode(1).values,
    "norm": lambda t: t.norm(dim=1),
    "norm_1": lambda t: torch.norm(t, 1, 1),
    "norm_3": lambda t: torch.norm(t, 3, 1),
    "norm_inf": lambda t: torch.linalg.vector_norm(t, float("inf"), 1),
    "vector_norm": lambda t: torch.linalg.vector_norm(t, 2, 1),
    "nansum": lambda t: t.nansum(1),
    "nanmean": lambda t: t.nanmean(1),
    "cumsum": lambda t: t.cumsum(1),
    "cumprod": lambda t: t.cumprod(1),
    "cummax": lambda t: t.cummax(1).values,
    "cummin": lambda t: t.cummin(1).values,
    "logcumsumexp": lambda t: t.logcumsumexp(1),
    "aminmax": lambda t: torch.stack(tuple(torch.aminmax(t, dim=1)), 1),
    "quantile": lambda t: t.quantile(0.3, dim=1),
    "nanquantile": lambda t: t.nanquantile(0.6, dim=1),
    "kthvalue": lambda t: t.kthvalue(2, 1).values,
    "topk": lambda t: t.topk(3, 1).values,
    "sort": lambda t: t.sort(1).values,
    "renorm": lambda t: t.renorm(2, 0, 0.7),
    "trapezoid": lambda t: torch.trapezoid(t, dim=1),
    "diff": lambda t: t.diff(dim=1),
    "corrcoef": lambda t: torch.stack([torch.corrcoef(torch.stack([row[:3], row[3:]]))[0] for row in t]),
    "cumulative_trapezoid": lambda t: torch.cumulative_trapezoid(t, dim=1),
    "gradient": lambda t: torch.gradient(t, dim=1)[0],
}


def _reduction(name: str, op: object) -> Case:
    def run(h: Tensor, w: Tensor) -> Tensor:
        a, b = op(h), op(w)  # type: ignore[operator]
        return torch.cat([a.reshape(len(h), -1) * b.reshape(-1)[:1].sin(), h @ w], 1)

    return on_values(name, run, flagged=_FLAGGED.get(name, ()))


_SHAPES = {
    "reshape": lambda t: t.reshape(-1, 3, 2),
    "view": lambda t: t.view(-1, 2, 3).sin(),
    "unflatten": lambda t: t.unflatten(1, (2, 3)),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "squeeze": lambda t: t.unsqueeze(1).squeeze(1),
    "transpose": lambda t: t.view(-1, 2, 3).transpose(1, 2),
    "permute": lambda t: t.view(-1, 2, 3).permute(0, 2, 1),
    "movedim": lambda t: t.view(-1, 2, 3).movedim(1, 2),
    "swapaxes": lambda t: t.view(-1, 2, 3).swapaxes(1, 2),
    "mT": lambda t: t.view(-1, 2, 3).mT,
    "twice_transposed": lambda t: t.t().sin().T,
    "narrow": lambda t: t.narrow(1, 1, 3),
    "select": lambda t: t.select(1, 2),
    "slice": lambda t: t[:, 1:4],
    "ellipsis": lambda t: t[..., ::2],
    "index": lambda t: t[:, [0, 2, 2]],
    "mask": lambda t: t[:, torch.tensor([True, False, True, True, False, False])],
    "index_select": lambda t: t.index_select(1, torch.tensor([5, 0, 1])),
    "gather": lambda t: t.gather(1, torch.tensor([[1, 3]]).expand(len(t), 2)),
    "take_along_dim": lambda t: t.take_along_dim(torch.tensor([[1, 3]]).expand(len(t), 2), 1),
    "take": lambda t: t.take(torch.arange(len(t))[:, None] * 6 + torch.arange(3)),
    "split": lambda t: t.split(4, 1)[0],
    "split_uneven": lambda t: t.split([2, 4], 1)[1],
    "chunk": lambda t: t.chunk(2, 1)[1],
    "tensor_split": lambda t: t.tensor_split(4, 1)[0],
    "unbind": lambda t: t.unbind(1)[3],
    "stack": lambda t: torch.stack([t, t.sin()], 1),
    "cat": lambda t: torch.cat([t, t.sin()], 1),
    "hstack": lambda t: torch.hstack([t, t.sin()]),
    "dstack": lambda t: torch.dstack([t, t.cos()]),
    "column_stack": lambda t: torch.column_stack([t, t.sin()]),
    "tile": lambda t: t.tile(1, 2),
    "repeat": lambda t: t.repeat(1, 2),
    "repeat_interleave": lambda t: t.repeat_interleave(2, 1),
    "expand": lambda t: t[:, :, None].expand(-1, -1, 2).sin(),
    "broadcast_to": lambda t: t[:, None].broadcast_to(len(t), 2, 6),
    "flip": lambda t: t.flip(1),
    "fliplr": lambda t: t.fliplr(),
    "roll": lambda t: t.roll(2, 1),
    "rot90": lambda t: t.view(-1, 2, 3).rot90(1, (1, 2)),
    "diagonal": lambda t: t.view(-1, 2, 3).diagonal(dim1=1, dim2=2),
    "diag_embed": lambda t: t.diag_embed(),
    "tril": lambda t: t.view(-1, 2, 3).tril(),
    "triu": lambda t: t.view(-1, 2, 3).triu(),
    "unfold_method": lambda t: t.unfold(1, 3, 2),
    "as_strided": lambda t: t.contiguous().as_strided((len(t), 3), (6, 2)),
    "pad": lambda t: F.pad(t, (1, 2), value=0.5),
    "pad_reflect": lambda t: F.pad(t[:, None], (1, 2), mode="reflect"),
    "pad_replicate": lambda t: F.pad(t[:, None], (1, 2), mode="replicate"),
    "pad_circular": lambda t: F.pad(t[:, None], (1, 2), mode="circular"),
    "clone": lambda t: t.clone(),
    "contiguous": lambda t: t.view(-1, 2, 3).transpose(1, 2).contiguous(),
    "to": lambda t: t.to(torch.float64).to(t.dtype),
    "scatter": lambda t: torch.zeros_like(t).scatter(1, torch.tensor([[1, 3]]).expand(len(t), 2), t[:, :2].sin()),
    "scatter_add": lambda t: t.scatter_add(1, torch.tensor([[1, 1]]).expand(len(t), 2), t[:, :2].sin()),
    "scatter_reduce": lambda t: t.scatter_reduce(1, torch.tensor([[1, 1]]).expand(len(t), 2), t[:, :2].sin(), "amax"),
    "index_add": lambda t: t.index_add(1, torch.tensor([0, 0]), t[:, :2].sin()),
    "index_copy": lambda t: t.index_copy(1, torch.tensor([0, 4]), t[:, :2].sin()),
    "index_fill": lambda t: t.index_fill(1, torch.tensor([0, 4]), 0.3),
    "index_put": lambda t: t.index_put((torch.arange(len(t)), torch.zeros(len(t), dtype=torch.long)), t[:, 1].sin()),
    "masked_scatter": lambda t: t.masked_scatter(t.detach() > 0, t.sin()),
    "ravel": lambda t: t.ravel().view(-1, 6),
    "view_as": lambda t: t.view_as(t).sin(),
    "expand_as": lambda t: t[:, :1].expand_as(t).sin(),
    "select_scatter": lambda t: t.select_scatter(t[:, 0].sin(), 1, 3),
    "slice_scatter": lambda t: t.slice_scatter(t[:, :2].sin(), 1, 0, 2),
    "atleast_3d": lambda t: torch.atleast_3d(t).sin(),
    "unsafe_chunk": lambda t: t.unsafe_chunk(2, 1)[0],
}


def _shape(name: str, op: object) -> Case:
    def run(h: Tensor, w: Tensor) -> Tensor:
        a, b = (op(t).reshape(len(t), -1) for t in (h, w))  # type: ignore[operator]
        n = min(a.shape[1], 6)
        return torch.cat([a[:, :n] @ b.T[:n], h @ w], 1)

    return on_values(name, run, flagged=_FLAGGED.get(name, ()))


# --- changes in place -----------------------------------------------------------------------------------------------


def _row_written(h: Tensor, w: Tensor) -> Tensor:
    out = torch.zeros(len(h), 8, dtype=h.dtype)
    out[:, :6] = h @ w
    out[:, 6:] = h[:, :2].sin()
    return out


def _view_changed(h: Tensor, w: Tensor) -> Tensor:
    z = h @ w
    part = z[:, :2]
    part.mul_(h[:, :2])
    return z


def _base_changed(h: Tensor, w: Tensor) -> Tensor:
    z = h @ w
    part = z[:, :2]
    z.add_(h.sin())
    return torch.cat([part, z], 1)


def _copied(h: Tensor, w: Tensor) -> Tensor:
    out = torch.empty(len(h), 6, dtype=h.dtype)
    out.copy_(h @ w)
    return out.sin()


def _data_changed(h: Tensor, w: Tensor) -> Tensor:
    z = h @ w
    return z * z.detach().clone().mul_(2.0)


def _resized(h: Tensor, w: Tensor) -> Tensor:
    return (h @ w).t_().sin().transpose_(0, 1).unsqueeze_(1)


_IN_PLACE = {
    "add_": lambda h, w: (h @ w).add_(h),
    "mul_": lambda h, w: (h @ w).mul_(h),
    "sub_": lambda h, w: (h @ w).sub_(w[0]),
    "div_": lambda h, w: (h @ w).div_(_positive(w[0])),
    "relu_": lambda h, w: (h @ w).relu_(),
    "tanh_": lambda h, w: (h @ w).tanh_(),
    "sigmoid_": lambda h, w: (h @ w).sigmoid_(),
    "exp_": lambda h, w: (h @ w).exp_(),
    "clamp_": lambda h, w: (h @ w).clamp_(-0.5, 0.7),
    "neg_": lambda h, w: (h @ w).neg_(),
    "pow_": lambda h, w: (h @ w).pow_(2),
    "zero_part": lambda h, w: _zeroed(h @ w),
    "iadd": lambda h, w: _iadd(h @ w, h),
    "imul": lambda h, w: _imul(h @ w, h),
    "fill_diagonal_": lambda h, w: h @ w.clone().fill_diagonal_(0.5),
    "setitem": _row_written,
    "copy_": _copied,
    "in_place_on_a_view": _view_changed,
    "in_place_below_a_view": _base_changed,
    "detached_in_place": _data_changed,
    "shape_in_place": _resized,
    "masked_fill_": lambda h, w: (h @ w).masked_fill_(h.detach() > 0, 0.2),
    "index_add_": lambda h, w: (h @ w).index_add_(1, torch.tensor([0, 1]), h[:, :2]),
    "scatter_": lambda h, w: (h @ w).scatter_(1, torch.tensor([[1, 3]]).expand(len(h), 2), h[:, :2]),
    "addmm_": lambda h, w: h.sin().addmm_(h, w),
    "lerp_": lambda h, w: (h @ w).lerp_(h, 0.4),
    "functional_in_place": lambda h, w: F.leaky_relu_(h @ w, 0.3),
    "hardtanh_": lambda h, w: F.hardtanh_(h @ w),
    "first_layer_changed": lambda h, w: h.mul_(w[0]) @ w,
    "in_place_on_the_first_layer": lambda h, w: h.add_(1.0) @ w,
}


def _zeroed(z: Tensor) -> Tensor:
    z[:, 1:3].zero_()
    return z


def _iadd(z: Tensor, h: Tensor) -> Tensor:
    z += h
    return z


def _imul(z: Tensor, h: Tensor) -> Tensor:
    z *= h
    return z


# --- linear algebra and complex numbers -----------------------------------------------------------------------------


def _spd(w: Tensor) -> Tensor:
    return w @ w.T + torch.eye(6, dtype=w.dtype)


def _spds(h: Tensor) -> Tensor:
    return h[:, :, None] * h[:, None, :] + torch.eye(6, dtype=h.dtype)


_LINEAR_ALGEBRA = {
    "det": lambda h, w: h * torch.linalg.det(_spds(h) + w)[:, None],
    "det_of_parameter": lambda h, w: h * torch.det(w),
    "slogdet": lambda h, w: h * torch.linalg.slogdet(_spd(w)).logabsdet,
    "logdet": lambda h, w: h * torch.logdet(_spds(h))[:, None] @ w,
    "inv": lambda h, w: h @ torch.linalg.inv(_spd(w)),
    "inv_of_values": lambda h, w: (torch.inverse(_spds(h)) @ w).sum(1),
    "pinv": lambda h, w: h @ torch.linalg.pinv(_spd(w)),
    "solve": lambda h, w: torch.linalg.solve(_spd(w), h.T).T,
    "solve_values": lambda h, w: torch.linalg.solve(_spds(h), h @ w),
    "solve_triangular": lambda h, w: torch.linalg.solve_triangular(_spd(w).triu(), h.T, upper=True).T,
    "cholesky": lambda h, w: h @ torch.linalg.cholesky(_spd(w)),
    "qr": lambda h, w: h @ torch.linalg.qr(_spd(w)).R,
    "cholesky_solve": lambda h, w: torch.cholesky_solve(h.T, torch.linalg.cholesky(_spd(w))).T,
    "cholesky_inverse": lambda h, w: h @ torch.cholesky_inverse(torch.linalg.cholesky(_spd(w))),
    "svdvals": lambda h, w: h * torch.linalg.svdvals(w),
    "svd": lambda h, w: h @ torch.linalg.svd(_spd(w)).U.abs(),
    "eigvalsh": lambda h, w: h * torch.linalg.eigvalsh(_spd(w)),
    "eigh": lambda h, w: h @ torch.linalg.eigh(_spd(w)).eigenvectors.abs(),
    "matrix_exp": lambda h, w: h @ torch.matrix_exp(w / 3),
    "matrix_power": lambda h, w: h @ torch.matrix_power(w, 3),
    "matrix_norm": lambda h, w: h * torch.linalg.matrix_norm(w),
    "nuclear_norm": lambda h, w: h * torch.linalg.matrix_norm(w, "nuc"),
    "lu": lambda h, w: h @ torch.linalg.lu(_spd(w)).U,
    "trace": lambda h, w: h * torch.trace(w) @ w,
    "householder": lambda h, w: h @ torch.linalg.householder_product(w, w[0]),
    "vander": lambda h, w: h @ torch.linalg.vander(w[0]),
    "cond": lambda h, w: h * torch.linalg.cond(_spd(w)),
    "lstsq": lambda h, w: torch.linalg.lstsq(_spd(w), h.T).solution.T,
    "tensorsolve": lambda h, w: h * torch.linalg.tensorsolve(_spd(w), w[0]),
    "inv_ex": lambda h, w: h @ torch.linalg.inv_ex(_spd(w)).inverse,
    "fft": lambda h, w: torch.fft.fft(h @ w).real,
    "fft_abs": lambda h, w: torch.fft.fft(h @ w).abs(),
    "rfft": lambda h, w: torch.view_as_real(torch.fft.rfft(h @ w)),
    "irfft": lambda h, w: torch.fft.irfft(torch.fft.rfft(h) * torch.fft.rfft(w[0])),
    "fft2": lambda h, w: torch.fft.fft2((h @ w).view(-1, 2, 3)).imag,
    "fftn": lambda h, w: torch.fft.fftn((h @ w).view(-1, 2, 3), dim=(1, 2)).real,
    "ifft": lambda h, w: torch.fft.ifft(h @ w).real,
    "hfft": lambda h, w: torch.fft.hfft(h @ w),
    "fftshift": lambda h, w: torch.fft.fftshift(h @ w, 1),
    "fft_parameter": lambda h, w: h * torch.fft.fft(w[0]).abs(),
    "complex": lambda h, w: torch.complex(h, h @ w).abs(),
    "polar": lambda h, w: torch.view_as_real(torch.polar(_positive(h), h @ w)),
    "complex_angle": lambda h, w: torch.complex(h, h @ w + 3).angle(),
    "view_as_complex": lambda h, w: (torch.view_as_complex((h @ w).view(-1, 3, 2)) ** 2).real,
    "complex_product": lambda h, w: (torch.complex(h, h.sin()) @ torch.complex(w, w.T)).imag,
    "stft": lambda h, w: torch.view_as_real(
        torch.stft(h @ w, 4, 2, window=torch.ones(4, dtype=h.dtype), return_complex=True)
    ),
}

# --- images ---------------------------------------------------------------------------------------------------------

_IMAGES = {
    "max_pool2d": lambda h, w: F.max_pool2d(F.conv2d(h, w), 2),
    "max_pool2d_padded": lambda h, w: F.max_pool2d(h, 3, 2, 1) * w[0, 0, 0, 0],
    "max_pool1d": lambda h, w: F.max_pool1d(h.flatten(2), 3) * w.mean(),
    "max_pool3d": lambda h, w: F.max_pool3d(h[:, None], 2) * w.mean(),
    "avg_pool1d": lambda h, w: F.avg_pool1d(h.flatten(2), 3),
    "avg_pool2d": lambda h, w: F.avg_pool2d(F.conv2d(h, w), 2),
    "avg_pool2d_uncounted": lambda h, w: F.avg_pool2d(h, 3, 1, 1, count_include_pad=False),
    "avg_pool3d": lambda h, w: F.avg_pool3d(h[:, None], 2),
    "lp_pool1d": lambda h, w: F.lp_pool1d(_positive(h).flatten(2), 2, 3),
    "lp_pool2d": lambda h, w: F.lp_pool2d(_positive(h), 2, 2),
    "adaptive_avg_pool1d": lambda h, w: F.adaptive_avg_pool1d(h.flatten(2), 5),
    "adaptive_avg_pool2d": lambda h, w: F.adaptive_avg_pool2d(F.conv2d(h, w), 3),
    "adaptive_avg_pool3d": lambda h, w: F.adaptive_avg_pool3d(h[:, None], 2),
    "adaptive_max_pool2d": lambda h, w: F.adaptive_max_pool2d(h, 2),
    "max_unpool2d": lambda h, w: F.max_unpool2d(*F.max_pool2d(h, 2, return_indices=True), 2),
    "layer_norm": lambda h, w: F.layer_norm(h, (6, 6)),
    "layer_norm_of_slices": lambda h, w: F.layer_norm(h[..., :3, :3], (3, 3), w[0, 0], w[0, 1]),
    "group_norm": lambda h, w: F.group_norm(h, 2, w[0, :, 0, 0], w[0, :, 0, 1]),
    "instance_norm": lambda h, w: F.instance_norm(h),
    "local_response_norm": lambda h, w: F.local_response_norm(h, 2),
    "rms_norm": lambda h, w: F.rms_norm(h, (6,)),
    "conv2d": lambda h, w: F.conv2d(h, w, padding=1),
    "conv2d_same": lambda h, w: F.conv2d(h, w, padding="same", dilation=2),
    "conv2d_same_even": lambda h, w: F.conv2d(h, w[..., :2], padding="same"),
    "conv2d_strided": lambda h, w: F.conv2d(h, w, stride=2, padding=(1, 0)),
    "conv2d_grouped": lambda h, w: F.conv2d(h, w[:, :4], groups=2),
    "conv1d": lambda h, w: F.conv1d(h.flatten(2), w.flatten(2)),
    "conv3d": lambda h, w: F.conv3d(h[:, None].expand(-1, 8, -1, -1, -1), w[:, :, None]),
    "conv_transpose1d": lambda h, w: F.conv_transpose1d(h.flatten(2)[..., :5], w.flatten(2), stride=2),
    "conv_transpose2d": lambda h, w: F.conv_transpose2d(h, w, stride=2, padding=1),
    "conv_transpose3d": lambda h, w: F.conv_transpose3d(h[:, :, None, :2, :2], w[:, :, None]),
    "unfold": lambda h, w: w.flatten(1) @ F.unfold(h, 3),
    "fold": lambda h, w: F.fold(F.unfold(h, 2, stride=2).sin(), (6, 6), 2, stride=2),
    "interpolate": lambda h, w: F.interpolate(h, scale_factor=2),
    "bilinear_up": lambda h, w: F.interpolate(h, size=(5, 5), mode="bilinear"),
    "bicubic": lambda h, w: F.interpolate(h, size=(5, 5), mode="bicubic"),
    "grid_sample": lambda h, w: F.grid_sample(h, torch.tanh(h[:, :2].permute(0, 2, 3, 1)), align_corners=False),
    "affine_grid": lambda h, w: F.grid_sample(
        h,
        F.affine_grid(torch.tanh(h.flatten(1)[:, :6]).view(-1, 2, 3), list(h.shape), align_corners=False),
        align_corners=False,
    ),
    "pixel_shuffle": lambda h, w: F.pixel_shuffle(h, 2),
    "pixel_unshuffle": lambda h, w: F.pixel_unshuffle(h, 2),
    "channel_shuffle": lambda h, w: F.channel_shuffle(h, 2),
    "softmax2d": lambda h, w: F.softmax(h, 1) * w.mean(),
    "attention": lambda h, w: F.scaled_dot_product_attention(h.flatten(2), h.flatten(2).sin(), h.flatten(2).cos()),
    "channels_last": lambda h, w: F.conv2d(h.to(memory_format=torch.channels_last), w),
}

_DROPOUTS = {
    "dropout": lambda h, w: F.conv2d(F.dropout(h, 0.5), w),
    "dropout2d": lambda h, w: F.conv2d(F.dropout2d(h, 0.5), w),
    "alpha_dropout": lambda h, w: F.conv2d(F.alpha_dropout(h, 0.5, training=True), w),
    "dropout_in_place": lambda h, w: F.dropout(F.conv2d(h, w), 0.5, inplace=True),
    "torch_dropout": lambda h, w: torch.dropout(F.conv2d(h, w), 0.5, True),
}


def _without_dropout(model: ImageHost) -> ImageHost:
    model.operation = lambda h, w: F.conv2d(h, w)
    return model


# --- what a function mode cannot see, and what it can but should not --------------------------------------------------


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t**3

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return 3 * t**2 * g


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, w):
        ctx.save_for_backward(h, w)
        return h @ w

    @staticmethod
    def backward(ctx, g):
        h, w = ctx.saved_tensors
        return g @ w.T, h.T @ g


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, w):
        ctx.save_for_backward(h, w)
        return h @ w

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        h, w = ctx.saved_tensors
        return g @ w.T, h.T @ g


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t.sign()

    @staticmethod
    def backward(ctx, g):
        return g


def _scripted_source(h: Tensor, w: Tensor) -> Tensor:
    return torch.relu(h @ w) + torch.sin(h)


def _scripted(h: Tensor, w: Tensor) -> Tensor:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(_scripted_source)(h, w)


def _partly_without_gradient(h: Tensor, w: Tensor) -> Tensor:
    with torch.no_grad():
        frozen = (h @ w).sin()
    return frozen * h + (h @ w.T)


def _energy(h: Tensor, w: Tensor) -> Tensor:
    """The gradient of an energy, as networks of forces have it."""
    if not h.requires_grad:
        h = h.detach().requires_grad_()
    with torch.enable_grad():
        E = torch.tanh(h @ w).square().sum()
        (g,) = torch.autograd.grad(E, h, create_graph=True)
    return g


_INVISIBLE = {
    "autograd_function": lambda h, w: _Cube.apply(h) @ w,
    "autograd_function_of_parameter": lambda h, w: _Product.apply(h, w),
    "autograd_function_of_weights": lambda h, w: h @ _Cube.apply(w),
    "script": _scripted,
    "vmap": lambda h, w: torch.func.vmap(lambda row: torch.tanh(row @ w))(h),
    "vmap_of_linear": lambda h, w: torch.func.vmap(lambda row: F.linear(row, w))(h),
    "vmap_of_values": lambda h, w: torch.func.vmap(torch.sin)(h) @ w,
    "jvp_inside": lambda h, w: torch.func.jvp(torch.sin, (h,), (h @ w,))[1],
    "grad_inside": lambda h, w: torch.func.vmap(torch.func.grad(lambda row: (row @ w).tanh().sum()))(h),
    "jacrev_inside": lambda h, w: torch.func.vmap(torch.func.jacrev(lambda row: (row @ w).tanh()))(h),
    "no_grad": _partly_without_gradient,
    "detach": lambda h, w: h.detach() @ w + h,
    "detach_parameter": lambda h, w: h @ w.detach() + h * w[0],
    "data": lambda h, w: h @ w.data + h,
    "energy": _energy,
    "numpy": lambda h, w: h @ w + torch.from_numpy(h.detach().numpy().copy()),
    "item": lambda h, w: h @ w * float(h.detach().mean().sign()),
    "tensor_subclass": lambda h, w: (h.as_subclass(_Named) @ w).as_subclass(Tensor),
    "enable_grad": lambda h, w: _enabled(h, w),
    "custom_operator": lambda h, w: _twice(h) @ w,
    "retain_grad": lambda h, w: _retained(h @ w),
}


_CHECKPOINTS = {
    "checkpoint": lambda h, w: checkpoint(lambda a: F.linear(a, w).tanh(), h, use_reentrant=False),
    "checkpoint_without_weights": lambda h, w: checkpoint(torch.tanh, h, use_reentrant=False) @ w,
}


class _Named(Tensor):
    pass


@torch.library.custom_op("initio_tests::twice", mutates_args=())
def _twice(t: Tensor) -> Tensor:
    return t * 2


_twice.register_autograd(lambda ctx, g: g * 2)


def _enabled(h: Tensor, w: Tensor) -> Tensor:
    with torch.no_grad(), torch.enable_grad():
        return (h @ w).sin()


def _hooked(z: Tensor) -> Tensor:
    if z.requires_grad:
        z.register_hook(lambda g: 0.5 * g)
    return z


def _retained(z: Tensor) -> Tensor:
    if z.requires_grad:
        z.retain_grad()
    return z


# Samples that see each other: the kernel of single samples has no one meaning then, and says so.
_COUPLED = {
    "minus_batch_mean": lambda h, w: (h - h.mean(0)) @ w,
    "reversed_batch": lambda h, w: (h @ w).flip(0) + h,
    "rolled_batch": lambda h, w: h.roll(1, 0) @ w,
    "first_sample": lambda h, w: h @ w * h[:1],
    "sorted_batch": lambda h, w: h.sort(0).values @ w,
    "batch_attention": lambda h, w: F.softmax(h @ h.T, 1) @ (h @ w),
    "batch_softmax": lambda h, w: h.softmax(0) @ w,
    "batch_norm_by_hand": lambda h, w: (h - h.mean(0)) / h.std(0) @ w,
    "covariance": lambda h, w: h @ (h.T @ h) @ w,
    "values_of_others": lambda h, w: h * w.gather(0, (h.detach()[:1] > 0).long()),
    "constants_of_others": lambda h, w: h @ w * h[0, :2].sum().detach(),
}

OPERATIONS: tuple[Case, ...] = (
    *(_unary(path, domain) for domain, paths in _UNARY.items() for path in paths.split()),
    *(_activation(name, op) for name, op in _ACTIVATIONS.items()),
    *(on_values(name, op, flagged=_FLAGGED.get(name, ())) for name, op in _BINARY.items()),
    *(_reduction(name, op) for name, op in _REDUCTIONS.items()),
    *(_shape(name, op) for name, op in _SHAPES.items()),
    *(on_values(name, op) for name, op in _IN_PLACE.items()),
    *(on_values(name, op) for name, op in _LINEAR_ALGEBRA.items()),
    *(on_images(name, op) for name, op in _IMAGES.items()),
    *(on_images(name, op, oracle=_without_dropout) for name, op in _DROPOUTS.items()),
    on_images("random_noise", lambda h, w: h + torch.randn_like(h), flagged=EVERY),
    *(on_values(name, op) for name, op in _INVISIBLE.items()),
    *(on_values(name, op, refused="computed once more") for name, op in _CHECKPOINTS.items()),
    on_values("once_differentiable", lambda h, w: _Once.apply(h, w), flagged=("grasp", "grasp_printed")),
    on_values("straight_through", lambda h, w: _StraightThrough.apply(h) @ w, flagged=("grasp", "grasp_printed")),
    on_values("hook_on_a_value", lambda h, w: _hooked(h @ w), flagged=("grasp", "grasp_printed")),
    on_values("heaviside", lambda h, w: torch.heaviside(h, w[0].detach()) * (h @ w), refused="heaviside"),
    *(on_values(name, op, flagged=_PER_SAMPLE) for name, op in _COUPLED.items()),
)
