"""How well metrics, and the training-free ranking, order architectures: Spearman and Kendall, beside published numbers.

python -m studies.ranking --data ../shared/data

"data" is a batch of CIFAR-10, "noise" standard normal noise; networks are those that searches score with. Where a store
that was named, or one that comes with Initio, has the ranking's members on data, all that it holds is taken. Everything
else is a sample of --sample architectures a space, measured into --out, one architecture after the other: a command
that was killed goes on where it was. `--sample 0` measures nothing and prints what is there. `--consensus` adds what
the ranking would be if its members were weighed by how they agree with each other. `--draws K` asks what the noise of
one draw costs: the members of the sample are measured with K batches and initialisations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from initio.analysis.correlation import agreement, spearman
from initio.analysis.ranking import MEMBERS, Ranking, log_ranks, rank
from initio.errors import InputError
from initio.metrics import Options, get_metric
from initio.runs.rank import scores_of_store
from initio.runs.search import make_problem
from initio.scores.pool import ScoringJob, pool_table, sample, score_pool
from initio.scores.store import Store, find_store
from initio.scores.table import ScoreTable
from initio.searches.methods.votes import CHOOSERS
from initio.spaces import get_space
from studies.nasi_quality import Table
from studies.training_free import SPACES, table_of

METRICS = (
    "grad_norm", "snip", "grasp", "nasi", "fisher", "zico", "trace", "kappa", "lambda_min", "lambda_relative", "eigen",
    "knas", "synflow", "naswot", "jacob_cov", "near", "meco", "expressivity", "progressivity", "trainability", "params",
    "flops", "layers",
)  # fmt: skip
SEED = 0
PUBLISHED = """
Published, Spearman (Kendall): on nb201, CIFAR-10 / CIFAR-100 / ImageNet16-120

| | nb201 | nb101 |
|---|---|---|
| AZ-NAS | .913 (.741) / .900 (.723) / .886 (.710) | .42 |
| VKDNW_agg, another subset | .919 (.750) / (.753) / (.743) | |
| ZiCo | .784 (.589) / (.620) / (.614) | .65 |
| MeCo | .89 | |
| SWAP | .810 (.634) / (.649) / (.610) | .44 |
| APD, searched on accuracies of nb201 | .832 (.635) / (.654) / (.633) | .73 |
| InTrain | (.669) / (.671) / (.675) | .75 |
"""


def shipped(space: str, stores: Sequence[Path]) -> ScoreTable | None:
    """All scores of a store on data that has the members; None if there is none."""
    for path in [*stores, f"{space}-ranking", space]:
        try:
            with Store(find_store(str(path)), read_only=True) as store:
                table = scores_of_store(store, get_space(space), metrics=METRICS)
        except InputError:
            continue
        measured = [member.metric for member in MEMBERS if member.metric in table.metrics]
        if len(measured) == len(MEMBERS):
            return table
    return None


def measured(
    space: str, mode: str, count: int, data: Path, out: Path, seed: int = SEED, metrics: tuple[str, ...] = METRICS
) -> ScoreTable:
    """A sample's scores with the batch and the weights of this seed, those that are missing measured now."""
    source = {"noise": "noise", "data": str(data / "cifar10_sub10k.npz")}[mode]
    problem = make_problem(space, source)
    job = ScoringJob(problem.space, problem.batch(seed), metrics, problem.network, Options(), seed)
    pool = [arch for arch in sample(problem.space, count, SEED) if problem.space.connected(arch)]
    with Store(out / f"ranking-{space}.db") as store:
        for done, arch in enumerate(pool, start=1):
            score_pool(job, [arch], store)
            if done % 50 == 0:
                print(f"{space}, {mode}: {done} of {len(pool)}", file=sys.stderr, flush=True)
        return pool_table(job, pool, store)


def rows(table: ScoreTable, accuracies: np.ndarray) -> Iterator[tuple[str, list[str]]]:
    """Each metric and the two aggregates, and how they agree with each column of accuracies."""
    columns = {name: table.each(name) for name in table.metrics}
    aggregates = {"**the ranking**": rank(columns), "log-ranks of `votes`": rank(columns, CHOOSERS)}
    for name in METRICS:
        if name in columns and (~np.isnan(table[name])).sum() > 1:
            yield f"{name} {'↑↓'[not get_metric(name).higher_is_better]}", _told(table[name], accuracies)
    for name, found in aggregates.items():
        yield f"{name} ({len(found.members)} members)", _told(found.values, accuracies)


def draw_rows(tables: Sequence[ScoreTable], accuracies: np.ndarray) -> Iterator[tuple[str, list[str]]]:
    """The ranking of each draw alone, and of all of them: a vote is then the mean over draws."""
    names = [member.metric for member in MEMBERS]
    for number, table in enumerate(tables):
        yield f"the ranking, draw {number}", _told(rank({name: table[name] for name in names}).values, accuracies)
    stacked = {name: np.stack([table[name] for table in tables]) for name in names}
    yield f"the ranking, {len(tables)} draws", _told(rank(stacked).values, accuracies)
    for name in names:
        votes = np.mean([log_ranks(column) for column in stacked[name]], axis=0)
        pairs = [rho for a, b in combinations(stacked[name], 2) if (rho := spearman(a, b)) is not None]
        again = f"; one draw with another {np.mean(pairs):.3f}" if pairs else ""
        yield f"{name}, {len(tables)} draws{again}", _told(votes, accuracies)


