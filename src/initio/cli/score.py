"""`initio score SPACE`."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from initio.cli.progress import Reporter
from initio.cli.units import byte_count, duration, print_json
from initio.errors import InputError
from initio.spaces import NetworkSettings, Space, get_space

if TYPE_CHECKING:
    from initio.records import Architecture
    from initio.scores.pool import ScoringJob, ScoringProgress
    from initio.scores.table import ScoreTable


@dataclass(frozen=True)
class ScoreCommand:
    """Scores architectures into a store; the same command again goes on where it stopped.

    Args:
        space: name of the search space; `initio spaces` lists them.
        metrics: names with commas between them, or all; `initio metrics` explains them.
        all: score every architecture of the space.
        sample: score this many different random architectures.
        archs: score the architectures in this text file, one a line.
        share: score only this share of them, as in 17/100; shares have no network in common.
        sample_seed: of the random architectures; by default the seed.
        data: noise, digits, a file or a folder; docs/data.md lists all kinds.
        labels: the data's own labels, or random ones.
        batch_size: inputs in the one batch that all networks see.
        channels: width of the first stage; by default the space's published one.
        cells: cells in a stage (nb201, nb101) or in all (darts); by default the published number.
        norm: batch norm with scale and offset, without, or none.
        init: how weights are drawn.
        reduction: of a network's outputs for its kernel.
        batch_norm: what the gradient of one sample is where batch norm couples samples.
        parameterisation: standard, or ntk, which divides a weight's squared gradient by its fan-in.
        parameters: which parameters count, all or the weights of convolutions and linear layers.
        loss: of the gradient metrics.
        dtype: precision of the network's arithmetic.
        memory: what a process should stay below, as in 600MB; by default there is no limit.
        device: what computes: cpu, cuda, cuda:1, or auto, a GPU where there is one.
        seed: of the batch and, with the repeat added, of the weights.
        repeats: how many initialisations of each network are scored.
        workers: processes, each of one thread; the values do not depend on it.
        cluster: in place of workers here, those of a Dask scheduler at tcp://host:port, or local:8, eight processes.
        store: what keeps the scores, a file or postgresql://user@host/database; it is made when it is not there.
        export: also write the scores of these architectures to this .csv or .parquet file.
        json: print JSON instead of a table.
    """

    space: str
    metrics: str = "all"
    all: bool = False
    sample: int | None = None
    archs: str | None = None
    share: str | None = None
    sample_seed: int | None = None
    data: str = "noise"
    labels: Literal["true", "random"] = "true"
    batch_size: int = 64
    channels: int | None = None
    cells: int | None = None
    norm: Literal["affine", "plain", "none"] = "affine"
    init: Literal["lecun", "xavier", "he", "torch"] = "lecun"
    reduction: Literal["label", "sum", "all"] = "label"
    batch_norm: Literal["frozen", "coupled", "hooked"] = "frozen"
    parameterisation: Literal["standard", "ntk"] = "standard"
    parameters: Literal["all", "weights"] = "weights"
    loss: Literal["cross_entropy", "mse"] = "cross_entropy"
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    memory: str | None = None
    device: str = "cpu"
    seed: int = 0
    repeats: int = 1
    workers: int = 1
    cluster: str | None = None
    store: str = "scores.db"
    export: str | None = None
    json: bool = False

    def run(self) -> None:
        """Scores with progress on stderr, then sums up."""
        from initio.analysis.ranking import ranked
        from initio.scores.files import check_export, export
        from initio.scores.pool import pool_table, score_pool
        from initio.scores.store import Store

        space = get_space(self.space)
        architectures = self._architectures(space)
        job = self._job(space)
        if self.export:
            check_export(Path(self.export))
        with Store(self.store) as store:
            with Reporter() as reporter:
                ended = score_pool(
                    job, architectures, store, workers=self.workers, cluster=self.cluster, on_progress=reporter.scoring
                )
            table, name = pool_table(job, architectures, store), store.name
            if self.export:
                export(Path(self.export), space, ranked(table))
        rows = _summary(table)
        if self.json:
            print_json({"store": name, "export": self.export, "work": ended, "metrics": rows})
            return
        for progress in ended:
            print(_ended(progress))
        _print_summary(rows)
        if self.export:
            print(f"exported to {self.export}")

    def _architectures(self, space: Space) -> list[Architecture]:
        from initio.scores.pool import share_of

        if self.share is None:
            return self._pool(space)
        if not (found := re.fullmatch(r"(\d{1,9})/(\d{1,9})", self.share)):
            raise InputError(f"a share is one of several, as in --share 17/100, not {self.share!r}")
        if not (mine := share_of(self._pool(space), space, int(found[1]), int(found[2]))):
            raise InputError(f"nothing is left for the share {self.share}: there are fewer networks than shares")
        return mine

    def _pool(self, space: Space) -> list[Architecture]:
        from initio.scores.pool import everything, read_architectures, sample

        if (self.all, self.sample is not None, self.archs is not None).count(True) != 1:
            raise InputError("say which architectures to score: one of --all, --sample N and --archs FILE")
        if self.all:
            return list(everything(space))
        if self.archs is not None:
            return read_architectures(Path(self.archs), space)
        return sample(space, self.sample or 0, self.seed if self.sample_seed is None else self.sample_seed)

    def _job(self, space: Space) -> ScoringJob:
        from initio.autodiff.work import device_of_workers
        from initio.data import load
        from initio.metrics import Options, choose_metrics
        from initio.scores.pool import ScoringJob

        metrics = tuple(metric.name for metric in choose_metrics(self.metrics))
        options = Options(
            reduction=self.reduction,
            batch_norm=self.batch_norm,
            parameterisation=self.parameterisation,
            parameters=self.parameters,
            loss=self.loss,
            dtype=self.dtype,
            memory=byte_count("--memory", self.memory),
            device=device_of_workers(self.device, self.cluster, measured=True),
        )
        batch = load(self.data).batch(self.batch_size, self.seed, labels=self.labels)
        network = NetworkSettings(
            channels=self.channels,
            cells=self.cells,
            classes=batch.classes,
            shape=batch.shape,
            norm=self.norm,
            init=self.init,
        )
        return ScoringJob(space, batch, metrics, network, options, self.seed, self.repeats)


PHASES = {"counting": "costs counted", "scoring": "networks scored"}


def _ended(progress: ScoringProgress) -> str:
    text = f"{progress.done:,} {PHASES[progress.phase]}"
    if progress.done:
        text += f" in {duration(progress.seconds)} ({progress.rate:.1f} a second)"
    text += f", {progress.known:,} were in the store already"
    if progress.restarts:
        text += f", workers restarted {progress.restarts} times"
    return text


def _summary(table: ScoreTable) -> list[dict[str, Any]]:
    """How many values each metric has, and why the others do not exist."""
    import numpy as np

    rows = []
    for name in table.metrics:
        numbers, why = table.each(name), Counter(table.missing(name).values())
        numbers, middle = numbers[~np.isnan(numbers)], None
        if len(numbers):
            middle = float(np.median(numbers))
        reasons = dict(why.most_common())
        rows.append({"metric": name, "values": len(numbers), "median": middle, "undefined": reasons})
    return rows


def _print_summary(rows: list[dict[str, Any]]) -> None:
    width = max((len(row["metric"]) for row in rows), default=0)
    print(f"\n{'metric':<{width}}  {'values':>9}  {'undefined':>9}  {'median':>12}")
    for row in rows:
        undefined, median = row["undefined"], "none"
        if row["median"] is not None:
            median = f"{row['median']:.6g}"
        reason = "".join(f"  {why}" for why in list(undefined)[:1])
        counts = f"{row['values']:>9,}  {sum(undefined.values()):>9,}"
        print(f"{row['metric']:<{width}}  {counts}  {median:>12}{reason}")
