"""A trained network leaves with its weights, its preprocessing and a card, and answers as it did here."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import initio
from initio.cli import main
from initio.data.resize import resize
from initio.data.sources import load_parts
from initio.errors import InputError
from initio.records import from_json
from initio.runs.export import SUFFIXES
from initio.runs.pages.card import ModelCard


@pytest.fixture
def trained(on_pictures: Path, tmp_path: Path) -> initio.TrainedModel:
    return initio.load_model(shutil.copytree(on_pictures, tmp_path / "t"))


def stored_images(trained: initio.TrainedModel) -> tuple[np.ndarray, Tensor]:
    """Images as bytes at the network's size, and its answers here."""
    data = initio.load_data(trained.plan.data)
    images = np.stack([resize(data.images[i], (8, 8)) for i in range(len(data))])
    with torch.inference_mode():
        return images, trained.build()(torch.from_numpy(data.arrays()[0]))


def test_onnx_answers_the_same_for_any_batch(trained: initio.TrainedModel) -> None:
    runtime = pytest.importorskip("onnxruntime")
    path = initio.export(trained, format="onnx")
    assert path == trained.folder / "export/model.onnx"
    images, expected = stored_images(trained)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for count in (1, 3, len(images)):
        answered = session.run(["logits"], {"input": images[:count]})[0]
        assert np.abs(answered - expected[:count].numpy()).max() < 1e-4
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["classes"]) == ["dark", "light"]
    assert from_json(ModelCard, facts["card"]).seed == 0
    bare = initio.export(trained, trained.folder / "bare.onnx", "onnx", preprocess=False)
    x, _ = initio.load_data(trained.plan.data).arrays()
    answered = runtime.InferenceSession(bare, providers=["CPUExecutionProvider"]).run(None, {"input": x})[0]
    assert np.abs(answered - expected.numpy()).max() < 1e-4


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torchscript_answers_the_same(trained: initio.TrainedModel) -> None:
    path, facts = initio.export(trained, format="torchscript"), {"classes": ""}
    loaded = torch.jit.load(path, _extra_files=facts)
    images, expected = stored_images(trained)
    assert torch.allclose(loaded(torch.from_numpy(images)), expected, atol=1e-4)
    assert json.loads(facts["classes"]) == ["dark", "light"]


def test_safetensors_holds_the_weights(trained: initio.TrainedModel) -> None:
    safetensors = pytest.importorskip("safetensors")
    path = initio.export(trained, format="safetensors", which="last")
    state = trained.build("last").state_dict()
    with safetensors.safe_open(path, "pt") as file:
        assert set(file.keys()) == set(state)
        assert all(torch.equal(file.get_tensor(name), value) for name, value in state.items())
        assert from_json(ModelCard, file.metadata()["card"]).which == "last"


ALONE = """
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location

sys.path.append(sys.argv[1])  # torch and what it needs
import numpy as np
import torch

spec = spec_from_file_location("model", sys.argv[2])
model = module_from_spec(spec)
spec.loader.exec_module(model)
network, images = model.load(), np.load(sys.argv[3])
labels = torch.from_numpy(images["labels"])
with torch.inference_mode():
    inputs = (torch.from_numpy(images[f"{i:03}"])[None] for i in range(len(labels)))
    logits = torch.cat([network(model.preprocess(image)) for image in inputs])
np.save(sys.argv[4], logits.numpy())
print(*model.CLASSES, 100 * float((logits.argmax(1) == labels).double().mean()))
print(*(name for name in ("initio", "safetensors", "onnx", "sklearn", "scipy") if find_spec(name)))
"""


def torch_alone(folder: Path) -> Path:
    """An environment of packages: links to torch, numpy, Pillow and all that they require, and to nothing else."""
    folder.mkdir()
    wanted, known = ["torch", "numpy", "pillow"], set[str]()
    while wanted:
        if (name := wanted.pop()) in known:
            continue
        known.add(name)
        with contextlib.suppress(PackageNotFoundError):
            found = distribution(name)
            wanted += [re.split(r"[^\w.-]", need)[0] for need in found.requires or () if "extra ==" not in need]
            for top in {Path(file).parts[0] for file in found.files or ()} - {".."}:
                link = folder / top
                if not link.exists():
                    link.symlink_to(Path(str(found.locate_file(top))))
    return folder


