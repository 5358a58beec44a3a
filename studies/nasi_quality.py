"""NASI on published tables: what the chosen architectures reach, beside the paper, parameter count and chance.

"literal" is `--method nasi`, Algorithm 1; "nasi-fit" is our variant of that name, with its default settings.

python -m studies.nasi_quality --space nb201 --seeds 10 --data ../shared/data

The literal estimator, the slowest, is run in all modes on nb201 and on data alone in nb1shot1.
Every finished run goes to a journal below --out, named after the settings: a command that was killed goes on with what
is missing. The journal is removed when the table is complete.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from random import Random

import numpy as np
from scipy.stats import pearsonr, spearmanr

from initio.autodiff.work import executor_for
from initio.errors import InputError
from initio.networks.cost import count
from initio.records import Architecture
from initio.runs.search import make_problem, make_search
from initio.searches import Problem, drive
from initio.searches.methods.nasi import Nasi
from initio.searches.methods.nasi_fit import Measured, NasiFit
from initio.searches.problem import climb
from initio.searches.traces import whole_trace
from initio.spaces import NB101, GraphSpace, get_space
from initio.spaces.nb1shot1 import NB1Shot1Space
from initio.system.executors import Executor
from initio.system.files import add_line, whole_lines
from initio.tables.nb301 import EPOCHS, Surrogate

MODES = {"data": ("cifar", "true"), "random labels": ("cifar", "random"), "noise": ("noise", "true")}
PUBLISHED = {
    "nb201": [
        "NASI (T), paper                  93.08±0.24 / 69.51±0.59 / 40.87±0.85",
        "NASI (4T), paper                 93.55±0.10 / 71.20±0.14 / 44.84±1.41",
    ],
    "nb1shot1-s1": ["NASI, paper  7.3 (data), 6.8 (random labels), 6.6 (noise)"],
    "nb1shot1-s2": ["NASI, paper  7.2 (data), 7.0 (random labels), 7.5 (noise)"],
    "nb1shot1-s3": ["NASI, paper  7.2 (data), 7.5 (random labels), 7.3 (noise)"],
}
FIT = "nasi-fit"
ALL_PARAMETERS = "T, all parameters"  # NASI's own objective without a penalty
Report = Callable[[Architecture], tuple[float, ...]]


@dataclass(frozen=True)
class Table:
    """What is reported of an architecture; searches never see it."""

    columns: tuple[str, ...]
    report: Report


def nb201_table(data: Path) -> Table:
    """200-epoch test accuracy of the NAS-Bench-201 file."""
    table = np.load(data / "nb201_tss.npz", allow_pickle=False)
    row = {tuple(ops): place for place, ops in enumerate(table["ops"].tolist())}
    columns = [table[f"test_{name}_nb201"] for name in ("c10", "c100", "in16")]
    return Table(("C10", "C100", "IN16-120"), lambda arch: tuple(float(c[row[arch.choices]]) for c in columns))


def nb1shot1_table(space: NB1Shot1Space, data: Path) -> Table:
    """Test error after 108 epochs in NAS-Bench-101, mean of three trials."""
    accuracy = np.load(data / "nb101.npz", allow_pickle=False)["test_acc_108"]
    hashes = np.load(data / "nb101_hash64.npz", allow_pickle=False)["hash64"]
    scale = 100 if accuracy.max() <= 1 else 1

    def report(arch: Architecture) -> tuple[float, ...]:
        key = np.uint64(int(NB101.graph_hash(space.to_nb101(arch))[:16], 16))
        return (float(100 - scale * accuracy[np.searchsorted(hashes, key)]),)

    return Table(("test error",), report)


def darts_table(data: Path) -> Table:
    """What a surrogate of NAS-Bench-301 predicts."""
    surrogate = Surrogate(data / "nb301_surrogate_yahpo_v1.npz")
    return Table(("predicted",), lambda arch: (float(surrogate.predict([arch], EPOCHS[-1])[0][0]),))


def table_of(space: GraphSpace, data: Path) -> Table:
    """What is reported of the space's architectures."""
    if isinstance(space, NB1Shot1Space):
        return nb1shot1_table(space, data)
    return darts_table(data) if space.name == "darts" else nb201_table(data)


