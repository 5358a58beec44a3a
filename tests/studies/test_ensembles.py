"""The comparison of ensembles runs, goes on, and prints what its folders hold, at a size without meaning."""

from pathlib import Path

import numpy as np
import pytest

import initio
from initio.errors import InputError
from initio.searches.ensembles import TooSureError
from studies import ensembles


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return shrunk(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All ensembles of the study, once."""
    with pytest.MonkeyPatch.context() as patched:
        home = shrunk(tmp_path_factory.mktemp("study"), patched)
        ensembles.run(home, home / "ens", ("cifar10",), seeds=1)
    return home / "ens"


def shrunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data, and settings without meaning."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, size=(60, 32, 32, 3), dtype=np.uint8), np.arange(60, dtype=np.uint8) % 10
    np.savez(tmp_path / "cifar10_sub10k.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    kept = ("NESBS (MC)", "DeepEns (mode)")
    for name, value in {
        "IMAGES": 50,
        "SUPERNET": {"epochs": 1, "posterior_epochs": 1, "posterior_updates": 1, "batch_size": 16},
        "MEMBERS": {"channels": 2, "cells": 1, "epochs": 1, "size": 2},
        "ROWS": {kept[0]: {**ensembles.ROWS[kept[0]], "candidates": 3}, kept[1]: ensembles.ROWS[kept[1]]},
        "ATTACKED": {"fgsm": 5},
        "BUDGETS": (5, 10),
        "TEMPERATURES": (1.0,),
        "DELTAS": (-2.0, 1.0),
        "NETWORKS": 3,
        "DEFENDED": kept[:1],
        "BEST_RESPONSE": kept[:1],
    }.items():
        monkeypatch.setattr(ensembles, name, value)
    return tmp_path


def test_it_runs_once_and_says_what_it_found(tiny: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ensembles.page(out)
    found = initio.load_ensemble(ensembles.folder_of(out, "cifar10", 0, "DeepEns (mode)"))
    assert f"| DeepEns (mode) | 1 | {found.outcome.judgement.error:.2f} |" in text
    assert f"| the mode alone, mean of its trainings | 1 | {found.outcome.judgement.ate:.2f} |" in text
    for table in ("Table 5.4", "Table 5.5", "Table 5.6", "Table 5.7"):
        assert table in text
    with np.load(out / "data" / "cifar10-50.npz") as made:
        assert made["x_train"].shape == (50, 16, 16, 3)
    monkeypatch.setattr(initio, "ensemble", None)  # nothing is made again
    ensembles.run(tiny, out, ("cifar10",), seeds=1)
    assert ensembles.page(out) == text


def test_a_posterior_that_is_too_sure_has_no_ensemble_and_is_counted(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = initio.ensemble

    def unless_beside(*args: object, folder: Path, **asked: object) -> object:
        if folder.name.endswith("best-response"):
            raise TooSureError("none of 60 draws")
        return make(*args, folder=folder, **asked)

    monkeypatch.setattr(initio, "ensemble", unless_beside)
    ensembles.run(tiny, tiny / "ens", ("cifar10",), seeds=1)
    assert "| NESBS (MC) | 0 | 1 |  |  |" in ensembles.page(tiny / "ens")


def test_a_shared_network_of_other_settings_is_refused(tiny: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ensembles.SUPERNET, "epochs", 2)
    with pytest.raises(InputError, match="epochs"):
        ensembles.run(tiny, out, ("cifar10",), seeds=1)


def test_its_figures_have_every_line(tiny: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ensembles.figures(out, tiny)
    told = capsys.readouterr().out
    for n in (3, 5):
        for name in ("NESBS (SVGD-RD)", "NESBS (MC)", "NES-RS", "random", "single best"):
            assert f"Figure 5.3, n = {n}, {name}: 5: " in told
    assert "Figure 5.7, different networks of 5, τ = 1: -2: " in told
    assert "Figure 5.5, best-response, best of 3 random" in told
    ensembles.members(out, tiny / "ensembles-5-4.svg")
    for number in range(3, 8):
        assert (tiny / f"ensembles-5-{number}.svg").read_text().startswith("<?xml")


def test_an_interval_is_students() -> None:
    assert ensembles._with_interval([1.0, 2.0, 3.0]) == "2.00 ± 2.48"  # 4.303 / √3
    assert ensembles._with_interval([1.0]) == "1.00"
