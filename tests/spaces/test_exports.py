"""Exported networks are the built ones: same names, same weights fit, same outputs."""

import json
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from initio import Architecture, InputError, NetworkSettings, build, from_json, parse
from initio.spaces import SPACES, ZOO, Genotype, get_space
from initio.spaces.exports import FORMATS, export, exported

CELL = "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|"
WIDE = (  # four vertices share the output's channels, one of them reads a wider one
    "ModelSpec(matrix=[[0,1,1,0,0,0],[0,0,1,0,0,1],[0,0,0,1,0,1],[0,0,0,0,1,1],[0,0,0,0,0,1],[0,0,0,0,0,0]], "
    "ops=['input','conv1x1-bn-relu','conv3x3-bn-relu','maxpool3x3','conv3x3-bn-relu','output'])"
)
SMALL = NetworkSettings(channels=6, cells=3, shape=(3, 16, 16))
RUFF = shutil.which("ruff", path=Path(sys.executable).parent) or shutil.which("ruff")


def samples(space: str, count: int) -> list[str]:
    """Notations of some architectures of a space."""
    rng = Random(0)
    return [get_space(space).format(get_space(space).sample(rng)) for _ in range(count)]


def load(source: str) -> Any:
    """The exported file as a module's names."""
    names: dict[str, Any] = {"__name__": "net"}
    exec(compile(source, "net.py", "exec"), names)
    return names


def built(arch: Architecture, settings: NetworkSettings) -> nn.Module:
    return build(arch, **vars(settings))


def trained(model: nn.Module) -> nn.Module:
    """As after some training: no batch norm is the identity."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.dtype.is_floating_point and value.ndim == 1:
                value.copy_(
                    torch.rand(value.shape, generator=generator) + (0.5 if "var" in name or "weight" in name else 0)
                )
    return model.eval()


def inputs(settings: NetworkSettings, m: int = 2) -> Tensor:
    return torch.randn(m, *settings.shape, generator=torch.Generator().manual_seed(2))


def check(text: str, settings: NetworkSettings) -> str:
    """The exported source has the built network's state dict and outputs, at its size and at another one."""
    arch = parse(text)
    source = exported(arch, "python", **vars(settings)).decode()
    names = load(source)
    network, model = names["Network"]().eval(), trained(built(arch, settings))
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    assert {name: value.shape for name, value in network.state_dict().items()} == shapes
    assert list(network.state_dict()) == list(shapes)
    network.load_state_dict(model.state_dict())
    x = inputs(settings)
    assert torch.equal(network(x), model(x))
    assert settings.channels is not None
    other = replace(settings, channels=settings.channels + 5, classes=7)
    shapes = {name: value.shape for name, value in built(arch, other).state_dict().items()}
    resized = names["Network"](classes=7, channels=other.channels)
    assert {name: value.shape for name, value in resized.state_dict().items()} == shapes
    return source


@pytest.mark.parametrize("space", [name for name in SPACES if name != "mlp"])
def test_python_of_every_space(space: str) -> None:
    for text in samples(space, 3 if space == "darts" else 5):
        check(text, SMALL)


@pytest.mark.parametrize("name", ZOO)
def test_python_of_every_published_cell(name: str) -> None:
    check(name, replace(SMALL, channels=4, cells=6))


@pytest.mark.parametrize("text", [*samples("mlp", 3), "mlp:relu", "mlp:relu,tanh,sigmoid;skips=1,2"])
@pytest.mark.parametrize("shape", [(3, 4, 4), (20,)])
def test_python_of_perceptrons(text: str, shape: tuple[int, ...]) -> None:
    check(text, NetworkSettings(channels=8, shape=shape))


@pytest.mark.parametrize("norm", ["affine", "plain", "none"])
@pytest.mark.parametrize("text", [CELL, WIDE, "nasnet"])
def test_python_with_every_norm(text: str, norm: str) -> None:
    check(text, replace(SMALL, norm=norm))  # type: ignore[arg-type]


@pytest.mark.parametrize("choices", [(0, 0, 0, 0, 0, 0), (1, 1, 1, 1, 1, 1), (3, 0, 0, 1, 0, 4), (3, 0, 2, 0, 0, 0)])
@pytest.mark.parametrize("prune", [True, False])
def test_python_of_odd_cells(choices: tuple[int, ...], prune: bool) -> None:
    """Nothing but zeros, nothing but skips, convolutions that lead nowhere."""
    check(get_space("nb201").format(Architecture("nb201", choices)), replace(SMALL, prune=prune))


