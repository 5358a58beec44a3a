"""A search that trains, on the user's own data: score a random pool at initialisation, then train what is asked for.

Everything that costs time is kept in the run's folder as it is made: scores in `scores.db`, trainings in `trainings/`
after each epoch, answers in the trace. A run that was killed goes on with what is missing, to the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from initio.data import Data
from initio.errors import InputError
from initio.metrics import Options
from initio.records import Architecture, SearchResult, Settings
from initio.scores.pool import ScoringJob, ScoringProgress, pool_table, sample, score_pool
from initio.scores.store import Store
from initio.scores.table import ScoreTable
from initio.searches.base import OnRow
from initio.searches.queries import Budget, QuerySearch, Task, run_queries
from initio.spaces import GraphSpace, NetworkSettings
from initio.training import Training, TrainingProgress, TrainingSettings, small_network

METRICS = (
    "grad_norm", "snip", "grasp", "fisher", "synflow", "naswot", "jacob_cov", "trace", "kappa", "lambda_min",
    "lambda_relative", "knas", "params", "flops",
)  # fmt: skip


@dataclass(frozen=True)
class Hybrid:
    """A search on evaluations, and what it is run on.

    Args:
        search: one of QUERY_SEARCHES.
        space: where.
        data: what to train on; noise is refused.
        network: the size of the networks that are scored.
        queries: how many trainings.
        pool: how many random architectures are scored first; 0 for none, when the search needs no scores.
        training: how to train.
        seed: of everything.
        batch_size: of the scores.
    """

    search: QuerySearch
    space: GraphSpace
    data: Data = field(repr=False)
    network: NetworkSettings
    queries: int = 10
    pool: int = 200
    training: TrainingSettings = field(default_factory=TrainingSettings)
    seed: int = 0
    batch_size: int = 64

    def __post_init__(self) -> None:
        if self.pool < 0:
            raise InputError(f"the pool must not be negative, not {self.pool}")
        Budget(queries=self.queries)
        self.evaluator()  # noise and settings that cannot be trained are refused at once

    def run(
        self,
        folder: Path,
        *,
        rows: Sequence[Settings] = (),
        on_row: OnRow | None = None,
        on_scoring: Callable[[ScoringProgress], None] = lambda progress: None,
        on_training: Callable[[TrainingProgress], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> SearchResult:
        """Scores, trains and chooses; `rows` are those of an interrupted run in the same folder."""
        scores = self._scores(folder, on_scoring) if self.pool else None
        pool: Sequence[Architecture] = scores.architectures if scores is not None else ()
        task = Task(self.space, Budget(queries=self.queries), pool, scores)
        evaluate = self.evaluator(folder / "trainings", on_training, on_note)
        return run_queries(self.search, task, evaluate, seed=self.seed, rows=rows, on_row=on_row)

    def evaluator(
        self,
        folder: Path | None = None,
        on_training: Callable[[TrainingProgress], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> Training:
        """Who trains."""
        return Training(
            self.space, self.data, small_network(self.space), self.training, seed=self.seed, folder=folder,
            on_progress=on_training, on_note=on_note,
        )  # fmt: skip

    def _scores(self, folder: Path, on_scoring: Callable[[ScoringProgress], None]) -> ScoreTable:
        connected = [arch for arch in sample(self.space, self.pool, self.seed) if self.space.connected(arch)]
        batch = self.data.batch(self.batch_size, self.seed)
        job = ScoringJob(self.space, batch, METRICS, self.network, Options(), self.seed)
        with Store(folder / "scores.db") as store:
            score_pool(job, connected, store, on_progress=on_scoring)
            return pool_table(job, connected, store)
