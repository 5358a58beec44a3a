"""`initio bench TABLE --search NAME ...`."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from initio.autodiff.devices import apart, find_device
from initio.cli.progress import Reporter
from initio.cli.units import names, number, pairs, print_json
from initio.errors import InputError
from initio.scores.database import store_name
from initio.system.files import write_text

if TYPE_CHECKING:
    from initio.runs.bench import BenchSetup, Outcome, Summary
    from initio.searches import Search
    from initio.tables.published import Published

BASELINES = ("random", "rea")
UNEQUAL = 1.5  # a search that costs so many times the others is said to


@dataclass(frozen=True)
class BenchCommand:
    """Runs searches on a benchmark's published trainings, many seeds under one budget, and compares them.

    A search sees validation accuracies only; the table reports test accuracies of what it chose. Every setting of a
    search that is named alone is an option too, listed by `initio bench --search NAME --help`.

    Args:
        table: the benchmark: nb201, nb101, nb1shot1-s1, nb301, or the file of a table.
        search: names of searches, as in `--search hnas robust`; `all` for every one.
        metric: the metric of searches that take one (hnas, zero-cost), one run for each of several.
        k: how many architectures are trained, for searches that rank first (eigen-nas, knas, zero-cost).
        queries: trainings in one run; 20 if neither this nor --seconds is given.
        seconds: published seconds of training in one run.
        seeds: how many runs of each search; seed s takes draw s of the scores, each with its own weights and batch.
        dataset: whose validation accuracy selects (nb201): c10, c100 or in16.
        epochs: length of a training; by default 12 for nb201, 108 for nb101, 98 for nb301.
        baselines: run random search and regularised evolution too.
        store: scores of the architectures; by default those that come with Initio.
        where: which scores, if the store has several kinds, as in cells=5.
        data: folder with the benchmark's files; by default that of INITIO_DATA.
        images: what searches that share weights (rsps, darts, gdas, ...) learn from; by default those of --dataset in
            the folder of --data.
        shared_epochs: how long they do; 8, far from what is published.
        shared_batch: samples an update of theirs; by default what each of them has published.
        size: of their network: small, or published.
        workers: processes.
        cluster: in place of workers here, those of a Dask scheduler at tcp://host:port, or local:8, eight processes.
        device: what computes, in searches that share weights: cpu, cuda, cuda:1, or auto, a GPU where there is one.
        out: folder for table.md, runs.csv and curves.svg and .pdf, epochs.svg and .pdf where weights are shared; by
            default one below `runs`.
        json: print JSON instead of a table.
    """

    table: str
    search: tuple[str, ...] = ("robust",)
    metric: tuple[str, ...] = ()
    k: int | None = None
    queries: int | None = None
    seconds: float | None = None
    seeds: int = 10
    dataset: str = "c10"
    epochs: int | None = None
    baselines: bool = True
    store: str | None = None
    where: str | None = None
    data: str | None = None
    images: str | None = None
    shared_epochs: int | None = None
    shared_batch: int | None = None
    size: Literal["small", "published"] | None = None
    workers: int = 1
    cluster: str | None = None
    device: str = "cpu"
    out: str | None = None
    json: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    SHARED: ClassVar[tuple[str, ...]] = ("metric", "k", "size")  # given to every search that has them
    OWN: ClassVar[tuple[str, ...]] = ("images",)  # of te-nas it is a number, and stays its default

    @classmethod
    def parts(cls, given: Mapping[str, Any]) -> list[type[Any]]:
        """The search, whose settings are options, if it is the only one named."""
        from initio.searches import find_search

        named = names(*given.get("search", ()))
        return [find_search(*named)] if len(named) == 1 and named != ["all"] else []

    def run(self) -> None:
        """Prints the comparison and writes it with the runs and a picture of their curves."""
        from initio.report.curves import save_curves
        from initio.runs.bench import curves, curves_by_epoch, run_all, summarise

        if self.seeds < 1:
            raise InputError(f"--seeds must be at least 1, not {self.seeds}")
        setup, searches = self.setup(), self.searches()
        folder = Path(self.out or Path("runs") / self._stem())
        public = replace(setup, store=self._store_name())  # a password is no part of what is compared
        same = (public, searches, *apart(setup.device).values())  # another command starts another journal
        key = hashlib.sha256(repr(same).encode()).hexdigest()[:8]
        journal = folder / f"unfinished-{key}.jsonl"
        with Reporter() as reporter:
            count = reporter.counter("runs", len(searches) * self.seeds)
            outcomes = run_all(
                setup, searches, range(self.seeds), workers=self.workers, cluster=self.cluster, journal=journal,
                on_outcome=lambda one: count(
                    f"{one.search}: {one.validation:.2f}", search=one.search, seed=one.seed, validation=one.validation
                ),
                on_note=reporter.note,
            )  # fmt: skip
        rows = summarise(outcomes)
        title = self._title(setup, searches)
        text = "\n".join([title, "", *markdown(rows, self.published(searches)), *unequal(rows)])
        write_text(folder / "table.md", text + "\n")
        write_text(folder / "runs.csv", runs_csv(outcomes))
        best, pictures = setup.open().report.best(), {}
        if asking := [outcome for outcome in outcomes if outcome.epochs is None]:
            pictures["curves"] = curves(asking, best)
        if sharing := [outcome for outcome in outcomes if outcome.epochs is not None]:
            pictures["epochs"] = curves_by_epoch(sharing, best)
            write_text(folder / "epochs.csv", epochs_csv(sharing))
        for name, found in pictures.items():
            for suffix in ("svg", "pdf"):
                save_curves(found, folder / f"{name}.{suffix}", title)
        journal.unlink(missing_ok=True)
        if self.json:
            print_json({"title": title, "rows": rows, "folder": str(folder)})
            return
        print(text)
        drawn = ", ".join(f"{name}.svg and {name}.pdf" for name in pictures)
        print(f"\nwritten {folder}/table.md, runs.csv, {drawn}")

    def setup(self) -> BenchSetup:
        """What the options say about all runs."""
        from initio.runs.bench import BenchSetup
        from initio.searches import Budget

        queries = 20 if self.queries is None and self.seconds is None else self.queries
        where = tuple(sorted(pairs("--where", self.where).items()))
        return BenchSetup(
            self.table, Budget(queries, self.seconds), self.data, self.dataset, self.epochs, self.store, where,
            self.images, self.shared_epochs, self.shared_batch, str(find_device(self.device, measured=True)),
        )  # fmt: skip

    def searches(self) -> dict[str, Search[Any]]:
        """The searches by the label of their row."""
        from initio.runs.search import make_search
        from initio.searches import SEARCHES, find_search
        from initio.tables import space_of

        home = space_of(self.table, self.data)
        named = names(*self.search)
        if named == ["all"]:
            named = [name for name in SEARCHES if find_search(name).trains]
        if not named:
            raise InputError("--search needs a name, as in --search robust, or all")
        metrics: list[str | None] = [*names(*self.metric)] or [None]
        made: dict[str, Search[Any]] = {}
        for name in named:
            kind = find_search(name)
            if not (kind.trains or kind.learns):
                raise InputError(f"{name} does not learn from trainings: take another search")
            has = {field.name for field in fields(kind)}
            for metric in metrics:
                shared = {"metric": metric, "k": self.k, "size": self.size}
                own = {option: value for option, value in shared.items() if value is not None and option in has}
                own |= self.settings
                one = make_search(name, home, own)
                ranked = [str(one.settings()["metric"]) for _ in has & {"metric"}]  # also one that was not asked for
                shown = [f"{option} = {value}" for option, value in own.items() if option != "metric"]
                made[", ".join([name, *ranked, *shown])] = one
        if self.baselines:
            plain = {name: make_search(name, home, {}) for name in BASELINES if name not in named}
            made |= plain | controls(made.values())
        for option in self.SHARED:
            given = getattr(self, option) not in (None, ())
            if given and not any(option in search.settings() for search in made.values()):
                raise InputError(f"--{option} is not an option of {', '.join(made)}")
        return made

    def published(self, searches: dict[str, Search[Any]]) -> list[Published]:
        """What papers report for the same: of searches that select by CIFAR-10, as long as published."""
        from initio.tables.published import PUBLISHED

        found: list[Published] = []
        if self.dataset != "c10" or self.epochs is not None:
            return found
        for search in searches.values():
            metric, k = (str(search.settings().get(name, "")) for name in ("metric", "k"))
            for detail in (f"{metric}, {k}", metric, ""):
                if row := PUBLISHED.get((self.table, search.name, detail)):
                    found.append(row)
                    break
        return list(dict.fromkeys(found))

    def _store_name(self) -> str | None:
        """Without a password: it is a part of the folder's name."""
        if self.store is None:
            return None
        return store_name(self.store)

    def _stem(self) -> str:
        parts = [Path(self.table).stem, self.dataset, *self.search, *self.metric, f"{self.k or ''}"]
        parts += [f"{name}{value}" for name, value in self.settings.items()]
        if self.epochs is not None:
            parts.append(f"{self.epochs}epochs")
        parts += apart(self.setup().device).values()
        parts += [Path(self._store_name() or "").stem, (self.where or "").replace("=", "")]
        if self.seconds is not None:
            parts.append(f"{self.seconds:g}s")
        elif self.queries:
            parts.append(str(self.queries))
        name = "-".join(["bench", *(part for part in parts if part), f"x{self.seeds}"])
        return re.sub("[,:]", "-", name.replace(" ", ""))  # no colon of a part of one's own, which Windows forbids

    def _title(self, setup: BenchSetup, searches: dict[str, Search[Any]]) -> str:
        budget, draws = setup.budget, setup.draws
        limits = [f"{budget.queries} queries"] * bool(budget.queries)
        if budget.seconds:
            limits.append(f"{budget.seconds:,.0f} s")
        which = f"{draws} draws of the" if draws else "no"
        validation, other = setup.open().validation, ""
        full = [name for name, search in searches.items() if search.trains_fully]
        if full and validation.epochs:
            other = f" ({'; '.join(full)}: {validation.epochs[-1]})"
        if any(search.learns for search in searches.values()):
            from initio.runs.bench import SHARED_EPOCHS

            epochs, images = setup.shared_epochs or SHARED_EPOCHS, Path(setup.pictures()).stem
            learned = f"{epochs} epochs" + f" in batches of {setup.shared_batch}" * bool(setup.shared_batch)
            other += f" or by {learned} of a {self.size or 'small'} network that shares weights on {images}"
        return (
            f"{self.table}, selected by {validation.default_epochs}-epoch{other} validation on {self.dataset}, "
            f"{' and '.join(limits)}, {self.seeds} seeds, {which} scores"
        )