@lru_cache(maxsize=4)
def problem_of(space: str, mode: str, data: Path, *, channels: int | None = None, batch_size: int = 64) -> Problem:
    """What `initio search` would search on; the data are read and resized once."""
    source, labels = MODES[mode]
    spec = {"noise": "noise", "cifar": str(data / "cifar10_sub10k.npz")}[source]
    return make_problem(space, spec, labels=labels, channels=channels, batch_size=batch_size)  # type: ignore[arg-type]


def default_of(space: str) -> NasiFit:
    """What `initio search SPACE` runs."""
    method = make_search("nasi-fit", get_space(space), {})
    assert isinstance(method, NasiFit)
    return method


def literal_of(space: str, steps: int, nu: str | None = None) -> Nasi:
    """What `initio search SPACE --method nasi` runs."""
    given = {"steps": steps, "nu": nu}
    method = make_search("nasi", get_space(space), {k: v for k, v in given.items() if v is not None})
    assert isinstance(method, Nasi)
    return method


def by_parameters(space: str, data: Path, seed: int, n: int) -> Architecture:
    """The largest of n random architectures, drawn as the search draws its own."""
    problem = problem_of(space, "noise", data)
    rng = Random(f"baseline {seed}")
    pool = [problem.draw_admitted(rng) for _ in range(n)]
    return max(pool, key=lambda a: count(problem.graphs.network(a, problem.target), problem.target).parameters)


def largest(space: str, data: Path, seed: int) -> Architecture:
    """The largest network that climbing on the number of parameters finds, from a random one."""
    problem = problem_of(space, "noise", data)

    def sizes(archs: Sequence[Architecture]) -> list[float]:
        return [count(problem.graphs.network(a, problem.target), problem.target).parameters for a in archs]

    return climb(problem, problem.draw_admitted(Random(f"climb {seed}")), sizes)


def line(name: str, values: list[tuple[float, ...]]) -> str:
    """Means and deviations; one value has none."""
    array = np.array(values)
    deviations = [f"±{s:.2f}" if len(values) > 1 else "" for s in array.std(0)]
    return f"{name:<32} {' / '.join(f'{m:.2f}{s}' for m, s in zip(array.mean(0), deviations, strict=True))}"


def gain(columns: Sequence[str], ours: list[tuple[float, ...]], theirs: list[tuple[float, ...]]) -> str:
    """Whether nasi-fit beats parameter count, all data sets taken together; an error is better when smaller."""
    sign = -1 if columns == ("test error",) else 1
    sums = [sign * np.array(values).sum(axis=1) for values in (ours, theirs)]
    ahead = sums[0].mean() - sums[1].mean()
    over = f"the sum over {' + '.join(columns)}"
    if len(ours) < 2:
        return f"{FIT} and parameter count differ by {ahead:+.2f}, {over}; one seed has no error"
    error = float(np.sqrt(sum(values.var(ddof=1) / len(values) for values in sums)))
    verb = "beats" if ahead > 2 * error else "does not beat" if ahead < -2 * error else "cannot be told from"
    return f"{FIT} {verb} parameter count: {ahead:+.2f}±{error:.2f}, {over}"


