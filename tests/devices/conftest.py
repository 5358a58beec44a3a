"""A device that has a name, as `cuda` has where there is one."""

from collections.abc import Iterator

import pytest
import torch

from initio.autodiff import devices
from tests.pretended import GPU


@pytest.fixture
def named_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The device has a name and may be measured on; `.to` makes new parameters of another class."""
    monkeypatch.setattr(devices, "NAMES", devices.re.compile("auto|cpu|meta"))
    monkeypatch.setattr(devices, "available", lambda: ["meta", "cpu"])
    monkeypatch.setattr(devices, "MEASURED_ON", ("cpu", GPU.type))
    monkeypatch.setattr("initio.autodiff.fused.library", lambda: None)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    yield
    torch.__future__.set_overwrite_module_params_on_conversion(False)
