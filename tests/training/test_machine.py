"""Several processes and mixed precision, through Lightning Fabric, train the network that one plain process trains."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import initio
from initio.errors import InputError
from initio.runs.train import resume_training
from initio.training import MachineSettings
from tests.training.cases import refuse

pytestmark = pytest.mark.skipif(find_spec("lightning_fabric") is None, reason="lightning_fabric is not installed")
FEW = {"batch_size": 35, "epochs": 2, "samples": 400, "augment": "none", "tensorboard": False}


def train(folder: Path, **machine: object) -> initio.TrainedModel:
    settings = MachineSettings(device="cpu", **machine)  # type: ignore[arg-type]
    return initio.train("mlp:relu,tanh", "digits", folder=folder, machine=settings, **FEW)  # type: ignore[arg-type]


def test_two_processes_train_the_network_of_one(tmp_path: Path) -> None:
    """Without batch norm, two parts of a batch have the gradient of the whole, also if they are not of one size."""
    one, two = (train(tmp_path / str(n), processes=n) for n in (1, 2))
    for a, b in zip(one.epochs, two.epochs, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-5)
        assert a.validation_loss == pytest.approx(b.validation_loss, rel=1e-5)
        assert a.validation == pytest.approx(b.validation)
    for name, value in one.build("last").state_dict().items():
        assert torch.allclose(value, two.build("last").state_dict()[name], atol=1e-5), name
    assert resume_training(two.folder).outcome == two.outcome


def test_a_mistake_in_a_process_is_one_sentence(tmp_path: Path) -> None:
    machine = MachineSettings(device="cpu", processes=2)
    with pytest.raises(InputError, match="^enough is enough$"):
        initio.train("mlp:relu,tanh", "digits", folder=tmp_path / "t", machine=machine, on_event=refuse, **FEW)


def test_mixed_precision_is_close(tmp_path: Path) -> None:
    full, mixed = (train(tmp_path / precision, precision=precision) for precision in ("32", "bf16"))
    losses = [(a.loss, b.loss) for a, b in zip(full.epochs, mixed.epochs, strict=True)]
    assert all(a == pytest.approx(b, rel=0.05) for a, b in losses)
    assert losses[0][0] != losses[0][1]
    assert all(value.dtype == torch.float32 for value in mixed.build().state_dict().values())


def test_several_nodes_need_torchrun() -> None:
    from initio.training.machine import run_on

    with pytest.raises(InputError, match="several nodes need torchrun"):
        run_on(MachineSettings(device="cpu", nodes=2), lambda machine: None)