# --- runs, and the journal that keeps them ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One search; or, where the method is one of TRACES, one measured trace.

    The seed of a trace is the number of its architecture plus REPEAT times that of its draw.
    """

    method: str
    mode: str
    seed: int


TRACE = "trace"  # of an architecture that a search with seed 0 draws: none has `none`
SPACE_TRACE = "trace, space"  # of any connected architecture of the space
TRACES = {SPACE_TRACE: "connected architectures of the space", TRACE: "architectures as a search draws them"}
REPEAT = 1000
Answer = list[int] | float  # the choices of a search, or a trace


def solve(space: str, methods: dict[str, NasiFit | Nasi], data: Path, job: Job) -> tuple[dict[Job, Answer], float]:
    """The answer of one job, those that cost nothing more, and the seconds."""
    import torch

    torch.set_num_threads(1)
    start, problem = time.perf_counter(), problem_of(space, job.mode, data)
    answers: dict[Job, Answer] = {}
    if job.method in TRACES:
        answers[job] = trace(problem, job.method, job.seed % REPEAT, job.seed // REPEAT)
    else:
        result = drive(methods[job.method], problem, seed=job.seed)
        answers[job] = list(result.best.choices)
        if (job.method, job.mode) == (FIT, "data"):  # has measured T of all parameters too
            steps = [replace(step, chosen_trace=None) for step in result.steps if isinstance(step, Measured)]
            paper = drive(methods[ALL_PARAMETERS], problem, seed=job.seed, done=steps)
            answers[Job(ALL_PARAMETERS, job.mode, job.seed)] = list(paper.best.choices)
    return answers, time.perf_counter() - start


def trace(problem: Problem, pool: str, step: int, repeat: int) -> float:
    """T of one architecture, with its own batch and initialisation or others."""
    rng = Random(f"nasi 0 {step}" if pool == TRACE else f"space {step}")
    arch = problem.draw_admitted(rng) if pool == TRACE else connected(problem, rng)
    draw = rng.randrange(2**31)
    again = Random(f"relations {step} {repeat}").randrange(2**31)
    return whole_trace(problem, arch, again if repeat else draw).T or 0.0


def connected(problem: Problem, rng: Random) -> Architecture:
    """A random connected architecture of the space, `none` and all."""
    while not problem.space.connected(arch := problem.space.sample(rng)):
        pass
    return arch


class Journal:
    """Finished jobs, one JSON line each; a last line that a crash left half-written is forgotten."""

    def __init__(self, path: Path) -> None:
        self.path, self.answers = path, dict[Job, Answer]()
        path.parent.mkdir(parents=True, exist_ok=True)
        for number, text in enumerate(whole_lines(path), start=1):
            try:
                row = json.loads(text)
                self.answers[Job(row["method"], row["mode"], row["seed"])] = row["answer"]
            except (ValueError, TypeError, KeyError):
                raise InputError(f"line {number} of {str(path)!r} is damaged: delete the file to start over") from None

    def add(self, job: Job, answer: Answer) -> None:
        """On disk before the next job's answer is waited for."""
        self.answers[job] = answer
        add_line(self.path, json.dumps({**vars(job), "answer": answer}))


@dataclass(frozen=True)
class Study:
    """All jobs of one space, answered once."""

    space: str
    methods: dict[str, NasiFit | Nasi]
    data: Path
    journal: Journal
    executor: Executor

    def run(self, wanted: Sequence[Job], tell: Callable[[Job, Answer], str]) -> Iterator[Answer]:
        """The answers in order; what is missing is computed, kept and told of on stderr."""
        missing = [job for job in wanted if job not in self.journal.answers]
        heard = [job for job in wanted if job in self.journal.answers]

        def keep(_: int, found: tuple[dict[Job, Answer], float]) -> None:
            answers, seconds = found
            heard.append(next(iter(answers)))
            done = len(heard)
            for known, answer in answers.items():
                self.journal.add(known, answer)
            job, answer = next(iter(answers.items()))
            if job.method not in TRACES or done % 50 == 0 or done == len(wanted):
                print(f"{done} of {len(wanted)}: {tell(job, answer)}, {seconds:.0f} s", file=sys.stderr, flush=True)

        self.executor.map(partial(solve, self.space, self.methods, self.data), missing, keep)
        return (self.journal.answers[job] for job in wanted)


def relations(study: Study, pool: str, n: int, draws: int = 1) -> None:
    """Does T rank alike on data, random labels and noise? The same n architectures and initialisations."""
    T = {}
    for mode in MODES:
        wanted = [Job(pool, mode, step + REPEAT * repeat) for repeat in range(draws) for step in range(n)]
        traces = np.array(list(study.run(wanted, lambda job, _: f"traces on {job.mode}")), float).reshape(draws, n)
        T[mode] = np.log(np.where(traces > 0, traces, np.nan)).mean(axis=0)
    known = np.isfinite(np.sum(list(T.values()), axis=0))  # a network without a gradient has no T
    n = int(known.sum())
    of = f"T of {n} {TRACES[pool]}, {'one draw' if draws == 1 else f'geometric mean of {draws} draws'}"
    for mode in list(MODES)[1:]:
        rank, linear = (
            spearmanr(T["data"][known], T[mode][known]).statistic,
            pearsonr(T["data"][known], T[mode][known]).statistic,
        )
        print(f"{of}, on data and on {mode}: Spearman {rank:.3f}, Pearson of log T {linear:.3f}", flush=True)


