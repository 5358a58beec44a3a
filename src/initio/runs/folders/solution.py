"""The folder of `initio solve`: what it was asked, decided and found, and the page that explains them.

| file          | what                                                                              |
|---------------|-----------------------------------------------------------------------------------|
| `solve.json`  | all that the verb was asked, written first                                        |
| `clock.txt`   | seconds of work so far, noted every few seconds                                   |
| `data.json`   | what was seen of the data                                                         |
| `linear.json` | the linear classifier's accuracy                                                  |
| `design.json` | space, method, input size, width, depth, and the time that is left for them       |
| `search/`     | the run that chose the cell                                                       |
| `found/`      | the chosen network, trained, with its evaluation and its exports                  |
| `resnet/`     | the ResNet of the same size, likewise                                             |
| `README.md`, `solution.json` | what came out, for people and for programs; written last           |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar

from initio.data.look import DataReport
from initio.records import later
from initio.report.terminal import columns
from initio.runs.folders.base import Folder, read_record, write_record
from initio.runs.folders.run import limit_words, option_words, time_word
from initio.searches.limits import Limits
from initio.system.files import add_line, whole_lines

T = TypeVar("T")

NAMES = {"found": "found network", "resnet": "ResNet of the same size", "linear": "linear classifier"}


@dataclass(frozen=True)
class SolvePlan:
    """What the verb was asked."""

    data: str
    budget: float
    limits: Limits
    space: str | None
    method: str | None
    recipe: str
    baseline: bool
    skip_bad: bool
    seed: int
    device: str = later("cpu")
    versions: dict[str, str] = field(default_factory=dict, compare=False)

    kind: ClassVar[str] = "solve plan"

    def command(self) -> str:
        """The same for the command line."""
        asked = {"data": self.data, "budget": time_word(self.budget), **limit_words(self.limits)}
        own = ("space", "method", "recipe", "baseline", "skip_bad", "seed", "device")
        asked |= {name: getattr(self, name) for name in own}
        return f"initio solve {option_words({name: value for name, value in asked.items() if value is not None})}"


@dataclass(frozen=True)
class HeldOutScore:
    """An accuracy on the part that was kept aside, in percent, with the bounds of its 95 % interval."""

    accuracy: float
    low: float
    high: float
    learned: str  # how

    kind: ClassVar[str] = "held-out score"

    def __str__(self) -> str:
        return f"{self.accuracy:.2f} % (95 % interval {self.low:.2f} to {self.high:.2f}), {self.learned}"


@dataclass(frozen=True)
class Design:
    """What is searched and built, from what was seen and from the speed of this machine.

    Args:
        space: where is searched.
        method: how.
        pixels: of an image's side as it is learned; None for features, and for images that stay as they are.
        channels: width of the network.
        cells: its number of cells.
        epoch: seconds of an epoch of a typical network of this size.
        samples: that are learned from; None for all.
        seconds: that were left for search and trainings when this was decided.
        compared: whether half of them are for a ResNet.
        why: all this in one sentence.
    """

    space: str
    method: str
    pixels: int | None
    channels: int
    cells: int
    epoch: float
    samples: int | None
    seconds: float
    compared: bool
    why: str

    kind: ClassVar[str] = "design"

    @property
    def half(self) -> float:
        """Seconds of a contender: for search and training of the found network, for the training of the ResNet."""
        return self.seconds / (1 + self.compared)


@dataclass(frozen=True)
class SolveResult:
    """What came out.

    Args:
        folder: of the run.
        report: what was seen of the data.
        design: what was built.
        architecture: the chosen one, in its space's notation.
        reason: why it was chosen.
        parameters: of the networks.
        scores: on the part that was kept aside: of the networks and of the linear classifier.
        kept: the network to use: the better one by validation accuracy.
        files: what was exported, relative to the folder.
        seconds: that all took.
        notes: what else a user should know.
    """

    folder: str
    report: DataReport
    design: Design
    architecture: str
    reason: str
    parameters: dict[str, int]
    scores: dict[str, HeldOutScore]
    kept: str
    files: tuple[str, ...]
    seconds: float = field(compare=False)
    notes: tuple[str, ...] = ()

    kind: ClassVar[str] = "solution"

    @property
    def score(self) -> HeldOutScore:
        """Of the network that was kept."""
        return self.scores[self.kept]

    def verdicts(self) -> list[str]:
        """Whether the search was worth it, one sentence for each that it was compared with."""
        if "found" not in self.scores:
            return []
        found = self.scores["found"]
        return [verdict(NAMES[name], found, other) for name, other in self.scores.items() if name != "found"]

    def told(self) -> dict[str, str]:
        """What is worth saying, by its name."""
        told = {"chosen": self.architecture, "why": self.reason}
        told["size"] = ", ".join(f"{NAMES[name]} {n:,} parameters" for name, n in self.parameters.items())
        told |= {NAMES[name]: str(score) for name, score in self.scores.items()}
        told["verdict"] = "; ".join(self.verdicts())
        told["kept"] = f"the {NAMES[self.kept]}: {', '.join(self.files)}"
        told["time"] = f"{self.seconds:.0f} s"
        return told | {f"note {number}": text for number, text in enumerate(self.notes, start=1)}

    def __str__(self) -> str:
        return columns(self.told())

    def markdown(self) -> str:
        """The page for people."""
        rows = [
            f"| {NAMES[name]} | {score.accuracy:.2f} | {score.low:.2f} to {score.high:.2f} | {score.learned} |"
            for name, score in self.scores.items()
        ]
        python = next((file for file in self.files if file.endswith(".py")), None)
        lines = [
            f"# A network for {self.report.data}",
            "",
            "## The data",
            "",
            *(f"- {sentence}" for sentence in self.report.told()),
            "",
            "## What was built, and why",
            "",
            f"- {self.design.why}",
            f"- chosen: `{self.architecture}`",
            f"- {self.reason}",
            *(f"- {note}" for note in self.notes),
            "",
            "## How good it is",
            "",
            f"On {self.report.tested:,} samples that neither search nor training has seen:",
            "",
            "| | accuracy in % | 95 % interval | |",
            "|---|---|---|---|",
            *rows,
            "",
            *(f"- {sentence}" for sentence in self.verdicts()),
            f"- kept: the {NAMES[self.kept]}, which has the best validation accuracy",
            f"- `{self.kept}/` has the confusion matrix, the calibration and the worst mistakes",
            "",
            "## The files",
            "",
            *(f"- `{file}`" for file in self.files),
        ]
        if python is not None:
            module = python.rpartition("/")[2].removesuffix(".py")
            lines += ["", f"`{python}` needs only torch; its weights and its card are beside it (`{module}.card.md`)."]
        return "\n".join(lines) + "\n"


def verdict(name: str, found: HeldOutScore, other: HeldOutScore) -> str:
    """
    >>> verdict("linear classifier", HeldOutScore(98.0, 96.0, 99.0, ""), HeldOutScore(90.0, 87.0, 93.0, ""))
    'the found network beats the linear classifier by 8.00 points'
    >>> verdict("linear classifier", HeldOutScore(90.0, 87.0, 93.0, ""), HeldOutScore(91.0, 88.0, 94.0, ""))
    'the found network does not beat the linear classifier: 1.00 points less, which may be chance'
    """
    gain = found.accuracy - other.accuracy
    chance = ", which may be chance" * (found.low <= other.high and other.low <= found.high)
    if gain > 0:
        return f"the found network beats the {name} by {gain:.2f} points{chance}"
    if gain == 0:
        return f"the found network does not beat the {name}: they have the same accuracy"
    return f"the found network does not beat the {name}: {-gain:.2f} points less{chance}"


class SolveFolder(Folder[SolvePlan, SolveResult]):
    """A folder that `solve` writes to, stage by stage."""

    kind = "solved task"
    verb = "solve"
    plan_name = "solve.json"
    result_name = "solution.json"
    plan_type = SolvePlan
    result_type = SolveResult

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        self.clock_path = self.folder / "clock.txt"

    def used(self) -> float:
        """Seconds of work so far; a line that is no number was not written by us and counts nothing."""
        noted = [line.decode(errors="replace") for line in whole_lines(self.clock_path)]
        return max((float(line) for line in noted if line.replace(".", "", 1).isdecimal()), default=0.0)

    def tick(self, seconds: float) -> None:
        """Notes the seconds of all work so far."""
        add_line(self.clock_path, f"{seconds:.3f}")

    def stage(self, name: str, kind: type[T], make: Callable[[], T]) -> T:
        """What a stage found: read if it is there, else made and kept."""
        path = self.folder / f"{name}.json"
        if path.is_file():
            return read_record(kind, path)
        found = make()
        write_record(path, found)
        return found
