"""The benchmarks by name: BENCHMARKS, the one list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from initio.errors import InputError, did_you_mean
from initio.spaces import get_space
from initio.spaces.nb1shot1 import NB1Shot1Space
from initio.tables.base import Benchmark, NoValidation, listed
from initio.tables.compact import find_table, open_table
from initio.tables.surrogate import SurrogateValidation, nb301
from initio.tables.tabular import TableReport, TableValidation, nb101, nb201

BENCHMARKS: dict[str, tuple[str, str]] = {  # name -> its file, and what it is
    "nb201": ("nb201_tss.npz", "NAS-Bench-201, 15,625 cells on CIFAR-10, CIFAR-100 and ImageNet16-120"),
    "nb101": ("nb101.npz", "NAS-Bench-101, 423,624 cells on CIFAR-10"),
    "nb1shot1-s1": ("nb101.npz", "NAS-Bench-1Shot1, search space 1, by the cells of NAS-Bench-101"),
    "nb1shot1-s2": ("nb101.npz", "NAS-Bench-1Shot1, search space 2, by the cells of NAS-Bench-101"),
    "nb1shot1-s3": ("nb101.npz", "NAS-Bench-1Shot1, search space 3, by the cells of NAS-Bench-101"),
    "nb301": ("nb301_surrogate_yahpo_v1.npz", "NAS-Bench-301, a surrogate of the DARTS space on CIFAR-10"),
}


def open_benchmark(
    name: str,
    folder: Path | str | None = None,
    *,
    dataset: str = "c10",
    epochs: int | None = None,
    version: str | None = None,
    table: Path | str | None = None,
) -> Benchmark:
    """A benchmark by its name in BENCHMARKS, or by the file of its table.

    Args:
        name: of the benchmark, or of a table's file.
        folder: where its files are; by default that of INITIO_DATA.
        dataset: whose validation accuracy selects (`nb201` only): c10, c100 or in16.
        epochs: length of training of a query that names none; by default 12 (`nb201`), 108 (`nb101`), 98 (`nb301`).
        version: file of the reported test accuracies (`nb201` only): nb201 or nats; by default the first that is there.
        table: a file in place of the benchmark's own, as `initio convert` writes it.
    """
    if name not in BENCHMARKS and not str(name).endswith(".npz"):
        raise InputError(f"there is no benchmark {name!r}: {did_you_mean(name, list(BENCHMARKS))}")
    file = str(table or (BENCHMARKS[name][0] if name in BENCHMARKS else name))
    if name == "nb301":
        benchmark = nb301(find_table(file, folder))
    else:
        opened = open_table(file, folder)
        kind = name if name in BENCHMARKS else opened.space
        if kind == "nb201":
            benchmark = nb201(opened, dataset, version)
        else:
            space = get_space(kind)
            benchmark = nb101(opened, space if isinstance(space, NB1Shot1Space) else None)
    if benchmark.name != "nb201" and (dataset != "c10" or version is not None):
        raise InputError(f"{benchmark.name} has one data set, c10, and one version")
    return benchmark if epochs is None else _with_default(benchmark, epochs)


def _with_default(benchmark: Benchmark, epochs: int) -> Benchmark:
    """The same benchmark with another length of training for queries that name none."""
    validation, report = benchmark.validation, benchmark.report
    if isinstance(validation, NoValidation):
        raise InputError(validation.why)
    if epochs not in validation.epochs:
        raise InputError(f"{benchmark.name} has trainings of {listed(validation.epochs)} epochs, not of {epochs}")
    if isinstance(validation, TableValidation) and isinstance(report, TableReport):
        changed = replace(validation, default_epochs=epochs)
        return replace(benchmark, validation=changed, report=replace(report, validation=changed))
    assert isinstance(validation, SurrogateValidation)
    return replace(benchmark, validation=replace(validation, default_epochs=epochs))
