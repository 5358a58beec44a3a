"""The verb: `initio.attack`. How an ensemble, or one trained network, stands up to attacks [NESBS 5.3.6]."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from initio.autodiff.devices import apart, find_device
from initio.data.draw import whole
from initio.errors import InputError, did_you_mean
from initio.records import decode
from initio.runs.folders.base import add_record, read_lines, write_record
from initio.runs.folders.ensemble import Ensemble, EnsembleFolder, load_ensemble, normalising, raw_inputs
from initio.runs.folders.model import TrainedModel, load_model
from initio.system.leases import leased

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from initio.networks.attacks import Bounds

WHOLE = "all"
OnPass = Callable[[str, int, int], None]
ATTACKED = 90210  # stream of the samples that are attacked


@dataclass(frozen=True)
class AttackRound:
    """One attack on one network; shares are in percent of the samples that it answered rightly before, None if none.

    Args:
        attack: its name.
        on: the member that was attacked, from 1; `all` is the mean of the members.
        samples: answered rightly before.
        fooled: share that the attacked network answers wrongly now.
        masked: share that it still answers rightly, but whose gradient is exactly zero: no attack by gradients could
            have turned them, so they are no sign of robustness. (A gradient that is merely tiny or useless is not seen;
            AutoAttack's Square, which asks for none, is there for such networks.)
        resisted: the rest.
        distance: mean L2 of the changes of those that were turned; None if none was.
        accuracy: of all members together on the changed inputs of all samples.
    """

    attack: str
    on: str
    samples: int
    fooled: float | None
    masked: float | None
    resisted: float | None
    distance: float | None
    accuracy: float

    def told(self) -> str:
        """In one line."""
        whom = "all together" if self.on == WHOLE else f"member {self.on}"
        fooled = "which was never right" if self.fooled is None else f"{self.fooled:.1f} % of its right answers turned"
        return f"{self.attack} on {whom}: {fooled}"


@dataclass(frozen=True)
class AttackResult:
    """All rounds, and what there was before.

    Args:
        samples: that were attacked.
        clean: accuracy of all members together before, in percent.
        rounds: each attack on each member, then on all together.
    """

    samples: int
    clean: float
    rounds: tuple[AttackRound, ...]

    kind: ClassVar[str] = "attacks"

    def rows(self) -> list[tuple[str, ...]]:
        """The table: by attack, the mean over members that are attacked, then all together attacked.

        Members without a right answer before have no shares and do not count in theirs.
        """
        found = []
        for attack in dict.fromkeys(each.attack for each in self.rounds):
            own = [each for each in self.rounds if each.attack == attack]
            singles, whole = [each for each in own if each.on != WHOLE], [each for each in own if each.on == WHOLE]
            for name, group in (("one member", singles), ("all together", whole)):
                if group:
                    columns = ("fooled", "masked", "resisted", "accuracy")
                    found.append(
                        (attack, name, *(_mean([getattr(each, column) for each in group]) for column in columns))
                    )
        return found


def attack(
    target: Ensemble | TrainedModel | str | Path,
    attacks: Sequence[str] = ("fgsm", "pgd", "cw"),
    *,
    samples: int = 100,
    seed: int = 0,
    device: str = "cpu",
    save: bool = True,
    on_pass: OnPass = lambda task, done, total: None,
    on_note: Callable[[str], object] = lambda sentence: None,
) -> AttackResult:
    """Attacks each member in turn and all together, and lets all answer; writes `attacks.json` into the folder.

    Each round is on disk when it is done, in `unfinished-attacks-....jsonl`: attacks that were killed go on with the
    next round when the same are asked of the same networks again.

    Args:
        target: an ensemble or a trained network, or its folder.
        attacks: names of `initio.networks.attacks.ATTACKS`.
        samples: how many of those that were kept aside, drawn by the seed.
        seed: of the samples.
        device: what computes: cpu, cuda, cuda:1, mps, or auto, a GPU where there is one.
        save: write; without it nothing is written.
        on_pass: hears of each pass through a network, with the number of passes that all attacks take at most.
        on_note: hears what each round came to, and how many are done already.
    """
    from initio.networks.attacks import ATTACKS, answers

    whole(samples, "number of samples", 1)
    on = find_device(device)
    for name in attacks:
        if name not in ATTACKS:
            raise InputError(f"there is no attack {name!r}: {did_you_mean(name, list(ATTACKS))}")
    if not isinstance(target, Ensemble | TrainedModel):
        target = load_ensemble(target) if EnsembleFolder.is_at(target) else load_model(target)
    members = target.fixed("attacked").members if isinstance(target, Ensemble) else [target]
    networks, x, y, bounds = _prepared(members, samples, seed, on)

    def rounds(journal: Path | None) -> AttackResult:
        found = _rounds(attacks, networks, x, y, bounds, journal, on_pass, on_note)
        return AttackResult(len(y), _percent(answers(networks[-1], x) == y), tuple(found))

    if not save:
        return rounds(None)
    with leased(target.folder, on_note):
        same = (tuple(attacks), samples, seed, [one.digest("best") for one in members], apart(str(on)))
        key = hashlib.sha256(repr(same).encode()).hexdigest()[:8]
        journal = target.folder / f"unfinished-attacks-{key}.jsonl"
        result = rounds(journal)
        write_record(target.folder / "attacks.json", result)
        journal.unlink(missing_ok=True)
    return result


def _rounds(
    attacks: Sequence[str],
    networks: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    bounds: Bounds,
    journal: Path | None,
    on_pass: OnPass,
    on_note: Callable[[str], object],
) -> list[AttackRound]:
    """Each attack on each member, then on all together; those that the journal has are not done again."""
    known = {} if journal is None else {(r.attack, r.on): r for r in read_lines(journal, partial(decode, AttackRound))}
    named = [*(str(number) for number in range(1, len(networks))), WHOLE]
    asked = [(name, who, network) for name in attacks for who, network in zip(named, networks, strict=True)]
    if known:
        on_note(f"{len(known)} of {len(asked)} rounds are done already")
    with _counted(networks, attacks, on_pass) as finish:
        for name, who, network in asked:
            if (name, who) not in known:
                known[name, who] = _round(name, who, network, networks[-1], x, y, bounds)
                if journal is not None:
                    add_record(journal, known[name, who])
                on_note(known[name, who].told())
            finish()
    return [known[name, who] for name, who, _ in asked]


@contextmanager
def _counted(networks: Sequence[nn.Module], attacks: Sequence[str], hear: OnPass) -> Iterator[Callable[[], None]]:
    """Tells of every pass, also those inside of all together; gives what is to be called when a round has ended."""
    from initio.networks.attacks import most_passes

    inside = [1] * (len(networks) - 1) + [len(networks)]
    ends = np.cumsum([most_passes(name) * passes for name in attacks for passes in inside]).tolist()
    ended, done = 0, 0

    def note(*_: object) -> None:
        nonlocal done
        if done < ends[ended]:  # the few passes at an attack's beginning and end are not told
            done += 1
            hear("passes of attacks", done, ends[-1])

    def finish() -> None:
        nonlocal ended, done
        ended, done = min(ended + 1, len(ends) - 1), ends[ended]

    hooks = [network.register_forward_hook(note) for network in networks]
    try:
        yield finish
    finally:
        for hook in hooks:
            hook.remove()


def _prepared(
    members: Sequence[TrainedModel], samples: int, seed: int, device: torch.device
) -> tuple[list[nn.Module], Tensor, Tensor, Bounds]:
    """Members and then all together as networks that read values between bounds, and what they are attacked on."""
    from initio.networks.averaged import Averaged

    networks = normalising(members[0], [member.build() for member in members])
    if len(members) > 1:
        networks.append(Averaged(networks).eval())
    x, y, bounds = raw_inputs(members[0], samples, seed, ATTACKED)
    return [network.to(device) for network in networks], x.to(device), y.to(device), bounds


def _round(
    name: str, on: str, network: nn.Module, together: nn.Module, x: Tensor, y: Tensor, bounds: Bounds
) -> AttackRound:
    from initio.networks.attacks import ATTACKS, answers, gradient

    before = answers(network, x) == y
    changed = ATTACKS[name](network, x, y, bounds)
    fooled = before & (answers(network, changed) != y)
    blind = gradient(network, x, y).flatten(1).abs().amax(1) == 0
    masked = before & ~fooled & blind
    count = int(before.sum())

    def share(of: Tensor) -> float | None:
        return 100 * (int(of.sum()) / count) if count else None

    distance = None
    if fooled.any():
        distance = float((changed - x)[fooled].flatten(1).norm(dim=1).cpu().double().mean())  # mps has no float64
    return AttackRound(
        attack=name,
        on=on,
        samples=count,
        fooled=share(fooled),
        masked=share(masked),
        resisted=share(before & ~fooled & ~masked),
        distance=distance,
        accuracy=_percent(answers(together, changed) == y),
    )


def _mean(values: Sequence[float | None]) -> str:
    """Of those that exist."""
    known = [value for value in values if value is not None]
    return f"{np.mean(known):.1f}" if known else "none was right"


def _percent(right: Tensor) -> float:
    return 100 * (int(right.sum()) / len(right))
