"""`initio search [SPACE]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from initio.cli.options import refuse_beside_resume
from initio.cli.progress import watch
from initio.cli.units import BEGAN, limits, network, seconds
from initio.errors import InputError
from initio.runs.folders.base import new_folder
from initio.searches import SEARCHES
from initio.spaces import of_depth


@dataclass(frozen=True)
class SearchCommand:
    """Chooses an architecture, without training or with a few short ones, and saves the run.

    Without any argument: three metrics vote in the darts space, from noise. Every setting of a method is an option too,
    listed by `initio search --method NAME --help`. An option that a method has no use for is refused.

    Args:
        space: where to search; `initio spaces` lists the spaces. It may be the first word of the command.
        method: how to search: {methods}; docs/searches.md explains them. One of your own is named package.module:Name.
        data: noise, digits, a file or a folder; docs/data.md lists all kinds.
        restarts: search this often with derived seeds, report how far the restarts agree, and take the choice with the
            largest mean objective on common fresh batches and initialisations.
        batch_size: inputs in a batch; 64, or what a method that shares weights has published.
        max_params: upper limit on the parameters of the network that will be built, as in 4M or 500k: the published
            one, or where that is too large for most cells, one with less width and fewer cells.
        max_flops: upper limit on its FLOPs on images of 32x32.
        max_latency: upper limit on its measured time for one such image on one thread, as in 20ms or 0.5s. A time is
            noisy and belongs to this machine: the same seed may choose another architecture.
        target: size of the network that is wanted, which limits are about and which a method that trains trains, as in
            channels=16,cells=2,shape=3x32x32; by default the published one, and small ones are trained.
        depth: of an mlp.
        budget: time that a method that trains may take in all, as in 10m, 90s or 1h: pool, queries and epochs that are
            not given are as many as the measured speed allows.
        halving: give up a training that is not among the best in so many after 1, and again after so many times as
            many epochs, as in 3; by default every training goes to its end.
        cache: keep trainings in the user's cache, so that no other run repeats one; `initio cache` says where it is.
        out: folder of the run; by default a new one below `runs`.
        resume: go on with this interrupted run, with the settings it was started with; no other option goes with it.
        json: print the result as JSON instead of a drawing.
    """

    space: str = "darts"
    method: str = "votes"
    data: str = "noise"
    labels: Literal["true", "random"] = "true"
    seed: int = 0
    restarts: int = 1
    batch_size: int | None = None
    channels: int | None = None
    cells: int | None = None
    pixels: int | None = None
    max_params: str | None = None
    max_flops: str | None = None
    max_latency: str | None = None
    target: str | None = None
    depth: int | None = None
    queries: int | None = None
    epochs: int | None = None
    pool: int | None = None
    budget: str | None = None
    halving: int | None = None
    workers: int | None = None
    cluster: str | None = None
    device: str = "cpu"
    cache: bool = True
    out: str | None = None
    resume: str | None = None
    json: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.search:search",)
    FIRST: ClassVar[str] = "space"
    WORDS: ClassVar[Mapping[str, str]] = {"methods": ", ".join(SEARCHES)}

    @classmethod
    def parts(cls, given: Mapping[str, Any]) -> list[type[Any]]:
        """The chosen method, whose settings are options."""
        from initio.searches import find_search

        return [find_search(given["method"])] if "method" in given else []

    def run(self) -> None:
        """Searches with progress on stderr, then draws the cell and says where the run is."""
        from initio.runs.search import resume_run, search

        folder, work = self._folder(), partial(resume_run)
        if self.resume is None:
            work = partial(search, **self._asked())
        watch(partial(work, began=BEGAN.get()), folder, json=self.json)

    def _asked(self) -> dict[str, Any]:
        """The arguments of the verb."""
        asked_limits = limits(self)
        unasked = ("depth", "out", "resume", "json", "settings", *asked_limits)
        asked = {name: value for name, value in vars(self).items() if name not in unasked}
        asked["budget"] = seconds("--budget", self.budget)
        asked["target"] = network("--target", self.target)
        if self.cache:
            del asked["cache"]  # the default, also of a method that trains nothing and would refuse the option
        if self.depth is not None:
            asked["space"] = of_depth(self.space, self.depth)
        return asked | {"limits": asked_limits} | dict(self.settings)

    def _folder(self) -> Path:
        if self.resume is not None:
            refuse_beside_resume(self, "run")
        for option, text in (("--resume", self.resume), ("--out", self.out)):
            if text == "":
                raise InputError(f"{option} needs the folder of a run, not an empty name")
            if text is not None:
                return Path(text)
        return new_folder(self.space, self.method, seed=self.seed)