@pytest.mark.parametrize("cells", [1, 2, 3, 4])
def test_python_of_few_cells(cells: int) -> None:
    for text in (CELL, WIDE, "darts_v2", "amoebanet"):
        check(text, replace(SMALL, cells=cells))


@pytest.mark.parametrize("channels", [5, 8, 12, 31])
def test_python_of_widths_that_do_not_divide(channels: int) -> None:
    assert "Truncate" in check(WIDE, replace(SMALL, channels=channels, cells=1))


def test_python_of_large_images() -> None:
    check("darts_v1", NetworkSettings(channels=4, cells=4, shape=(3, 96, 96)))


def test_python_with_an_auxiliary_head() -> None:
    settings = replace(SMALL, cells=6, shape=(3, 32, 32), auxiliary=True)
    source = check("darts_v2", settings)
    exported, model = load(source)["Network"](), trained(built(parse("darts_v2"), settings)).train()
    exported.load_state_dict(model.state_dict())
    pairs = exported(inputs(settings)), model(inputs(settings))
    assert all(torch.equal(a, b) for a, b in zip(*pairs, strict=True))


def test_python_with_drop_path() -> None:
    check("darts_v2", replace(SMALL, drop_path=0.2))


def test_python_keeps_to_the_operations_in_use() -> None:
    source = exported(CELL, "python").decode()
    assert "class NorConv3x3" in source
    assert "Sep" not in source
    assert "initio" not in source.replace("Initio", "")
    assert source == exported(CELL, "python").decode()


def test_python_has_loops_formulas_and_a_class_a_cell() -> None:
    source = exported("darts_v2", "python").decode()
    for lines in (
        "for number in range(3, 7):\n"
        '            self.add_module(f"cell_{number}", NormalCell(4 * channels, 4 * channels, channels))',
        'for number in range(1, 21):\n            before, last = last, getattr(self, f"cell_{number}")(before, last)',
        "node_2 = self.node_2_from_0_a(input_0) + self.node_2_from_1_b(input_1)",
        "class NormalCellAfterReduction(NormalCell):",
    ):
        assert lines in source
    assert "Conv3x3BnRelu((channels + 2) // 4, (channels + 2) // 4)" in exported(WIDE, "python").decode()


def test_python_says_what_it_is() -> None:
    head = exported(CELL, "python").decode().partition("import")[0]
    assert f"# {CELL}\n" in head
    assert "Initio 0" in head


def test_python_is_formatted(tmp_path: Path) -> None:
    unpruned = NetworkSettings(prune=False)
    cases = [(text, unpruned) for space in SPACES for text in samples(space, 4)]
    cases += [(name, NetworkSettings(auxiliary=True, drop_path=0.1)) for name in ZOO]
    cases += [(CELL, NetworkSettings()), (WIDE, NetworkSettings()), ("nasnet", NetworkSettings(shape=(3, 224, 224)))]
    for number, (text, settings) in enumerate(cases):
        export(text, tmp_path / f"net_{number}.py", "python", **vars(settings))
    assert RUFF is not None, "ruff is part of the development environment"
    options = ["--isolated", "--line-length", "120", "--no-cache"]
    subprocess.run([RUFF, "format", "--check", "--diff", *options, tmp_path], check=True)
    subprocess.run([RUFF, "check", "--select", "F,I,W", *options, tmp_path], check=True)


WITHOUT_INITIO = """
import runpy, sys
sys.modules["initio"] = None
for path in sys.argv[1:]:
    runpy.run_path(path, run_name="__main__")
"""


def test_python_runs_without_initio(tmp_path: Path) -> None:
    parameters = {CELL: "344,346", "darts_v2": "3,349,342"}
    paths = [tmp_path / f"net_{number}.py" for number in range(len(parameters))]
    for path, (text, count) in zip(paths, parameters.items(), strict=True):
        export(text, path, "python")
        assert f"{sum(p.numel() for p in build(text).parameters()):,}" == count
    argv = [sys.executable, "-I", "-W", "error", "-c", WITHOUT_INITIO, *paths]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{count} parameters\n" for count in parameters.values())


# --- the other formats -----------------------------------------------------------------------------------------------


def test_notation_and_json_read_back(tmp_path: Path) -> None:
    for text in (CELL, WIDE, "darts_v2", "mlp:relu,tanh"):
        arch = parse(text)
        assert isinstance(arch, Architecture)
        export(arch, tmp_path / "arch.txt", "genotype")
        export(arch, tmp_path / "arch.json", "json")
        assert parse((tmp_path / "arch.txt").read_text()) == arch
        assert from_json(Architecture, (tmp_path / "arch.json").read_text()) == arch
    export(parse("nasnet"), tmp_path / "arch.txt", "genotype")
    assert Genotype.parse((tmp_path / "arch.txt").read_text()) == ZOO["nasnet"]


