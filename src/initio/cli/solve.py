"""`initio solve --data DATA`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from initio.cli.options import refuse_beside_resume
from initio.cli.progress import SolveReporter, resumable
from initio.cli.units import BEGAN, limits, seconds, tell
from initio.errors import InputError
from initio.records import encode


@dataclass(frozen=True)
class SolveCommand:
    """Makes a trained, evaluated and exported network of your data, in the time that you have.

    Looks at the data, searches a network by the best method that the time allows, trains it, trains a ResNet of the
    same size for comparison, measures both on samples that nobody has learned from, and exports the better one.

    Args:
        data: digits, a file or a folder; docs/data.md lists all kinds.
        budget: time for everything, as in 90s, 20m or 2h; kept within a tenth.
        max_params: upper limit on the parameters of the network, as in 1M or 500k.
        max_flops: upper limit on its FLOPs for one image.
        max_latency: upper limit on its measured time for one image on one thread, as in 20ms.
        baseline: give half of the time to a ResNet of the same size.
        out: folder of the run; by default a new one below `runs`.
        resume: go on with this interrupted run; the time that it used counts, and nothing else goes with it.
        json: print what came out as JSON.
    """

    data: str | None = None
    budget: str = "20m"
    max_params: str | None = None
    max_flops: str | None = None
    max_latency: str | None = None
    space: str | None = None
    method: str | None = None
    recipe: str = "quick"
    baseline: bool = True
    skip_bad: bool = False
    seed: int = 0
    device: str = "auto"
    out: str | None = None
    resume: str | None = None
    json: bool = False

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.solve:solve",)

    def run(self) -> None:
        """Solves with progress on stderr, then says what came out and where it is."""
        from initio.runs.solve import new_solve_folder, resume_solve, solve

        if self.resume is not None:
            refuse_beside_resume(self, "run")
            folder, work = Path(self.resume), partial(resume_solve, self.resume)
        else:
            if not self.data:
                raise InputError("say what to learn: --data digits, a file or a folder")
            folder = Path(self.out) if self.out else new_solve_folder(self.data)
            own = ("space", "method", "recipe", "baseline", "skip_bad", "seed", "device")
            asked = {name: getattr(self, name) for name in own}
            time = seconds("--budget", self.budget) or 0.0
            work = partial(solve, self.data, time, limits=limits(self), folder=folder, **asked)
        with resumable("solve", folder), SolveReporter() as told:
            solution = work(on_event=told.hear, began=BEGAN.get())
        tell(f"{solution}\n\nfolder  {folder}  (README.md explains it)", encode(solution), json=self.json)
