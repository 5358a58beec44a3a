"""The surrogate of NAS-Bench-301: many at once as one by one, and as its description says."""

import json
import math
from pathlib import Path
from random import Random
from shutil import copy

import numpy as np
import pytest

from initio import InputError
from initio.records import Architecture, Query
from initio.spaces import DARTS
from initio.tables import open_table
from initio.tables.nb301 import PREFIX, Surrogate, code_words
from tests.tables.files import SHARED, needs_data

WEIGHTS = SHARED / "nb301_surrogate_yahpo_v1.npz"


def slow(arch: Architecture, epoch: int) -> tuple[float, float]:
    """One architecture, from its genotype, number by number."""
    codes = json.loads(WEIGHTS.with_name(f"{WEIGHTS.stem}_encoding.json").read_text())
    with np.load(WEIGHTS) as arrays:
        w = {name: arrays[name].astype(float) for name in arrays.files}
    words = dict.fromkeys(code_words(), "#na#")
    genotype = DARTS.genotype(arch)
    for cell, pairs in (("normal", genotype.normal), ("reduce", genotype.reduce)):
        for place, (op, source) in enumerate(pairs):
            first = {2: 0, 3: 2, 4: 5, 5: 9}[place // 2 + 2]
            words[f"edge_{cell}_{first + source}"] = op
        for node in (3, 4, 5):
            a, b = sorted(source for _, source in pairs[2 * node - 4 : 2 * node - 2])
            words[f"inputs_node_{cell}_{node}"] = f"{a}_{b}"
    x: list[float] = []
    for k, (name, word) in enumerate(words.items()):
        x += w[f"embed_{k:02}"][codes[PREFIX + name][word]].tolist()
    x.append(epoch * float(w["epoch_scale"]))
    y = [0.0, 0.0]
    for layers in (
        ["wide.0"],
        ["deep.0.1", "deep.1.1", "deep.2.0"],
        [f"deeper.{k}.1" for k in range(4)] + ["deeper.4.0"],
    ):
        h = x
        for layer in layers:
            rows = zip(w[f"{layer}.weight"].tolist(), w[f"{layer}.bias"].tolist(), strict=True)
            h = [bias + math.fsum(a * b for a, b in zip(row, h, strict=True)) for row, bias in rows]
            if layer != layers[-1]:
                h = [1.0507009873554805 * (v if v > 0 else 1.6732632423543772 * math.expm1(v)) for v in h]
        y = [a + b for a, b in zip(y, h, strict=True)]
    s = [1 / (1 + math.exp(-v)) for v in y]
    return 100 * s[0], (s[1] - 0.01) * float(w["runtime_scale"]) + float(w["runtime_shift"])


@needs_data
def test_many_at_once_agree_with_number_by_number() -> None:
    rng = Random(0)
    archs = [DARTS.sample(rng) for _ in range(2)]
    surrogate = Surrogate(WEIGHTS)
    for epochs in (98, 7):
        found = np.stack(surrogate.predict(archs, epochs), 1)
        np.testing.assert_allclose(found, [slow(arch, epochs) for arch in archs], atol=2e-6)


@needs_data
def test_one_by_one_is_the_same_to_the_last_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(1)
    archs = [DARTS.sample(rng) for _ in range(60)]
    benchmark = open_table("nb301", SHARED)
    values, seconds = Surrogate(WEIGHTS).predict(archs, 98)
    for arch, value, cost in zip(archs, values, seconds, strict=True):
        found = benchmark.validation(Query(arch))
        assert (found.value, found.seconds) == (value, cost)
    monkeypatch.setattr("initio.tables.nb301.BATCH", 7)
    assert Surrogate(WEIGHTS).predict(archs, 98)[0].tolist() == values.tolist()
    assert Surrogate(WEIGHTS).predict([], 98)[0].shape == (0,)


@needs_data
def test_nb301_has_no_end_and_no_test_accuracy() -> None:
    benchmark = open_table("nb301", SHARED)
    arch = DARTS.sample(Random(0))
    assert benchmark.architectures is None
    assert arch in benchmark.validation
    assert benchmark.report(arch) == {"surrogate": benchmark.validation(Query(arch, 98)).value}
    assert (benchmark.report.regret(arch), benchmark.report.rank(arch)) == (None, None)
    short = open_table("nb301", SHARED, epochs=10)
    assert short.validation(Query(arch)) == benchmark.validation(Query(arch, 10))
    assert short.validation(Query(arch)).seconds < benchmark.validation(Query(arch)).seconds
    assert short.report(arch) == benchmark.report(arch)
    with pytest.raises(InputError, match="there are trainings of 1 to 98 epochs, not of 99"):
        benchmark.validation(Query(arch, 99))
    with pytest.raises(InputError, match="there are trainings of 1 to 98 epochs, not of 0"):
        open_table("nb301", SHARED, epochs=0)
    with pytest.raises(InputError, match="nb301 has one data set"):
        open_table("nb301", SHARED, dataset="c100")


@needs_data
def test_files_that_are_not_the_surrogate(tmp_path: Path) -> None:
    arch = DARTS.sample(Random(0))
    copy(WEIGHTS, tmp_path / "w.npz")
    with pytest.raises(InputError, match=r"codes are read from .*w_encoding.json, which is not there"):
        Surrogate(tmp_path / "w.npz").predict([arch], 98)
    (tmp_path / "w_encoding.json").write_text("{}")
    with pytest.raises(InputError, match=r"w_encoding.json does not hold the codes of the surrogate"):
        Surrogate(tmp_path / "w.npz").predict([arch], 98)
    copy(WEIGHTS.with_name(f"{WEIGHTS.stem}_encoding.json"), tmp_path / "w_encoding.json")
    with np.load(WEIGHTS) as file:
        weights = dict(file)
    for change, text in [
        ({"epoch_scale": None}, "it has no array 'epoch_scale'"),
        ({"epoch_scale": np.array("1")}, r"epoch_scale in .*w.npz should be numbers of shape \(\), not <U1"),
        ({"runtime_shift": np.zeros(3)}, r"runtime_shift in .* should be numbers of shape \(\), not float64 of \(3,\)"),
        ({"embed_07": np.zeros((2, 10))}, "embed_07 in .* has 2 rows, its codes need more"),
        (
            {"embed_07": np.zeros((8, 9))},
            r"wide.0.weight in .* shape \(any, 336\), not float32 of \(2, 337\)",
        ),
        (
            {"deep.1.1.bias": np.zeros(511)},
            r"deep.1.1.bias in .* shape \(512,\), not float64 of \(511,\)",
        ),
        ({"wide.0.bias": np.full(2, np.nan)}, "wide.0.bias in .* holds a value that is not a finite number"),
        ({"wide.0.weight": None}, "the surrogate's weights lack a branch"),
    ]:
        changed = {name: values for name, values in (weights | change).items() if values is not None}
        np.savez(tmp_path / "w.npz", **changed)
        with pytest.raises(InputError, match=text):
            Surrogate(tmp_path / "w.npz").predict([arch], 98)


@needs_data
@pytest.mark.parametrize("code", [-1, 10**30, "x", None, 1e400])
def test_codes_that_are_none(tmp_path: Path, code: object) -> None:
    copy(WEIGHTS, tmp_path / "w.npz")
    codes = json.loads(WEIGHTS.with_name(f"{WEIGHTS.stem}_encoding.json").read_text())
    codes[f"{PREFIX}edge_normal_3"]["skip_connect"] = code
    (tmp_path / "w_encoding.json").write_text(json.dumps(codes))
    with pytest.raises(InputError, match="does not hold the codes of the surrogate"):
        Surrogate(tmp_path / "w.npz").predict([DARTS.sample(Random(0))], 98)