TRACED = [
    (CELL, SMALL),
    ("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|", SMALL),
    (WIDE, SMALL),
    ("darts_v2", SMALL),
    ("amoebanet", replace(SMALL, cells=4, shape=(1, 9, 9))),
    ("mlp:relu,tanh,sigmoid,swish,leaky_relu;skips=1", NetworkSettings(channels=8, shape=(1, 4, 4))),
]


@pytest.mark.parametrize(("text", "settings"), TRACED)
def test_torchscript_equals_the_network(text: str, settings: NetworkSettings, tmp_path: Path) -> None:
    path, weights = tmp_path / "net.pt", tmp_path / "weights.pt"
    model = trained(built(parse(text), settings))
    torch.save(model.state_dict(), weights)
    export(parse(text), path, "torchscript", **vars(settings), weights=weights)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        exported = torch.jit.load(path)
    for m in (1, 5):
        torch.testing.assert_close(exported(inputs(settings, m)), model(inputs(settings, m)))


@pytest.mark.parametrize(("text", "settings"), TRACED)
def test_onnx_equals_the_network(text: str, settings: NetworkSettings, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'initio[dev]'")
    path, weights = tmp_path / "net.onnx", tmp_path / "weights.pt"
    model = trained(built(parse(text), settings))
    torch.save(model.state_dict(), weights)
    export(parse(text), path, "onnx", **vars(settings), weights=weights)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    for m in (1, 5):
        x = inputs(settings, m)
        (logits,) = session.run(["logits"], {"input": x.numpy()})
        np.testing.assert_allclose(logits, model(x).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_without_weights_the_network_is_that_of_the_seed(tmp_path: Path) -> None:
    export(parse(CELL), tmp_path / "net.pt", "torchscript", **vars(SMALL), seed=3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        exported = torch.jit.load(tmp_path / "net.pt")
    x = inputs(SMALL)
    torch.testing.assert_close(exported(x), build(CELL, seed=3, **vars(SMALL)).eval()(x))


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_onnx_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"needs the package onnx: pip install 'initio\[export\]'"):
        export(parse(CELL), tmp_path / "net.onnx", "onnx", **vars(SMALL))
    assert not list(tmp_path.iterdir())


def test_weights_must_fit(tmp_path: Path) -> None:
    state = build(CELL, **vars(SMALL)).state_dict()
    wrong = {
        "they lack 'stem.0.weight'": {},
        "'stem.0.weight' is 9x3x3x3, it should be 6x3x3x3": build(
            CELL, **vars(replace(SMALL, channels=9))
        ).state_dict(),
        "it has no 'further'": {**state, "further": torch.zeros(1)},
        "is not a state dict": [1, 2],
    }
    for message, content in wrong.items():
        torch.save(content, tmp_path / "weights.pt")
        with pytest.raises(InputError, match=message):
            export(parse(CELL), tmp_path / "net.pt", "torchscript", **vars(SMALL), weights=tmp_path / "weights.pt")
    for content in (b"", b"\x80\x04]\x94.", b"PK\x03\x04", b"text", json.dumps({"a": 1}).encode()):
        (tmp_path / "weights.pt").write_bytes(content)
        with pytest.raises(InputError, match="is not a state dict"):
            export(parse(CELL), tmp_path / "net.pt", "torchscript", **vars(SMALL), weights=tmp_path / "weights.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["weights.pt"]


@pytest.mark.parametrize(
    ("arch", "format", "settings", "weights", "message"),
    [
        (CELL, "onxx", SMALL, None, "there is no export format 'onxx': did you mean 'onnx'"),
        (CELL, "python", SMALL, "w.pt", "a file of format python holds no weights"),
        (CELL, "torchscript", SMALL, "w.pt", "the file of weights 'w.pt' does not exist"),
        (CELL, "python", NetworkSettings(shape=(20,)), None, "nb201 needs inputs of shape"),
        ("darts_v2", "python", NetworkSettings(shape=(3, 8)), None, "darts needs inputs of shape"),
        ("darts_v2", "python", replace(SMALL, auxiliary=True), None, "the auxiliary head needs at least 6x6 positions"),
    ],
)
def test_mistakes(
    arch: str, format: str, settings: NetworkSettings, weights: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        export(parse(arch), tmp_path / "net", format, **vars(settings), weights=weights)
    assert not list(tmp_path.iterdir())


def test_every_format_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in FORMATS)