def _filled(ranking: Ranking) -> np.ndarray:
    """The votes, with a member's mean where it has no value."""
    return np.where(np.isnan(ranking.votes), np.nanmean(ranking.votes, axis=0), ranking.votes)


def with_others(ranking: Ranking) -> np.ndarray:
    """r: the Spearman correlation of each member's votes with the mean of the others'."""
    votes = _filled(ranking)
    others = [np.delete(votes, j, axis=1).mean(axis=1) for j in range(votes.shape[1])]
    return np.array([spearman(own, mean) or 0.0 for own, mean in zip(votes.T, others, strict=True)])


def consensus(ranking: Ranking) -> dict[str, np.ndarray]:
    """Rules that weigh a member by the pool alone, without accuracies, and the members' weights by each."""
    votes, r = _filled(ranking), with_others(ranking)
    first = np.linalg.eigh(np.corrcoef(votes.T))[1][:, -1]
    return {
        "no vote below half of the median r": (r >= np.median(r) / 2).astype(float),
        "weight r": np.maximum(r, 0.0),
        "weight r²": np.maximum(r, 0.0) ** 2,
        "no vote below 2/√n": (r >= 2 / np.sqrt(len(votes))).astype(float),
        "weight by the first principal component": np.maximum(first * np.sign(first.sum()), 0.0),
    }


def weighed(ranking: Ranking, weights: np.ndarray) -> np.ndarray:
    """The ranking's values with other weights than equal ones; who lacks more than half of the members is last."""
    known = ~np.isnan(ranking.votes)
    said = (np.where(known, ranking.votes, 0.0) * weights).sum(axis=1)
    values: np.ndarray = said / np.maximum((known * weights).sum(axis=1), 1e-9)
    values[2 * known.sum(axis=1) < known.shape[1]] -= 1 + np.ptp(values)
    return values


def consensus_rows(table: ScoreTable, accuracies: np.ndarray) -> Iterator[tuple[str, list[str]]]:
    """How the ranking would agree with the accuracies by each rule."""
    found = rank({name: table.each(name) for name in table.metrics})
    r = with_others(found)
    yield "r: " + ", ".join(f"{m.metric} {value:.2f}" for m, value in zip(found.members, r, strict=True)), []
    for rule, weights in consensus(found).items():
        yield rule, _told(weighed(found, weights), accuracies)


def _told(values: np.ndarray, accuracies: np.ndarray) -> list[str]:
    found = [agreement(values, target) for target in accuracies.T]
    return ["none" if a.spearman is None else f"{a.spearman:.3f} ({a.kendall:.3f})" for a in found]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--spaces", nargs="+", default=list(SPACES), choices=SPACES)
    parser.add_argument("--modes", nargs="+", default=["data", "noise"], choices=("data", "noise"))
    parser.add_argument("--sample", type=int, default=150, help="architectures that are measured; 0 measures nothing")
    parser.add_argument("--stores", nargs="*", type=Path, default=[], help="scores on data that are there already")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the stores that are filled")
    parser.add_argument("--draws", type=int, default=0, help="batches and initialisations of the sample's members")
    parser.add_argument("--consensus", action="store_true", help="also with members weighed by their agreement")
    options = parser.parse_args(words)
    if options.draws and (options.draws < 2 or not options.sample):
        parser.error("--draws compares at least 2 draws of a --sample")
    options.out.mkdir(parents=True, exist_ok=True)
    print("Spearman (Kendall) with the table's accuracy; arrows are the papers' directions")
    for space in options.spaces:
        table = table_of(space, options.data)
        sign = -1 if table.columns == ("test error",) else 1
        for mode in options.modes:
            if options.draws:
                print_draws(space, mode, table, options)
                continue
            scores = shipped(space, options.stores) if mode == "data" else None
            if scores is None and options.sample:
                scores = measured(space, mode, options.sample, options.data, options.out)
            if scores is None:
                print(f"\n{space}, {mode}: no scores, left out with --sample 0")
                continue
            accuracies = sign * np.array([table.report(arch) for arch in scores.architectures])
            names = [name for name in table.columns if name != "percentile"]
            print(f"\n## {space}, {mode}, {len(scores):,} architectures\n\n| | {' | '.join(names)} |")
            print("|---" * (len(names) + 1) + "|")
            targets = accuracies[:, : len(names)]
            told = [*rows(scores, targets), *(consensus_rows(scores, targets) if options.consensus else ())]
            for name, cells in told:
                print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(PUBLISHED)


def print_draws(space: str, mode: str, table: Table, options: argparse.Namespace) -> None:
    """The ranking and its members on several draws of a sample."""
    sign = -1 if table.columns == ("test error",) else 1
    members = tuple(member.metric for member in MEMBERS)
    drawn = [
        measured(space, mode, options.sample, options.data, options.out, seed, members) for seed in range(options.draws)
    ]
    targets = sign * np.array([table.report(arch)[:1] for arch in drawn[0].architectures])
    print(f"\n## {space}, {mode}, {len(drawn[0]):,} architectures, {options.draws} draws\n")
    for name, cells in draw_rows(drawn, targets):
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