def test_the_python_file_needs_torch_alone(trained: initio.TrainedModel, tmp_path: Path) -> None:
    """In a process that cannot import Initio, from pictures of several sizes as they are stored."""
    path = initio.export(trained, format="python")
    _, test, _ = load_parts(trained.plan.data)
    images = {f"{i:03}": test.images[i] for i in range(len(test))}
    np.savez(tmp_path / "images.npz", labels=test.labels, **images)
    site, files = torch_alone(tmp_path / "site"), (tmp_path / "images.npz", tmp_path / "logits.npy")
    isolated = [sys.executable, "-I", "-S", "-c"]
    done = subprocess.run([*isolated, ALONE, site, path, *files], capture_output=True, text=True, check=True)
    said, others = done.stdout.splitlines()
    assert said == f"dark light {initio.evaluate(trained, save=False).accuracy}"
    assert others == ""
    x, _ = test.arrays()
    with torch.inference_mode():
        expected = trained.build()(torch.from_numpy(x))
    assert np.abs(np.load(tmp_path / "logits.npy") - expected.numpy()).max() < 1e-5
    picture = test.images.where(0)
    start = f"import runpy, sys; sys.path.append({str(site)!r}); del sys.argv[0]"
    run = f"{start}; runpy.run_path(sys.argv[0], None, '__main__')"
    done = subprocess.run([*isolated, run, path, picture], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == f"{trained.outcome.parameters:,} parameters"
    assert second.startswith(f"{picture}: {('dark', 'light')[int(expected[0].argmax())]}, ")


def test_the_card_says_what_there_is_to_know(trained: initio.TrainedModel) -> None:
    path = initio.export(trained, format="python", licence="CC-BY-4.0")
    card = from_json(ModelCard, path.with_suffix(".card.json").read_text())
    plan = trained.plan
    assert (card.seed, card.recipe, card.fingerprint, card.classes) == (0, "quick", plan.fingerprint, ("dark", "light"))
    assert (card.inputs.type, card.inputs.shape, card.inputs.mean) == ("uint8", (3, 8, 8), plan.mean)
    assert card.weights == trained.outcome.weights["best"]
    assert card.test is None
    page = path.with_suffix(".card.md").read_text()
    assert "Licence: CC-BY-4.0" in page
    assert "resize it to 8x8 pixels by averaging over areas, rounded to 8 bits again" in page
    assert "was not evaluated" in page
    assert str(trained.folder.parent) not in page + path.with_suffix(".card.json").read_text()
    seen = initio.evaluate(trained)
    initio.export(trained, format="safetensors")
    card = from_json(ModelCard, path.with_suffix(".card.json").read_text())
    assert card.licence == "CC-BY-4.0"
    assert card.test is not None
    assert (card.test.accuracy, card.test.samples) == (seen.accuracy, 8)
    page = path.with_suffix(".card.md").read_text()
    for file in ("model.py", "model.pt", "model.safetensors"):
        assert f"- `{file}`: " in page


def test_the_command_and_its_mistakes(
    on_digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = shutil.copytree(on_digits, tmp_path / "t")
    monkeypatch.chdir(tmp_path)
    for format, suffix in SUFFIXES.items():
        assert main(["export", "t", "--format", format]) == 0
        assert f"wrote t/export/model{suffix} and its card t/export/model.card.md" in capsys.readouterr().out
    assert main(["export", "t", "--format", "genotype"]) == 0
    assert capsys.readouterr().out.startswith("|nor_conv_3x3~0|")
    for options, sentence in (
        (["t", "--channels", "4"], "--channels is an option for an architecture: leave it out"),
        (["darts_v2", "--which", "last"], "--which is an option for a trained network: leave it out"),
        (["t", "--out", "net.pt"], "let the Python file end in .py"),
        (["t", "--format", "onnx", "--out", "nowhere/net.onnx"], "the folder 'nowhere' does not exist"),
    ):
        assert main(["export", *options]) == 2
        assert sentence in capsys.readouterr().err
    with pytest.raises(InputError, match="is not exported as 'keras'"):
        initio.export(trained, format="keras")


def test_weights_of_another_architecture_are_refused(on_digits: Path, on_pictures: Path, tmp_path: Path) -> None:
    trained = Path(shutil.copytree(on_digits, tmp_path / "t"))
    shutil.copy(on_pictures / "best.pt", trained / "best.pt")
    with pytest.raises(InputError, match="are of another network"):
        initio.export(trained, format="onnx")
    assert not list(trained.glob("export/model*"))
