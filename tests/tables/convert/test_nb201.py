"""NAS-Bench-201's file, NATS-Bench's file and its folder become the same table."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from initio import InputError
from initio.records import Query
from initio.spaces import NB201
from initio.tables import open_compact, open_table
from initio.tables.convert import convert
from tests.tables.files import CELLS, Runs, accuracy, nats_folder, nb201, write_bz2


def mean(index: int, data: str, part: str) -> float:
    return sum(accuracy(index, data, part, 200, seed) for seed in (777, 888)) / 2


@pytest.mark.parametrize("zipped", [True, False])
def test_pth(zipped: bool, tmp_path: Path) -> None:
    torch.save(nb201(), tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    done = convert(tmp_path / "a.pth", tmp_path / "a.npz")
    assert (done.kind, done.length) == ("NAS-Bench-201", 3)
    table = open_compact(str(tmp_path / "a.npz"))
    assert (table.space, table.length) == ("nb201", 3)
    assert np.isnan([table.column(name)[2] for name in table.columns]).all()
    for i in (0, 1):
        expected = {
            "val12_c10": accuracy(i, "cifar10-valid", "x-valid", 12, 777),
            "test12_c10": accuracy(i, "cifar10", "ori-test", 12, 777),
            "test12_in16": accuracy(i, "ImageNet16-120", "x-test", 12, 777),
            "val_c10_nb201": mean(i, "cifar10-valid", "x-valid"),
            "test_c10_nb201": mean(i, "cifar10", "ori-test"),
            "test_c10valid_nb201": mean(i, "cifar10-valid", "ori-test"),
            "val_c100_nb201": mean(i, "cifar100", "x-valid"),
            "test_in16_nb201": mean(i, "ImageNet16-120", "x-test"),
            "time200_c10": 200 * (2.0 + i),
            "params_c100": 0.5 + i,
            "flops_in16": 100 + i,
        }
        assert {name: table.column(name)[i] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_the_file_and_the_folder_of_nats_agree(tmp_path: Path) -> None:
    folder = nats_folder(tmp_path / "NATS-tss-v1_0-3ffb9-simple")
    write_bz2(tmp_path / "NATS-tss-v1_0-3ffb9.pickle.pbz2", nb201(("12", "200")))
    torch.save(nb201(), tmp_path / "a.pth")
    found = []
    for source in (folder, tmp_path / "NATS-tss-v1_0-3ffb9.pickle.pbz2", tmp_path / "a.pth"):
        convert(source, tmp_path / "out.npz")
        with np.load(tmp_path / "out.npz") as arrays:
            found.append({name: arrays[name] for name in arrays.files})
    assert list(found[0]) == list(found[1])
    renamed = [name.replace("_nb201", "_nats") for name in found[2]]
    assert list(found[0]) == renamed
    for other in found[1:]:
        for a, b in zip(found[0].values(), other.values(), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_converted_table_is_a_benchmark(tmp_path: Path) -> None:
    convert(nats_folder(tmp_path / "nats"), tmp_path / "nats.npz")
    benchmark = open_table("nats.npz", tmp_path, dataset="c100")
    first, second, untrained = map(NB201.parse, CELLS)
    assert benchmark.architectures == (first, second)
    assert benchmark.validation.epochs == (12, 200)
    short, long = benchmark.validation(Query(second)), benchmark.validation(Query(second, 200))
    assert short.value == pytest.approx(accuracy(1, "cifar100", "x-valid", 12, 777))
    assert (short.seconds, long.seconds) == (pytest.approx(12 * 3), pytest.approx(200 * 3))
    assert benchmark.report(second)["c10"] == pytest.approx(mean(1, "cifar10", "ori-test"))
    assert benchmark.report(untrained) == {}
    assert untrained not in benchmark.validation


def broken() -> dict[str, tuple[Any, str]]:
    good = nb201()
    no_results, far, untrained, sized, texts = (copy.deepcopy(good) for _ in range(5))
    del no_results["arch2infos"][0]["full"]["all_results"]
    far["arch2infos"][7] = far["arch2infos"].pop(0)
    untrained["arch2infos"].clear()
    sized["meta_archs"] = ["8:8:8:8:8"]
    texts["arch2infos"][0]["full"]["all_results"]["cifar100", 777]["eval_acc1es"]["x-test@199"] = "73"
    return {
        "list": ([1], "it has no list of cells"),
        "no cells": ({"arch2infos": {}}, "it has no list of cells"),
        "no results": (no_results, "the results of architecture 0 are not as published: 'all_results'"),
        "no dictionary": ({"meta_archs": CELLS}, "has no results: 'arch2infos' should be there"),
        "far": (far, "has results of architecture 7, its cells are 0 to 2"),
        "untrained": (untrained, "has no results of any architecture"),
        "sized": (sized, "does not list cells of nb201: an nb201 cell has 3 nodes"),
        "texts": (texts, "the results of architecture 0 are not as published: a str in place of a number"),
    }


@pytest.mark.parametrize("name", broken())
def test_what_is_not_as_published(name: str, tmp_path: Path) -> None:
    data, text = broken()[name]
    torch.save(data, tmp_path / "a.pth")
    with pytest.raises(InputError, match=text):
        convert(tmp_path / "a.pth", tmp_path / "a.npz")
    assert not (tmp_path / "a.npz").exists()


def test_a_malicious_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INITIO_TEST_WITNESS", str(tmp_path / "executed"))
    folder = nats_folder(tmp_path / "nats")
    write_bz2(folder / "000001.pickle.pbz2", {"12": Runs()})
    with pytest.raises(InputError, match=r"000001.pickle.pbz2 refers to posix.system: refused"):
        convert(folder, tmp_path / "a.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nats"]


def test_a_cut_folder(tmp_path: Path) -> None:
    folder = nats_folder(tmp_path / "nats")
    path = folder / "000000.pickle.pbz2"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"000000.pickle.pbz2 is damaged"):
        convert(folder, tmp_path / "a.npz")
    (folder / "meta.pickle.pbz2").unlink()
    with pytest.raises(InputError, match=r"is not a folder of NATS-Bench: it has no meta.pickle.pbz2"):
        convert(folder, tmp_path / "a.npz")


def test_what_cannot_be_converted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("accuracy of many cells")
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(nb201()))
    for name, out, text in [
        ("a.txt", "a.npz", "is none of the files that can be converted: NAS-Bench-201 .pth"),
        ("a.pkl", "a.npz", "is not a file that torch saved"),
        ("nowhere", "a.npz", "there is no file or folder"),
        ("a.txt", "a.csv", "a table's file is called TABLE.npz"),
    ]:
        with pytest.raises(InputError, match=text):
            convert(tmp_path / name, tmp_path / out)
