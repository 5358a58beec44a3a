"""The verb behind `initio study estimates`: whether shared weights foresee how good trained ensembles are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from math import comb
from pathlib import Path
from random import Random

import numpy as np
from scipy.special import softmax

from initio.analysis.ensembles import EstimateAgreement, agreement
from initio.autodiff.devices import find_device
from initio.errors import InputError
from initio.records import Architecture
from initio.runs.ensemble import inherited
from initio.runs.folders.ensemble import Ensemble, load_ensemble
from initio.runs.folders.run import RunFolder
from initio.runs.sharing import trained_weights
from initio.searches.ensembles import Estimates
from initio.spaces import get_space

SIZES = (1, 3, 5)  # [NESBS Table 5.6]
MOST = 200  # ensembles of a size that are compared


def estimates(
    folders: Sequence[str | Path], sizes: Sequence[int] = SIZES, *, seed: int = 0, device: str = "cpu"
) -> list[EstimateAgreement]:
    """Loss with shared weights on held-out samples against error of the trained networks on what was kept aside.

    All different networks that these ensembles have trained are put together anew; all must be trained alike.

    Args:
        folders: of finished ensembles with one shared network (`--shared`).
        sizes: of the ensembles that are compared; those with fewer than three are left out.
        seed: of the draw, where there are more than 200 of a size.
        device: what computes: cpu, cuda, cuda:1, or auto, a GPU where there is one.
    """
    find_device(device, measured=True)  # which refuses what cannot be
    found = [load_ensemble(folder) for folder in folders]
    runs = {one.searched.resolve() for one in found}
    if len(runs) != 1:
        raise InputError(f"ensembles of {len(runs)} shared networks: compare those of one, made with --shared")
    _check_alike(found)
    _, at = trained_weights(RunFolder(*runs), device)
    answers, labels = _trained(found)
    held = np.concatenate([y.numpy() for _, y in at.examples.validate()])
    judged = Estimates(at.space, partial(inherited, at), held)
    rows = []
    for size in sizes:
        if comb(len(answers), size) < 3:
            continue
        groups = _groups(sorted(answers), size, Random(f"estimates {seed}"))
        true = [float((np.mean([answers[a] for a in group], axis=0).argmax(1) != labels).mean()) for group in groups]
        rows.append(agreement([judged.loss(group) for group in groups], true, size=size))
    if not rows:
        raise InputError(f"{len(answers)} different trained networks are too few to compare ensembles of them")
    return rows


def _check_alike(found: Sequence[Ensemble]) -> None:
    """Refuses networks of several recipes or sizes: how they were trained is not what shared weights could foresee."""
    first: tuple[Path, dict[str, object]] | None = None
    for one in found:
        if one.plan.method == "droppath":  # whose network is not asked
            continue
        plan = one.members[0].plan
        how: dict[str, object] = {"recipe": plan.recipe, **plan.settings}
        how |= {"channels": plan.network.channels, "cells": plan.network.cells}
        first = first or (one.folder, how)
        for name in sorted(how.keys() | first[1].keys()):
            was, now = first[1].get(name), how.get(name)
            if was != now:
                raise InputError(
                    f"members of {str(first[0])!r} are trained with {name} {was}, those of {str(one.folder)!r} with "
                    f"{now}: compare ensembles whose members are trained alike"
                )


def _groups(members: Sequence[Architecture], size: int, rng: Random) -> list[tuple[Architecture, ...]]:
    """At most `MOST` different groups of so many members, every one as likely as another."""
    if comb(len(members), size) <= MOST:
        return list(combinations(members, size))
    drawn: dict[tuple[Architecture, ...], None] = {}
    while len(drawn) < MOST:
        drawn[tuple(sorted(rng.sample(members, size)))] = None
    return list(drawn)


def _trained(found: Sequence[Ensemble]) -> tuple[dict[Architecture, np.ndarray], np.ndarray]:
    """The probabilities of each different trained network on what was kept aside, by its member, and the labels."""
    answers: dict[Architecture, np.ndarray] = {}
    networks: set[Architecture] = set()
    for one in found:
        with np.load(one.folder / "predictions.npz") as kept:
            labels = np.asarray(kept["labels"])
            if one.plan.method != "droppath":
                home = get_space(one.plan.space)
                for number, logits in zip(one.outcome.members, kept["logits"], strict=True):
                    member = one.choice.members[number - 1]
                    if home.canonical(member) not in networks:
                        networks.add(home.canonical(member))
                        answers[member] = softmax(logits, axis=1)
    return answers, labels
