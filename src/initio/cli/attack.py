"""`initio attack TRAINED`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from initio.cli.progress import Reporter
from initio.cli.units import print_json


@dataclass(frozen=True)
class AttackCommand:
    """Attacks each member of an ensemble in turn and all together, and measures what all of them still answer rightly.

    FGSM, PGD and AutoAttack change inputs by at most 0.01 a pixel (of 0 to 1), CW by as little as it can. Samples whose
    gradient is zero are reported as masked, not as robust. Each round is kept as it is done: the same command goes on
    after an interruption.

    Args:
        trained: the folder of an ensemble, or of one trained network.
        attack: fgsm, pgd, cw, autoattack, as in `--attack fgsm pgd`.
        json: print every round as JSON.
    """

    trained: str
    attack: tuple[str, ...] = ("fgsm", "pgd", "cw")
    samples: int = 100
    seed: int = 0
    device: str = "cpu"
    json: bool = False

    VERB: ClassVar[tuple[str, ...]] = ("initio.runs.attack:attack",)

    def run(self) -> None:
        """Attacks with progress on stderr, then prints the table."""
        from initio.runs.attack import attack

        with Reporter() as told:
            result = attack(
                self.trained, self.attack, samples=self.samples, seed=self.seed, device=self.device,
                on_pass=told.show, on_note=told.note,
            )  # fmt: skip
        if self.json:
            print_json(result)
            return
        titles = ("attack", "on", "fooled %", "masked %", "resisted %", "all answer rightly %")
        rows = [titles, *result.rows()]
        widths = [max(len(row[place]) for row in rows) for place in range(len(titles))]
        for row in rows:
            print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        print(f"\nbefore any attack all together answer {result.clean:.1f} % of {result.samples} samples rightly")