def controls(searches: Iterable[Search[Any]]) -> dict[str, Search[Any]]:
    """Random search with the k full trainings of those that rank first: what their ranking has to beat."""
    from initio.searches.methods.random_search import RandomSearch

    counts = [search.settings().get("k") for search in searches if search.trains_fully]
    return {f"random, k = {k}, full": RandomSearch(k, full=True) for k in counts if isinstance(k, int)}


def unequal(rows: Sequence[Summary]) -> list[str]:
    """A sentence about searches whose runs cost much more or less than the others', if there are any."""
    asking = {row.search: row.published_seconds for row in rows if row.published_seconds}
    middle = median(asking.values() or [1])
    shares = {name: seconds / middle for name, seconds in asking.items()}
    far = [f"{name} {share:.1f}" for name, share in shares.items() if max(share, 1 / share) > UNEQUAL]
    return ["", f"Unequal cost, as a multiple of the median of the rows' published seconds: {', '.join(far)}."] * bool(
        far
    )


def markdown(rows: Sequence[Summary], published: Sequence[Published]) -> list[str]:
    """The comparison as a table that reads well in a terminal too."""
    columns = list(rows[0].report)
    head = ["search", *(f"test {c}" for c in columns), "validation", "regret", "in top 2", "queries", "found at"]
    table = [[*head, "published s", "our s"]]
    for r in rows:
        cells = [r.search, *(_pm(*r.report[c]) for c in columns), _pm(*r.validation), number(r.regret)]
        top = number(r.in_top_two, 0) + f"/{r.seeds}" * (r.in_top_two is not None)
        cells += [top, f"{r.queries:.1f}", f"{r.found_at:g}"]
        table.append([*cells, f"{r.published_seconds:,.0f}", f"{r.seconds:.2f}"])
    for p in published:
        values = [_pm(*value) for value in p.values][: len(columns)]
        values += [""] * (len(columns) - len(values))
        table.append([f"published: {p.label}, {p.budget} ({p.source})", *values, "", "", "", "", "", "", ""])
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in table
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def _pm(mean: float, deviation: float | None) -> str:
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f}±{deviation:.2f}"


def epochs_csv(outcomes: Sequence[Outcome]) -> str:
    """One line an epoch of each run that shares weights: what its choice would have been, by the table."""
    text = io.StringIO()
    columns = list(outcomes[0].report)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["search", "seed", "epoch", *columns, "seconds"])
    for o in outcomes:
        for point in o.curve:
            reported = (point.report.get(column, "") for column in columns)
            writer.writerow([o.search, o.seed, point.queries, *reported, f"{point.seconds:.2f}"])
    return text.getvalue()


def runs_csv(outcomes: Sequence[Outcome]) -> str:
    """One line a run."""
    text = io.StringIO()
    columns = list(outcomes[0].report)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["search", "seed", "architecture", *columns, "validation", "regret", "rank", "queries", "found_at", "seconds"]
    )
    for o in outcomes:
        numbers = (o.validation, o.regret, o.rank, o.queries, o.found_at, o.published_seconds)
        reported = (o.report.get(column, "") for column in columns)
        writer.writerow([o.search, o.seed, " ".join(map(str, o.choices)), *reported, *numbers])
    return text.getvalue()
