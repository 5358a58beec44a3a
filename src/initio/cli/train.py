"""`initio train ARCH`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar

from initio.cli.options import refuse_beside_resume
from initio.cli.progress import TrainReporter, resumable
from initio.cli.units import print_json
from initio.errors import InputError


@dataclass(frozen=True)
class TrainCommand:
    """Trains the network of an architecture on your data, and keeps it in a folder.

    Every setting of a recipe is an option too, listed by `initio train --recipe NAME --help`.

    Args:
        architecture: a run folder, a notation, a published cell by name (darts_v2), or a file with one of these.
        data: digits, a file or a folder; docs/data.md lists all kinds. By default what the run has searched on.
        recipe: how: quick (minutes), cifar, cifar100, imagenet, nb201 or plain, as docs/training.md explains.
        out: folder of the trained network; by default a new one below `runs`.
        resume: go on with this interrupted training, with the settings it was started with; nothing else goes with it.
        json: print JSON instead of text.
    """

    architecture: str | None = None
    data: str | None = None
    recipe: str = "quick"
    seed: int = 0
    channels: int | None = None
    cells: int | None = None
    skip_bad: bool = False
    tensorboard: bool = True
    out: str | None = None
    resume: str | None = None
    json: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.train:train",)
    FIRST: ClassVar[str] = "architecture"

    @classmethod
    def parts(cls, given: Mapping[str, Any]) -> list[type[Any]]:
        """The recipe and the machine, whose settings are options."""
        from initio.training.recipes import find_recipe
        from initio.training.settings import MachineSettings

        return [find_recipe(given.get("recipe", cls.recipe)), MachineSettings]

    def run(self) -> None:
        """Trains with progress on stderr, then says what came out and where it is."""
        from initio.runs.folders.base import new_folder
        from initio.runs.folders.named import find_named
        from initio.runs.train import resume_training, train

        if self.resume is not None:
            refuse_beside_resume(self, "training")
            folder, work = Path(self.resume), partial(resume_training, self.resume)
        else:
            if not self.architecture:
                raise InputError("missing architecture: a run folder, a notation or a published cell, as darts_v2")
            space = find_named(self.architecture).architecture.space
            folder = Path(self.out) if self.out else new_folder("train", space, seed=self.seed)
            work = partial(train, self.architecture, self.data, self.recipe, folder=folder, **self._asked())
        with resumable("train", folder), TrainReporter() as told:
            trained = work(on_event=told.hear)
        if self.json:
            print_json({"plan": trained.plan, "outcome": trained.outcome, "epochs": trained.epochs})
        else:
            print(trained)
            print(f"\nfolder  {folder}  (measure it: initio evaluate {quote(str(folder))})")
        if trained.outcome.flag.startswith("the training diverged"):
            raise InputError(f"{trained.outcome.flag}: take a smaller learning rate, --lr")

    def _asked(self) -> dict[str, Any]:
        """The arguments of the verb; the options of the machine among them as one."""
        from initio.training.settings import MachineSettings

        ours = {item.name for item in fields(MachineSettings)}
        asked = {name: getattr(self, name) for name in ("seed", "channels", "cells", "skip_bad", "tensorboard")}
        machine = MachineSettings(**{name: value for name, value in self.settings.items() if name in ours})
        return asked | {"machine": machine} | {n: value for n, value in self.settings.items() if n not in ours}