def digest(what: object) -> str:
    """A short name of settings: other settings, other files."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:8]


def journal_of(folder: Path, space: str, data: Path) -> Journal:
    """The journal of this space with the settings that nasi-fit has now; others have another."""
    networks = [problem_of(space, mode, data).network for mode in MODES]
    what = (version("initio"), default_of(space), literal_of(space, 1), networks, str(data.resolve()))
    return Journal(folder / f"nasi-quality-{space}-{digest(what)}.jsonl")


def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--space", default="nb201", choices=list(PUBLISHED))
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--data", type=Path, default=Path("../shared/data"))
    arguments.add_argument("--workers", type=int, default=1)
    arguments.add_argument("--cluster", help="in place of workers, a Dask scheduler at tcp://host:port, or local:8")
    arguments.add_argument("--literal-steps", type=int, help="0 leaves it out; by default 200, in nb1shot1 100")
    arguments.add_argument("--literal-nu", help="its ν, if not that of the command line")
    arguments.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    arguments.add_argument("--free", action="store_true", help="only the rows that measure nothing")
    arguments.add_argument("--out", type=Path, default=Path("runs"), help="folder of the journal")
    options = arguments.parse_args(words)
    space = get_space(options.space)
    table = table_of(space, options.data)
    seeds = range(options.seeds)
    default = default_of(space.name)
    methods: dict[str, NasiFit | Nasi] = {FIT: default}
    methods[ALL_PARAMETERS] = replace(default, counted="all", nu="none")
    shot1 = isinstance(space, NB1Shot1Space)
    steps = (100 if shot1 else 200) if options.literal_steps is None else options.literal_steps
    if steps:
        name = f"literal T={steps}" + (f" ν={options.literal_nu}" if options.literal_nu else "")
        methods[name] = literal_of(space.name, steps, options.literal_nu)
    journal = journal_of(options.out, space.name, options.data)
    study = Study(space.name, methods, options.data, journal, executor_for(options.workers, options.cluster))

    def report(choices: Answer) -> tuple[float, ...]:
        assert isinstance(choices, list)
        return table.report(Architecture(space.name, tuple(choices)))

    def tell(job: Job, answer: Answer) -> str:
        return f"{job.method}, {job.mode}, seed {job.seed}: {' / '.join(f'{v:.2f}' for v in report(answer))}"

    print(f"{space.name}, {options.seeds} seeds, mean±std of {' / '.join(table.columns)}")
    for text in PUBLISHED[space.name]:
        print(text)
    print(
        line(
            "random",
            [table.report(problem_of(space.name, "noise", options.data).draw_admitted(Random(s))) for s in seeds],
        )
    )
    most = [table.report(by_parameters(space.name, options.data, seed, default.steps)) for seed in seeds]
    print(line(f"most parameters of {default.steps}", most), flush=True)
    climbed = [table.report(largest(space.name, options.data, seed)) for seed in seeds]
    print(line("most parameters, climbed to", climbed), flush=True)
    if options.free:
        return
    beaten = ""
    on_data_alone = set(methods) - {FIT} if shot1 else {ALL_PARAMETERS}
    for name in methods:
        for mode in [mode for mode in options.modes if mode == "data" or name not in on_data_alone]:
            values = [report(answer) for answer in study.run([Job(name, mode, seed) for seed in seeds], tell)]
            print(line(f"{name}, {mode}", values), flush=True)
            if (name, mode) == (FIT, "data"):
                beaten = gain(table.columns, values, most)
    if beaten:
        print(beaten)
    if len(options.modes) < len(MODES):
        return  # the rest is for another time, the journal for then
    relations(study, SPACE_TRACE, 200)
    relations(study, TRACE, 200)
    relations(study, TRACE, 100, draws=4)
    journal.path.unlink(missing_ok=True)


if __name__ == "__main__":
    from studies import nasi_quality  # workers import it, so that they too read the data once

    nasi_quality.main()
