"""Kinds of modules: layers of torch.nn, models that people write, and models that must be refused in a sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from tests.anymodule.cases import CLASSES, Case

IMAGE = (2, 6, 6)
SERIES = (3, 7)  # channels, length
TOKENS = (5, 4)  # time, features


class Lambda(nn.Module):
    """A function as a module, with modules of its own."""

    def __init__(self, function: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Tensor) -> Any:
        """function(self, x)."""
        return self.function(self, x)


def _net(*layers: nn.Module, shape: tuple[int, ...] = IMAGE) -> nn.Module:
    """The layers, then a linear classifier on all that they leave."""
    body = nn.Sequential(*layers, nn.Flatten())
    was = [m.training for m in body.modules()]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        features = body(torch.randn(4, *shape)).shape[1]
    for m, flag in zip(body.modules(), was, strict=True):
        m.training = flag
    return nn.Sequential(body, nn.Linear(features, CLASSES))


def image(name: str, *makers: Callable[[], nn.Module], **facts: Any) -> Case:
    """Layers behind a convolution of images."""
    return Case(name, lambda: _net(nn.Conv2d(2, 8, 3), nn.ReLU(), *(make() for make in makers)), IMAGE, **facts)


def series(name: str, *makers: Callable[[], nn.Module], **facts: Any) -> Case:
    """Layers behind a convolution of series."""
    return Case(
        name, lambda: _net(nn.Conv1d(3, 4, 3), nn.ReLU(), *(make() for make in makers), shape=SERIES), SERIES, **facts
    )


def tokens(name: str, *makers: Callable[[], nn.Module], **facts: Any) -> Case:
    """Layers on (m, time, features)."""
    return Case(
        name, lambda: _net(nn.Linear(4, 6), nn.ReLU(), *(make() for make in makers), shape=TOKENS), TOKENS, **facts
    )


def plain(name: str, build: Callable[[], nn.Module], shape: tuple[int, ...] = (5,), **facts: Any) -> Case:
    """A whole model."""
    return Case(name, build, shape, **facts)


def odd(name: str, function: Callable[..., Any], shape: tuple[int, ...] = (5,), **facts: Any) -> Case:
    """Linear, ReLU, linear, whose logits the function changes: function(model, x)."""

    def build() -> nn.Module:
        body = nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), 6), nn.ReLU(), nn.Linear(6, CLASSES))
        return Lambda(function, body=body)

    return Case(name, build, shape, **facts)


_OUTSIDE = ("fisher", "zico", "near", "meco")  # weights that are used by other than recorded layers are not in them


class _Scaled(nn.Module):
    """A parametrization."""

    def forward(self, w: Tensor) -> Tensor:
        """Symmetric."""
        return w.triu() + w.triu(1).mT


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.b = nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 5)
        self.b.weight = self.a.weight
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(self.act(self.a(x))) + x @ self.a.weight)


class _Buffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.head = nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, CLASSES)
        self.register_buffer("scale", torch.linspace(-1, 1, 6))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.head(self.act(self.a(x)) * self.scale)


class _Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.head = nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, CLASSES)
        self.a.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.a(x)))


class _Hyper(nn.Module):
    """The weights of a layer are the output of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Parameter(torch.randn(4, 3))
        self.make = nn.Linear(3, 5)
        self.act, self.head = nn.ReLU(), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(F.linear(x, self.make(self.code))))


class _Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.head, self.unused = nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, CLASSES), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        self.unused(x)
        return self.head(self.act(self.a(x)))


class _Recurrent(nn.Module):
    def __init__(self, cell: nn.Module, body: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.cell, self.body = cell, body
        self.act, self.head = nn.ReLU(), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.body(self.cell, x)))


def _unrolled(cell: nn.Module, x: Tensor) -> Tensor:
    state: Any = None
    for t in range(x.shape[1]):
        state = cell(x[:, t], state)
    return state[0] if isinstance(state, tuple) else state


def recurrent(name: str, make: Callable[[], nn.Module], body: Callable[[Any, Tensor], Tensor], **facts: Any) -> Case:
    """A recurrent layer and a classifier on what `body` takes from it."""
    return Case(name, lambda: _Recurrent(make(), body), TOKENS, flagged=_OUTSIDE, **facts)


