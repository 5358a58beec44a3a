"""`initio ensemble SPACE`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Literal

from initio.cli.progress import SolveReporter, resumable
from initio.cli.units import tell
from initio.errors import InputError
from initio.records import encode

OF_SEARCH = ("posterior", "posterior_epochs", "supernet_epochs", "batch_size")  # that --shared has settled
OF_RESUME = ("resume", "json", "workers", "cluster", "settings")


@dataclass(frozen=True)
class EnsembleCommand:
    """Finds, trains and averages several different cells that are good together.

    One shared network is trained, a posterior over architectures is learned on it, ensembles are sampled from the
    posterior and compared with the shared weights; the best one's members are trained, and measured on samples that
    nobody has learned from. Every other setting of the search is an option too, listed by
    `initio ensemble --method nesbs --help`.

    Args:
        space: one with a supernet: nb201, darts or nb1shot1.
        data: digits, a file or a folder; docs/data.md lists all kinds.
        posterior: learn it once the shared weights are trained, or beside them.
        posterior_epochs: passes over the held-out part, for the posterior.
        batch_size: of the shared weights; 128, or less where an epoch would have fewer than 30 updates.
        out: folder of the ensemble; by default a new one below `runs`.
        resume: go on with this interrupted ensemble; nothing but --workers, --cluster and --json goes with it.
        json: print what came out as JSON.
    """

    space: str = "nb201"
    data: str | None = None
    size: int = 3
    method: Literal["nesbs", "nes-rs", "nes-re", "random", "deep", "droppath"] = "nesbs"
    prior: Literal["auto", "uniform", "ranking"] | None = None
    sampling: Literal["svgd", "mc"] | None = None
    delta_by: Literal["grid", "bayes"] | None = None
    candidates: int | None = None
    temperature: float | None = None
    posterior: Literal["post-training", "best-response"] = "post-training"
    posterior_epochs: int = 20
    supernet_epochs: int | None = None
    batch_size: int | None = None
    recipe: str = "quick"
    epochs: int | None = None
    channels: int | None = None
    cells: int | None = None
    drop_path: float | None = None
    shared: str | None = None
    seed: int = 0
    workers: int = 1
    cluster: str | None = None
    device: str = "cpu"
    out: str | None = None
    resume: str | None = None
    json: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    VERB: ClassVar[tuple[str, ...]] = (
        "initio.runs.ensemble:ensemble",
        "initio.runs.folders.ensemble:EnsemblePlan",
    )
    FIRST: ClassVar[str] = "space"
    SHARED: ClassVar[tuple[str, ...]] = ("posterior", "posterior_epochs")
    OWN: ClassVar[tuple[str, ...]] = ("size",)  # of the search it is that of the shared network

    @classmethod
    def parts(cls, given: Mapping[str, Any]) -> list[type[Any]]:
        """The search whose shared network and posterior an ensemble is made of."""
        from initio.searches import find_search

        return [find_search("nesbs")] if "method" in given else []

    def run(self) -> None:
        """Works with progress on stderr, then says what came out and where it is."""
        from initio.runs.ensemble import ensemble, resume_ensemble
        from initio.runs.folders.base import new_folder

        if self.resume is not None:
            others = [item.name for item in fields(self) if item.name not in OF_RESUME]
            self._refuse("--resume goes on with what was asked", others)
            folder, work = (
                Path(self.resume),
                partial(resume_ensemble, self.resume, workers=self.workers, cluster=self.cluster),
            )
        else:
            if not self.data:
                raise InputError("say what to learn: --data digits, a file or a folder")
            folder = Path(self.out) if self.out else new_folder("ensemble", self.space, seed=self.seed)
            leave = ["space", "data", "out", "resume", "json", "settings"]
            if self.shared is not None:
                self._refuse("--shared has a trained network", OF_SEARCH)
                leave += OF_SEARCH
            asked = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in leave}
            asked |= self.settings
            if self.batch_size is None:
                asked.pop("batch_size", None)
            work = partial(ensemble, self.space, self.data, folder=folder, **asked)
        with resumable("ensemble", folder), SolveReporter() as told:
            found = work(on_event=told.hear)
        text = f"{found}\n\nfolder  {folder}  (as one file: initio export {quote(str(folder))} --format onnx)"
        facts = {"plan": found.plan, "choice": found.choice, "outcome": found.outcome}
        tell(text, {name: encode(value) for name, value in facts.items()}, json=self.json)

    def _refuse(self, why: str, names: Iterable[str]) -> None:
        """Refuses options that would be without effect, those of the search among them."""
        given = [name for name in names if getattr(self, name) != getattr(EnsembleCommand, name)]
        for name in [*given, *self.settings]:
            raise InputError(f"{why}: leave out --{name.replace('_', '-')}")