class _Attention(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.first = settings.get("batch_first", True)
        self.attention = nn.MultiheadAttention(4, 2, **{"batch_first": True} | settings)
        self.act, self.head = nn.ReLU(), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.first else x.transpose(0, 1)
        out, _ = self.attention(x, x, x, need_weights=False)
        return self.head(self.act(out if self.first else out.transpose(0, 1)).mean(1))


class _Embedded(nn.Module):
    def __init__(self, bag: bool = False) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(9, 6) if bag else nn.Embedding(9, 6)
        self.act, self.head = nn.ReLU(), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x.abs().mul(3).long().clamp(max=8))
        return self.head(self.act(h if h.ndim == 2 else h.mean(1)))


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.act = (
            nn.Conv2d(8, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
        )
        self.b, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.b(self.act(self.norm(self.a(x)))))
        out += x
        return self.act(out)


class _SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.act, self.up = nn.Conv2d(8, 2, 1), nn.ReLU(), nn.Conv2d(2, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(self.act(self.down(x.mean((2, 3), keepdim=True)))))


def _old_weight_norm(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nn.utils.weight_norm(module)


def _copyable(model: nn.Module) -> nn.Module:
    model[0].weight = model[0].weight.detach()  # type: ignore[index]
    return model


def _spectral(make: Callable[[], nn.Module]) -> nn.Module:
    return parametrizations.spectral_norm(make())


def _compiled(make: Callable[[], nn.Module]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own use of its deprecated parts
        return torch.compile(make())


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, CLASSES))


def _parametrized() -> nn.Module:
    layer = nn.Linear(5, 5)
    parametrize.register_parametrization(layer, "weight", _Scaled())
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(5, CLASSES))


def _uncompiled(model: nn.Module) -> nn.Module:
    return model._orig_mod if hasattr(model, "_orig_mod") else nn.Sequential(model[0]._orig_mod, *model[1:])  # type: ignore[union-attr,index,return-value]


class _First(nn.Module):
    def __init__(self, model: nn.Module, key: Any = 0) -> None:
        super().__init__()
        self.model, self.key = model, key

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)[self.key]


class _Flat(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).flatten(1)


class _Column(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)[:, None]


class _Own(nn.Module):
    """A model that the oracle gets with inputs of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.clone())


def _written(model: Any, x: Tensor) -> Tensor:
    x.mul_(2.0)
    return model.body(x)


def _written_part(model: Any, x: Tensor) -> Tensor:
    x[:, 0] = 0.5
    return model.body(x)


class _Attended(nn.Module):
    """Attention in elementary operations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).mT / x.shape[-1] ** 0.5
        return scores.softmax(-1) @ self.v(x)


class _Decoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(width, 2, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x.sin())


class _Lists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.randn(5, 6) / 2), nn.Parameter(torch.randn(6, CLASSES) / 2)]
        )
        self.scales = nn.ParameterDict({"a": nn.Parameter(torch.ones(6))})
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x @ self.weights[0] * self.scales["a"]) @ self.weights[1]


def _script(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(model)


def _traced(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(model, torch.randn(2, 5))


def _met(model: nn.Module) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model(torch.zeros(2, 5))
    return model


def _quiet(body: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return body(x)


def _inference(body: nn.Module, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return body(x)


def _raise() -> Tensor:
    raise KeyError("no such\nlayer")


MODULES: tuple[Case, ...] = (
    # convolutions
    series("conv1d", lambda: nn.Conv1d(4, 4, 3, padding=1)),
    series("conv1d_same", lambda: nn.Conv1d(4, 4, 4, padding="same")),
    image("conv2d", lambda: nn.Conv2d(8, 8, 3, stride=2, padding=1)),
    image("conv2d_same", lambda: nn.Conv2d(8, 4, 3, padding="same")),
    image("conv2d_same_even", lambda: nn.Conv2d(8, 8, 2, padding="same")),
    image("conv2d_same_dilated", lambda: nn.Conv2d(8, 4, (2, 3), padding="same", dilation=(1, 2))),
    image("conv2d_grouped", lambda: nn.Conv2d(8, 8, 3, groups=2, padding=2)),
    image("conv2d_depthwise", lambda: nn.Conv2d(8, 8, 3, groups=8, bias=False)),
    *(
        image(f"conv2d_{mode}", lambda mode=mode: nn.Conv2d(8, 3, 3, padding=1, padding_mode=mode))
        for mode in ("reflect", "replicate", "circular")
    ),
    plain(
        "conv3d",
        lambda: _net(nn.Conv3d(1, 3, 2), nn.ReLU(), nn.Conv3d(3, 2, 2, padding=1), shape=(1, 3, 4, 4)),
        (1, 3, 4, 4),
    ),
    series("conv_transpose1d", lambda: nn.ConvTranspose1d(4, 3, 3, stride=2), flagged=_OUTSIDE),
    image("conv_transpose2d", lambda: nn.ConvTranspose2d(8, 2, 3, stride=2, output_padding=1), flagged=_OUTSIDE),
    image("conv_transpose2d_grouped", lambda: nn.ConvTranspose2d(8, 8, 2, groups=2, dilation=2), flagged=_OUTSIDE),
    plain(
        "conv_transpose3d",
        lambda: _net(nn.ConvTranspose3d(1, 3, 2), nn.ReLU(), shape=(1, 2, 3, 3)),
        (1, 2, 3, 3),
        flagged=_OUTSIDE,
    ),
    # norms
    image("batch_norm2d", lambda: nn.BatchNorm2d(8), nn.ReLU),
    series("batch_norm1d", lambda: nn.BatchNorm1d(4)),
    plain(
        "batch_norm_of_vectors",
        lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, CLASSES)),
    ),
    plain(
        "batch_norm3d", lambda: _net(nn.Conv3d(1, 3, 2), nn.BatchNorm3d(3), nn.ReLU(), shape=(1, 3, 4, 4)), (1, 3, 4, 4)
    ),
    image("batch_norm_without_statistics", lambda: nn.BatchNorm2d(8, track_running_stats=False)),
    image("batch_norm_plain", lambda: nn.BatchNorm2d(8, affine=False)),
    image("batch_norm_evaluated", lambda: nn.BatchNorm2d(8).eval()),
    image("layer_norm", lambda: nn.LayerNorm((8, 4, 4))),
    tokens("layer_norm_of_tokens", lambda: nn.LayerNorm(6)),
    image("layer_norm_plain", lambda: nn.LayerNorm(4, elementwise_affine=False)),
    tokens("layer_norm_without_bias", lambda: nn.LayerNorm(6, bias=False)),
    image("group_norm", lambda: nn.GroupNorm(2, 8)),
    image("instance_norm", lambda: nn.InstanceNorm2d(8, affine=True)),
    image("instance_norm_tracked", lambda: nn.InstanceNorm2d(8, track_running_stats=True)),
    tokens("rms_norm", lambda: nn.RMSNorm(6, eps=1e-5)),
    image("local_response_norm", lambda: nn.LocalResponseNorm(2)),
    # activations
    *(
        image(make.__name__, make)
        for make in (
            nn.ReLU6,
            nn.LeakyReLU,
            nn.ELU,
            nn.SELU,
            nn.CELU,
            nn.GELU,
            nn.SiLU,
            nn.Mish,
            nn.Softplus,
            nn.Softsign,
            nn.Tanhshrink,
            nn.Hardtanh,
            nn.Hardswish,
            nn.Hardsigmoid,
            nn.LogSigmoid,
            nn.Softshrink,
            nn.Hardshrink,
            nn.PReLU,
            nn.RReLU,
            nn.Sigmoid,
            nn.Tanh,
            nn.Softmax2d,
        )
    ),
    image("relu_in_place", lambda: nn.Conv2d(8, 8, 1), lambda: nn.ReLU(inplace=True)),
    image("glu", lambda: nn.GLU(1)),
    tokens("softmax", lambda: nn.Softmax(-1)),
    image("threshold", lambda: nn.Threshold(0.1, 2.0)),
    # pooling, shapes, dropout
    *(
        image(name, make)
        for name, make in {
            "max_pool": lambda: nn.MaxPool2d(2),
            "avg_pool": lambda: nn.AvgPool2d(2),
            "lp_pool": lambda: nn.LPPool2d(3, 2),
            "adaptive_avg_pool": lambda: nn.AdaptiveAvgPool2d(1),
            "adaptive_max_pool": lambda: nn.AdaptiveMaxPool2d(2),
            "upsample": lambda: nn.Upsample(scale_factor=2),
            "bilinear": lambda: nn.UpsamplingBilinear2d(scale_factor=2),
            "pixel_shuffle": lambda: nn.PixelShuffle(2),
            "pixel_unshuffle": lambda: nn.PixelUnshuffle(2),
            "reflection_pad": lambda: nn.ReflectionPad2d(1),
            "zero_pad": lambda: nn.ZeroPad2d((1, 0, 2, 1)),
            "unfold": lambda: nn.Unfold(2),
            "channel_shuffle": lambda: nn.ChannelShuffle(2),
            "dropout": lambda: nn.Dropout(0.5),
            "dropout2d": lambda: nn.Dropout2d(0.5),
            "alpha_dropout": lambda: nn.AlphaDropout(0.5),
            "identity": nn.Identity,
        }.items()
    ),
    # networks in the large
    image("residual_in_place", _Residual),
    image("squeeze_and_excite", _SqueezeExcite),
    plain(
        "bilinear_layer",
        lambda: Lambda(
            lambda s, x: s.head(s.act(s.b(x, x))), b=nn.Bilinear(5, 5, 4), act=nn.ReLU(), head=nn.Linear(4, CLASSES)
        ),
        flagged=_OUTSIDE,
    ),
    tokens("attention", lambda: _Attended(6)),
    plain("attention_of_tokens", _Attention, TOKENS, flagged=_OUTSIDE),
    plain("attention_time_first", lambda: _Attention(batch_first=False), TOKENS, flagged=_OUTSIDE),
    plain("attention_with_bias", lambda: _Attention(add_bias_kv=True), TOKENS, flagged=_OUTSIDE),
    tokens(
        "transformer_encoder_layer", lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), flagged=_OUTSIDE
    ),
    tokens(
        "transformer_gelu",
        lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, norm_first=True, activation="gelu"),
        flagged=_OUTSIDE,
    ),
    plain(
        "transformer_time_first",
        lambda: Lambda(
            lambda s, x: s.head(s.layer(x.transpose(0, 1)).transpose(0, 1).mean(1)),
            layer=nn.TransformerEncoderLayer(4, 2, 8),
            head=nn.Linear(4, CLASSES),
        ),
        TOKENS,
        flagged=(*_OUTSIDE, "naswot"),
    ),
    plain(
        "transformer_time_first_square",
        lambda: Lambda(
            lambda s, x: s.head(s.layer(x.transpose(0, 1)).transpose(0, 1).mean(1)),
            layer=nn.TransformerEncoderLayer(4, 2, 8),
            head=nn.Linear(4, CLASSES),
        ),
        (4, 4),
        flagged=(*_OUTSIDE, "naswot"),
    ),
    tokens("transformer_decoder_layer", lambda: _Decoder(6), flagged=_OUTSIDE),
    # recurrent
    recurrent("lstm", lambda: nn.LSTM(4, 6, batch_first=True), lambda c, x: c(x)[0][:, -1]),
    recurrent(
        "lstm_two_layers", lambda: nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True), lambda c, x: c(x)[0][:, -1]
    ),
    recurrent("lstm_time_first", lambda: nn.LSTM(4, 6), lambda c, x: c(x.transpose(0, 1))[0][-1]),
    recurrent("lstm_projected", lambda: nn.LSTM(4, 8, proj_size=6, batch_first=True), lambda c, x: c(x)[0][:, -1]),
    recurrent("gru", lambda: nn.GRU(4, 6, batch_first=True), lambda c, x: c(x)[1][0]),
    recurrent("rnn", lambda: nn.RNN(4, 6, batch_first=True), lambda c, x: c(x)[0].mean(1)),
    recurrent("rnn_relu", lambda: nn.RNN(4, 6, batch_first=True, nonlinearity="relu"), lambda c, x: c(x)[0].mean(1)),
    recurrent("lstm_cell", lambda: nn.LSTMCell(4, 6), _unrolled),
    recurrent("gru_cell", lambda: nn.GRUCell(4, 6), _unrolled),
    recurrent("rnn_cell", lambda: nn.RNNCell(4, 6), _unrolled),
    # embeddings
    plain("embedding", _Embedded, flagged=("jacob_cov", "synflow", *_OUTSIDE)),
    plain("embedding_bag", lambda: _Embedded(True), flagged=("jacob_cov", "synflow", *_OUTSIDE)),
    plain(
        "embedding_of_whole_numbers",
        lambda: nn.Sequential(nn.Embedding(9, 6), nn.Flatten(), nn.Linear(30, CLASSES)),
        refused="the model does not take",
        inputs=lambda x: x.abs(),
    ),
    # parameters
    plain("tied", _Tied),
    plain("buffers", _Buffers),
    plain("frozen_parameters", _Frozen),
    plain("hypernetwork", _Hyper, flagged=_OUTSIDE),
    plain("unused_layer", _Unused),
    plain("parametrized", _parametrized, flagged=_OUTSIDE),
    plain("float64_parameters", lambda: _mlp().double()),
    plain("bfloat16_parameters", lambda: _mlp().bfloat16()),
    plain("half_parameters", lambda: _mlp().half()),
    plain(
        "weight_norm",
        lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(5, 6)), nn.ReLU(), nn.Linear(6, CLASSES)),
        flagged=_OUTSIDE,
    ),
    plain(
        "old_weight_norm",
        lambda: nn.Sequential(_old_weight_norm(nn.Linear(5, 6)), nn.ReLU(), nn.Linear(6, CLASSES)),
        flagged=_OUTSIDE,
        oracle=_copyable,
    ),
    plain(
        "spectral_norm",
        lambda: nn.Sequential(_spectral(lambda: nn.Linear(5, 6)), nn.ReLU(), nn.Linear(6, CLASSES)),
        flagged=_OUTSIDE,
    ),
    plain(
        "orthogonal",
        lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(5, 6)), nn.ReLU(), nn.Linear(6, CLASSES)),
        flagged=(*_OUTSIDE, "grasp", "grasp_printed"),
    ),
    image("spectral_norm_of_images", lambda: _spectral(lambda: nn.Conv2d(8, 8, 3)), flagged=_OUTSIDE),
    plain("parameter_list", _Lists, flagged=_OUTSIDE),
    plain(
        "no_parameters",
        lambda: nn.Sequential(nn.Flatten(), nn.ReLU()),
        (CLASSES,),
        flagged=(
            "grad",
            "grad_norm",
            "snip",
            "snip_printed",
            "grasp",
            "grasp_printed",
            "nasi",
            "nasi_sum",
            "fisher",
            "synflow",
            "trace",
            "kappa",
            "lambda_min",
            "lambda_relative",
            "eigen",
            "knas",
        ),
    ),
    plain(
        "lazy",
        lambda: nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(CLASSES)),
        oracle=lambda model: _met(model),
    ),
    # compiled
    plain("compiled", lambda: _compiled(_mlp), oracle=_uncompiled),
    plain(
        "compiled_part",
        lambda: nn.Sequential(_compiled(lambda: nn.Linear(5, 6)), nn.ReLU(), nn.Linear(6, CLASSES)),
        oracle=_uncompiled,
    ),
    plain("scripted", lambda: _script(_mlp()), refused="a compiled model cannot be scored"),
    plain("traced", lambda: _traced(_mlp()), refused="a compiled model cannot be scored"),
    plain(
        "scripted_part",
        lambda: nn.Sequential(_script(nn.Linear(5, 6)), nn.ReLU(), nn.Linear(6, CLASSES)),
        refused="a compiled model cannot be scored",
    ),
    # outputs
    odd("tuple", lambda s, x: (s.body(x), x), oracle=_First),
    odd("list", lambda s, x: [s.body(x), x], oracle=_First),
    odd("dict", lambda s, x: {"logits": s.body(x)}, refused="must return a tensor of logits, not dict"),
    odd("none", lambda s, x: None, refused="must return a tensor of logits"),
    odd("scalar", lambda s, x: s.body(x).sum(), refused="must return"),
    odd(
        "vector",
        lambda s, x: s.body(x)[:, 0],
        flagged=("grad", "grad_norm", "snip", "snip_printed", "grasp", "grasp_printed", "nasi", "nasi_sum", "fisher"),
        oracle=_Column,
    ),
    odd("complex", lambda s, x: torch.fft.fft(s.body(x)), refused="must return"),
    odd("integer", lambda s, x: s.body(x).argmax(1), refused="must return"),
    odd("boolean", lambda s, x: s.body(x) > 0, refused="must return"),
    odd("fewer_rows", lambda s, x: s.body(x)[:-1], refused="must return"),
    odd("more_rows", lambda s, x: s.body(x).repeat(2, 1), refused="must return"),
    odd("images", lambda s, x: s.body(x)[:, :, None, None].expand(-1, -1, 2, 2), refused="must return"),
    odd("pixels_of_one", lambda s, x: s.body(x)[:, :, None, None], oracle=_Flat),
    odd("tokens", lambda s, x: s.body(x)[:, None].expand(-1, 2, -1), refused="must return"),
    odd("few_classes", lambda s, x: s.body(x)[:, :2], refused="the network has 2 outputs"),
    odd("empty", lambda s, x: s.body(x)[:, :0], refused="must return"),
    odd("half_inside", lambda s, x: s.body(x.half()), refused="the model does not take"),
    odd("rounded_inside", lambda s, x: s.body(x).float().to(x.dtype)),
    odd("infinite", lambda s, x: s.body(x) / 0, flagged=("naswot",)),
    odd("not_a_number", lambda s, x: s.body(x) * float("nan"), flagged=("naswot",)),
    odd("detached", lambda s, x: s.body(x).detach(), flagged=("naswot",)),
    odd("constant", lambda s, x: s.body(torch.zeros_like(x)), flagged=("jacob_cov",)),
    odd("without_gradient", lambda s, x: _quiet(s.body, x), flagged=("naswot",)),
    odd("inference_mode", lambda s, x: _inference(s.body, x), flagged=("naswot",)),
    # inputs
    odd("writes_into_its_input", _written, oracle=_Own, flagged=_OUTSIDE),
    odd("writes_into_a_part", _written_part, oracle=_Own, flagged=_OUTSIDE),
    odd("other_shape", lambda s, x: s.body(x.view(-1, 7, 3)), refused="the model does not take"),
    odd("raises", lambda s, x: _raise(), refused="the model does not take"),
    odd("needs_keys", lambda s, x: s.body(x["image"]), refused="the model does not take"),
    plain("meta", lambda: _mlp().to("meta"), refused="meta"),
    plain("needs_two_inputs", lambda: nn.Bilinear(5, 5, CLASSES), refused="the model does not take"),
    plain(
        "batch_norm_of_one_value",
        lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, CLASSES)),
        samples=1,
        flagged=("grad",),
    ),
    plain(
        "batch_norm_of_one_value_without_statistics",
        lambda: nn.Sequential(
            nn.Linear(5, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.ReLU(), nn.Linear(6, CLASSES)
        ),
        samples=1,
        flagged=("grad",),
    ),
    plain("one_sample", _mlp, samples=1, flagged=("grad",)),
    plain(
        "zeros_with_batch_norm",
        lambda: _net(nn.Conv2d(2, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        IMAGE,
        inputs=torch.zeros_like,
        flagged=("grad",),
    ),
    plain(
        "tiny_with_batch_norm",
        lambda: _net(nn.Conv2d(2, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        IMAGE,
        inputs=lambda x: x * 1e-30,
        flagged=("grad", "near"),
    ),
    plain("huge", _mlp, inputs=lambda x: x * 1e30, flagged=("grad", "trace", "kappa", "lambda_min", "eigen", "knas")),
    plain("tiny", _mlp, inputs=lambda x: x * 1e-30, flagged=("grad",)),
    plain("equal_inputs", _mlp, inputs=lambda x: x[:1].expand_as(x), flagged=("kappa", "naswot", "jacob_cov")),
)
