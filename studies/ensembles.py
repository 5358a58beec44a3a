"""Chapter 5 of the thesis at a small size: which ensembles of nb201 cells are best, and what they defend against.

    python -m studies.ensembles run --data FOLDER --out ens     # goes on where it was stopped
    python -m studies.ensembles page --out ens                  # the tables, as docs/results/ensembles.md has them
    python -m studies.ensembles figures --out ens               # Figures 5.3 and 5.5 to 5.7, with shared weights
    python -m studies.ensembles members --out ens               # Figure 5.4

All methods take one shared network by data and seed, and may ask for the predictions of the same number of networks; a
posterior that is sure asks for fewer, since draws with the same network twice are left out. Every number of a row is
read from the folders of `initio ensemble` and `initio attack`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

import initio
from initio.analysis.classification import Judgement
from initio.analysis.ensembles import EstimateAgreement, by_corruption, judge_ensemble
from initio.data import load
from initio.errors import InputError
from initio.records import Architecture
from initio.runs.attack import AttackResult, AttackRound
from initio.runs.estimates import SIZES, estimates
from initio.runs.folders.base import read_record, write_record
from initio.runs.folders.run import RunFolder
from initio.runs.sharing import trained_weights
from initio.searches.ensembles import ArchitecturePosterior, Estimates, TooSureError, nes_rs, nesbs, uniform

IMAGES, SIDE = 10_000, 16  # of each data set, half of its pixels a side
SUPERNET = {"epochs": 120, "posterior_updates": 2360}  # of the posterior as many as in the thesis
MEMBERS = {"channels": 8, "cells": 1, "epochs": 6, "size": 3}
DIGITS = {"epochs": 50, "batch_size": 32}  # what `initio ensemble nb201 --data digits` takes
NETWORKS = 60  # that a method may ask for predictions with shared weights
ATTACKED = {"fgsm": 100, "pgd": 100, "cw": 50, "autoattack": 20}  # images that an attack changes
DATA = ("cifar10", "cifar100", "digits")
COLOURS = DATA[:2]
MOST_SEEDS = 20  # that are looked for
REFUSED = "refused.txt"  # in the folder of an ensemble for which the posterior was too sure: the sentence
ROWS: dict[str, dict[str, Any]] = {
    "NESBS (SVGD-RD)": {"method": "nesbs", "sampling": "svgd", "candidates": NETWORKS // 3},
    "NESBS (MC)": {"method": "nesbs", "sampling": "mc", "candidates": NETWORKS // 3},
    "DeepEns (mode)": {"method": "deep"},
    "NES-RS": {"method": "nes-rs", "candidates": NETWORKS},
    "random": {"method": "random", "candidates": NETWORKS // 3},
    "MC DropPath": {"method": "droppath"},
    "NES-RE": {"method": "nes-re", "candidates": NETWORKS},
    "NESBS (ranking as prior)": {
        "method": "nesbs",
        "sampling": "svgd",
        "candidates": NETWORKS // 3,
        "prior": "ranking",
    },
}
DEFENDED = ("NESBS (SVGD-RD)", "NESBS (MC)", "DeepEns (mode)", "NES-RS", "random")  # DropPath cannot be: it is random
BEST_RESPONSE = ("NESBS (SVGD-RD)", "NESBS (MC)")  # Table 5.7, on CIFAR-10


def prepared(folder: Path, name: str, out: Path) -> str:
    """The same number of images of each class, at half of their side, as a file; digits are as they are."""
    if name not in COLOURS:
        return name
    path = out / "data" / f"{name}-{IMAGES}.npz"
    if not path.is_file():
        with np.load(folder / f"{name}_sub10k.npz") as found:
            x, y, test, labels = (found[key] for key in ("x_train", "y_train", "x_test", "y_test"))
        rng, classes = np.random.default_rng(0), int(y.max()) + 1
        each = IMAGES // classes
        picked = np.sort(np.concatenate([rng.permutation(np.flatnonzero(y == k))[:each] for k in range(classes)]))
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, x_train=_small(x[picked]), y_train=y[picked], x_test=_small(test), y_test=labels)
    return str(path)


def _small(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), SIDE, 2, SIDE, 2, 3).mean((2, 4)).round().astype(np.uint8)


def folder_of(out: Path, data: str, seed: int, row: str) -> Path:
    name = "".join(letter for letter in row.lower().replace(" ", "-") if letter.isalnum() or letter == "-")
    return out / f"{data}-{seed}" / name


def run(source: Path, out: Path, asked: Sequence[str], seeds: int) -> None:
    """Everything that takes time, the most wanted first; what is finished is not done again."""
    for seed in range(seeds):
        for data in asked:
            path = prepared(source, data, out)
            shared = _shared(path, out, data, seed, "post-training")
            for row, settings in ROWS.items():
                _made(path, folder_of(out, data, seed, row), shared, seed, settings)
    for seed in range(seeds):
        for data in asked:
            for row in DEFENDED * (data in COLOURS):
                if (folder_of(out, data, seed, row) / "result.json").is_file():
                    _attacked(folder_of(out, data, seed, row), seed)
    for seed in range(seeds):
        if DATA[0] in asked:
            path = prepared(source, DATA[0], out)
            shared = _shared(path, out, DATA[0], seed, "best-response")
            for row in BEST_RESPONSE:
                _made(path, folder_of(out, DATA[0], seed, f"{row} best-response"), shared, seed, ROWS[row])


def _attacked(folder: Path, seed: int) -> None:
    """A file an attack, so that a run that was stopped goes on with the next."""
    for attack, samples in ATTACKED.items():
        path = folder / f"attack-{attack}.json"
        if not path.is_file():
            began = time.process_time()
            write_record(path, initio.attack(folder, [attack], samples=samples, seed=seed, save=False))
            print(f"{folder.parent.name} {folder.name}: {attack} {time.process_time() - began:.0f} s", flush=True)


def _shared(path: str, out: Path, data: str, seed: int, posterior: str) -> Path:
    folder, began = out / f"{data}-{seed}" / posterior, time.process_time()
    done = folder.is_dir() and RunFolder(folder).finished
    settings = {"digits": DIGITS}.get(data, SUPERNET)
    initio.search(  # also of what is done, since it refuses other settings
        "nb201", "nesbs", path, seed=seed, folder=folder, resume=True, channels=8, cells=1, posterior=posterior,
        **settings,
    )  # fmt: skip
    if not done:
        _spent(folder, began)
    return folder


def _made(path: str, folder: Path, shared: Path, seed: int, settings: dict[str, Any]) -> None:
    if (folder / "result.json").is_file() or (folder / REFUSED).is_file():
        return
    began = time.process_time()
    asked = {"prior": "uniform", **{"digits": {"size": 3}}.get(path, MEMBERS), **settings}
    try:
        found = initio.ensemble("nb201", path, folder=folder, resume=True, shared=str(shared), seed=seed, **asked)
    except TooSureError as error:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REFUSED).write_text(f"{error}\n")
        print(f"{folder.parent.name} {folder.name}: {error}", flush=True)
        return
    _spent(folder, began)
    print(f"{folder.parent.name} {folder.name}: error {found.outcome.judgement.error:.2f} %", flush=True)


def _spent(folder: Path, began: float) -> None:
    """Seconds of one core, those of an interrupted run before included."""
    path = folder / "cost.json"
    before = json.loads(path.read_text())["seconds"] if path.is_file() else 0.0
    path.write_text(json.dumps({"seconds": before + time.process_time() - began}))


# --- tables ---------------------------------------------------------------------------------------------------------


def _finished(out: Path, data: str, row: str) -> list[Path]:
    folders = (folder_of(out, data, seed, row) for seed in range(MOST_SEEDS))
    return [folder for folder in folders if (folder / "result.json").is_file()]


def _seconds(folders: Sequence[Path]) -> str:
    """What these took of one core in the mean, where that was measured."""
    paths = [folder / "cost.json" for folder in folders if (folder / "cost.json").is_file()]
    if not paths:
        return ""
    return f"{np.mean([json.loads(path.read_text())['seconds'] for path in paths]):.0f}"


def _with_interval(values: Sequence[float], digits: int = 2) -> str:
    """Mean and half of the 95 % interval of Student's t."""
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{mean} ± {half:.{digits}f}"


def page(out: Path) -> str:
    """All tables as Markdown."""
    parts = [part for data in DATA for part in (_errors(out, data), _differences(out, data))]
    parts += [_singles(out), *(_defence(out, data) for data in COLOURS), _estimates(out), _posteriors(out)]
    return "\n\n".join(part for part in parts if part)


CORRUPTIONS = ("noise", "blur", "contrast")
TITLES = (
    "method", "seeds", "error %", "best member %", "loss", "ECE %", "Brier", *(f"{name} %" for name in CORRUPTIONS),
    "1,000 parameters", "networks asked", "own s",
)  # fmt: skip


def _errors(out: Path, data: str) -> str:
    """Tables 5.1 and 5.2: error, calibration, size and cost; then single networks, members of the above."""
    rows = [list(TITLES)]
    shared: set[Path] = set()
    for row in ROWS:
        found = [initio.load_ensemble(folder) for folder in _finished(out, data, row)]
        if not found:
            continue
        shared |= {each.searched for each in found}
        judged = [each.outcome.judgement for each in found]
        rows.append(
            [
                row, str(len(found)), _with_interval([one.error for one in judged]),
                _with_interval([min(one.singles) for one in judged]), *_quality([one.whole for one in judged]),
                *_corrupted([[error for _, error, _ in by_corruption(each.outcome.corrupted)] for each in found]),
                f"{np.mean([_parameters(each) for each in found]) / 1000:.0f}",
                f"{np.mean([each.choice.networks for each in found]):.0f}", _seconds([each.folder for each in found]),
            ]
        )  # fmt: skip
    rows += _alone(out, data)
    if len(rows) == 1:
        return ""
    before = f"The shared network took {_seconds(sorted(shared))} s before that"
    return f"{data} (Tables 5.1 and 5.2). {before}.\n\n{_table(rows)}"


def _alone(out: Path, data: str) -> list[list[str]]:
    """Single networks: all trainings of the mode, and the network of the least estimated loss of NES-RS's pool."""
    rows = []
    modes = [initio.load_ensemble(folder) for folder in _finished(out, data, "DeepEns (mode)")]
    if modes:
        judged = [_member_judgements(each) for each in modes]
        ates = [[ate for _, _, ate in by_corruption(each.outcome.corrupted)] for each in modes]
        rows.append(
            [
                "the mode alone, mean of its trainings", str(len(modes)),
                _with_interval([float(np.mean([100 - one.accuracy for one in own])) for own in judged]), "",
                *_quality([one for own in judged for one in own], by=len(judged[0])), *_corrupted(ates),
                f"{np.mean([_parameters(each) / each.plan.size for each in modes]) / 1000:.0f}", "1", "",
            ]
        )  # fmt: skip
    pools = [initio.load_ensemble(folder) for folder in _finished(out, data, "NES-RS")]
    if pools:
        first = [_member_judgements(each)[0] for each in pools]
        rows.append(
            [
                "the best of NES-RS's pool alone, by its estimate", str(len(pools)),
                _with_interval([100 - one.accuracy for one in first]), "", *_quality(first), *[""] * len(CORRUPTIONS),
                f"{np.mean([_parameters(each, 1) for each in pools]) / 1000:.0f}", f"{NETWORKS}", "",
            ]
        )  # fmt: skip
    return rows


def _member_judgements(found: initio.Ensemble) -> list[Judgement]:
    with np.load(found.folder / "predictions.npz") as kept:
        names = found.members[0].plan.names
        return [judge_ensemble(one[None], kept["labels"], names).whole for one in kept["logits"]]


def _quality(judged: Sequence[Judgement], by: int = 1) -> list[str]:
    """Loss, ECE and Brier score; `by` judgements in a row are one seed's, whose mean counts."""
    columns = (
        [one.loss for one in judged],
        [100 * one.calibration_error for one in judged],
        [one.brier for one in judged],
    )
    return [
        _with_interval(np.reshape(column, (-1, by)).mean(1).tolist(), digits)
        for column, digits in zip(columns, (3, 2, 3), strict=True)
    ]


def _corrupted(errors: list[list[float]]) -> list[str]:
    """By corruption, in the order of `CORRUPTIONS`."""
    return [_with_interval(own) for own in zip(*errors, strict=True)] or [""] * len(CORRUPTIONS)


def _parameters(found: initio.Ensemble, most: int | None = None) -> int:
    """Of all members, or of the first."""
    return sum(part.numel() for member in found.members[:most] for part in member.build().parameters())


def _differences(out: Path, data: str) -> str:
    """Errors by pairs: the same seed has the same shared network and images."""
    ours = [row for row in ROWS if row.startswith("NESBS")]
    rivals = [row for row in ROWS if row not in ours]
    errors = {row: _error_by_seed(out, data, row) for row in ROWS}
    rows = [["method", *(f"− {rival}" for rival in rivals)]]
    for row in ours:
        cells = []
        for rival in rivals:
            both = sorted(errors[row].keys() & errors[rival].keys())
            cells.append(_with_interval([errors[row][s] - errors[rival][s] for s in both]) if both else "")
        if any(cells):
            rows.append([row, *cells])
    return f"{data}: differences of errors, points, by seed\n\n{_table(rows)}" if len(rows) > 1 else ""


def _error_by_seed(out: Path, data: str, row: str) -> dict[str, float]:
    folders = _finished(out, data, row)
    return {folder.parent.name: initio.load_ensemble(folder).outcome.judgement.error for folder in folders}


def _singles(out: Path) -> str:
    """Table 5.5: ATE, PPD, and the oracle's error."""
    there = [data for data in DATA if any(_finished(out, data, row) for row in ROWS)]
    rows = [["method", *(f"{data} {name} %" for data in there for name in ("ATE", "PPD", "oracle"))]]
    for row in ROWS:
        cells = []
        for data in there:
            judged = [initio.load_ensemble(folder).outcome.judgement for folder in _finished(out, data, row)]
            for name in ("ate", "ppd", "oracle"):
                cells.append(_with_interval([getattr(one, name) for one in judged]) if judged else "")
        if any(cells):
            rows.append([row, *cells])
    return f"Table 5.5\n\n{_table(rows)}"


def _defence(out: Path, data: str) -> str:
    """Table 5.4: one member attacked, then all together; means over members, then over seeds."""
    titles = ("method", "images", "before: all right %", "one attacked: it is fooled %", "it is right %", "all right %")
    rows = [["attack", *titles, "all attacked: they are fooled %", "they are right %"]]
    for attack in ATTACKED:
        for row in DEFENDED:
            paths = [folder / f"attack-{attack}.json" for folder in _finished(out, data, row)]
            told = [read_record(AttackResult, path) for path in paths if path.is_file()]
            if told:
                seeds = [_attack_means(one) for one in told]
                columns = ([float(x) for x in column if x is not None] for column in zip(*seeds, strict=True))
                rows.append(
                    [attack, row, str(told[0].samples), *(_with_interval(own, 1) if own else "" for own in columns)]
                )
    return f"{data} (Table 5.4)\n\n{_table(rows)}" if len(rows) > 1 else ""


def _attack_means(result: AttackResult) -> list[float | None]:
    """Of one seed: right before; one attacked: fooled, right, all right; all attacked: fooled, right."""
    singles = [each for each in result.rounds if each.on != "all"]
    [together] = [each for each in result.rounds if each.on == "all"]
    fooled = [each.fooled for each in singles if each.fooled is not None]
    return [
        result.clean,
        float(np.mean(fooled)) if fooled else None,
        float(np.mean([_right(each, result.samples) for each in singles])),
        float(np.mean([each.accuracy for each in singles])),
        together.fooled,
        _right(together, result.samples),
    ]


def _right(each: AttackRound, samples: int) -> float:
    """Answers of the attacked network that are right in spite of it, in percent of all samples."""
    return each.samples / samples * (100 - (each.fooled or 0.0))


def _estimates(out: Path) -> str:
    """Table 5.6: estimated loss with shared weights against true error, of all different trained networks by seed."""
    rows = [["data", "n", "ensembles", "Spearman", "Pearson", "agreement of the best 30 %"]]
    for data in DATA:
        by_seed = [_agreements(out, data, seed) for seed in range(MOST_SEEDS)]
        for n in SIZES:
            found = [one[n] for one in by_seed if n in one]
            if not found:
                continue
            columns = ([getattr(one, name) for one in found] for name in ("spearman", "pearson", "top"))
            known = ([value for value in column if value is not None] for column in columns)
            cells = [_with_interval(own) if own else "" for own in known]
            rows.append([data, str(n), str(sum(one.ensembles for one in found)), *cells])
    return f"Table 5.6\n\n{_table(rows)}" if len(rows) > 1 else ""


def _agreements(out: Path, data: str, seed: int) -> dict[int, EstimateAgreement]:
    folders = [folder_of(out, data, seed, row) for row in ROWS]
    done = [folder for folder in folders if (folder / "result.json").is_file()]
    if not done:
        return {}
    return {one.size: one for one in estimates(done, seed=seed)}


def _posteriors(out: Path) -> str:
    """Table 5.7: the posterior learned after the weights, or beside them; the seeds in which both have an ensemble."""
    rows = [["method", "seeds", "refused", "best-response %", "post-training %"]]
    for row in BEST_RESPONSE:
        beside, after = (_error_by_seed(out, DATA[0], name) for name in (f"{row} best-response", row))
        both = sorted(beside.keys() & after.keys())
        refused = list(out.glob(f"{DATA[0]}-*/{folder_of(out, DATA[0], 0, f'{row} best-response').name}/{REFUSED}"))
        if both or refused:
            errors = [_with_interval([own[seed] for seed in both]) if both else "" for own in (beside, after)]
            rows.append([row, str(len(both)), str(len(refused)), *errors])
    return f"Table 5.7 ({DATA[0]})\n\n{_table(rows)}" if len(rows) > 1 else ""


def _table(rows: list[list[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


# --- figures --------------------------------------------------------------------------------------------------------


class _Judge:
    """Ensembles with shared weights: on held-out images, by which they are chosen, and on test images."""

    def __init__(self, run: Path, most: int = 500) -> None:
        _, self.at = trained_weights(RunFolder(run))
        x, y = (np.concatenate(part) for part in zip(*((a, b) for a, b in self.at.examples.validate()), strict=True))
        self.held = Estimates(self.at.space, partial(self._predict, x[:most]), y[:most])
        test = load(RunFolder(run).plan().data, split="test")
        assert isinstance(test, initio.Dataset)
        x, y = test.arrays()
        self.test = Estimates(self.at.space, partial(self._predict, x[:most]), y[:most])
        self.alpha = tuple(self.at.knows.values.tolist())

    def _predict(self, x: np.ndarray, arch: Architecture) -> np.ndarray:
        import torch

        from initio.networks.shared import Blend

        self.at.network.eval()
        with torch.inference_mode():
            parts = torch.from_numpy(x).split(128)
            path = Blend.path(self.at.space, arch)
            return np.concatenate([self.at.network(part, path).softmax(1).double().numpy() for part in parts])

    def error(self, members: Sequence[Architecture]) -> float:
        """On test images, in percent."""
        mean = np.mean([self.test.of(arch) for arch in members], axis=0)
        return float(100 * (mean.argmax(1) != self.test.labels).mean())

    def posterior(self, temperature: float = 1.0) -> ArchitecturePosterior:
        return ArchitecturePosterior(self.at.space, self.alpha, temperature)


BUDGETS, TEMPERATURES = (15, 30, 60, 120), (0.1, 1.0, 10.0)
DELTAS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0)
POSTERIORS = ("post-training", "best-response")
SHARED_ERROR = "test error with shared weights, %"
Choose = Callable[
    [_Judge, int, int], Sequence[Architecture]
]  # members for a judge, its seed, and a place on the x axis


def figures(out: Path, pictures: Path) -> None:
    """Figures 5.3 and 5.5 to 5.7 on CIFAR-10, from finished runs of the shared network."""
    from initio.report.surfaces import save_lines

    judges = {seed: _Judge(run) for seed, run in _shared_runs(out, "post-training")}
    by_budget = "networks that predict", SHARED_ERROR
    rivals: dict[str, Callable[[int], Choose]] = {
        "NESBS (SVGD-RD)": partial(_sampled, "svgd", 1.0),
        "NESBS (MC)": partial(_sampled, "mc", 1.0),
        "NES-RS": lambda n: lambda j, s, k: nes_rs(j.at.space, j.held, n, BUDGETS[k], s)[0].members,
        "random": lambda n: lambda j, s, k: uniform(j.at.space, j.held, n, BUDGETS[k] // n, s)[0].members,
        "single best": lambda _: lambda j, s, k: uniform(j.at.space, j.held, 1, BUDGETS[k], s)[0].members,
    }
    panels = {f"n = {n}": {name: _curve(judges, choose(n), BUDGETS) for name, choose in rivals.items()} for n in (3, 5)}
    save_lines(panels, pictures / "ensembles-5-3.svg", by_budget)
    _print_curves("5.3", panels)
    panels = {
        f"τ = {tau:g}": {
            f"{sampling}, n = {n}": _curve(judges, _sampled(sampling, tau, n), BUDGETS)
            for sampling in ("svgd", "mc")
            for n in (3, 5)
        }
        for tau in TEMPERATURES
    }
    save_lines(panels, pictures / "ensembles-5-6.svg", by_budget)
    _print_curves("5.6", panels)
    apart = {tau: _apart(judges, tau) for tau in TEMPERATURES}
    panels = {
        title: {f"τ = {tau:g}": (np.array(DELTAS), *own[place]) for tau, own in apart.items()}
        for place, title in enumerate((SHARED_ERROR, "different networks of 5"))
    }
    save_lines(panels, pictures / "ensembles-5-7.svg", ("δ", ""))
    _print_curves("5.7", panels)
    _discrepancy(out, pictures / "ensembles-5-5.svg")


def _shared_runs(out: Path, posterior: str) -> Iterator[tuple[int, Path]]:
    """Finished ones, with their seeds."""
    for seed in range(MOST_SEEDS):
        run = out / f"{DATA[0]}-{seed}" / posterior
        if run.is_dir() and RunFolder(run).finished:
            yield seed, run


def _curve(judges: dict[int, _Judge], choose: Choose, at: Sequence[float]) -> tuple[np.ndarray, ...]:
    """x, mean over seeds, standard error."""
    errors = [[judge.error(choose(judge, seed, k)) for seed, judge in judges.items()] for k in range(len(at))]
    return np.array(at), *_mean_and_error(errors)


def _mean_and_error(values: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    """Along the last axis."""
    found = np.array(values)
    return found.mean(-1), found.std(-1, ddof=min(1, found.shape[-1] - 1)) / np.sqrt(found.shape[-1])


def _sampled(sampling: Any, temperature: float, size: int) -> Choose:
    def choose(judge: _Judge, seed: int, k: int) -> Sequence[Architecture]:
        posterior, rng = judge.posterior(temperature), np.random.default_rng((seed, k))
        try:
            return nesbs(posterior, judge.held, size, BUDGETS[k] // size, rng, sampling)[0].members
        except InputError:  # no draw has so many different networks
            return (posterior.mode,)

    return choose


def _apart(judges: dict[int, _Judge], temperature: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each δ the error of the best of four ensembles of five, and how many of the five are different networks."""
    errors, different = [], []
    for delta in DELTAS:
        chosen = [
            min(
                judge.posterior(temperature).sets(5, [delta] * 4, np.random.default_rng((seed, 9))), key=judge.held.loss
            )
            for seed, judge in judges.items()
        ]
        errors.append([judge.error(own) for judge, own in zip(judges.values(), chosen, strict=True)])
        different.append(
            [
                float(len({judge.at.space.canonical(a) for a in own}))
                for judge, own in zip(judges.values(), chosen, strict=True)
            ]
        )
    return [_mean_and_error(errors), _mean_and_error(different)]


def _print_curves(number: str, panels: dict[str, dict[str, tuple[np.ndarray, ...]]]) -> None:
    for panel, lines in panels.items():
        for name, points in lines.items():
            told = (f"{x:g}: {y:.1f} ± {error:.1f}" for x, y, error in zip(*points, strict=True))
            print(f"Figure {number}, {panel}, {name}: {', '.join(told)}", flush=True)


def _discrepancy(out: Path, path: Path) -> None:
    """Figure 5.5: how far the likeliest architecture is from the best of 60 random ones, by posterior."""
    from matplotlib.figure import Figure

    from initio.report.figures import save_figure

    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axis = figure.subplots()
    for place, kind in enumerate(POSTERIORS):
        modes, bests = [], []
        for seed, run in _shared_runs(out, kind):
            judge, rng = _Judge(run), np.random.default_rng(seed)
            flat = replace(judge.posterior(), alpha=(0.0,) * len(judge.alpha))
            bests.append(min(judge.error([flat.sample(rng)]) for _ in range(NETWORKS)))
            modes.append(judge.error([judge.posterior().mode]))
        if not modes:
            continue
        means, errors = _mean_and_error([modes, bests])
        for side, (name, colour) in enumerate((("mode", "C0"), (f"best of {NETWORKS} random", "C1"))):
            bar = axis.bar(place + 0.4 * side, means[side], 0.38, yerr=errors[side], color=colour, capsize=3)
            if place == 0:
                bar.set_label(name)
            print(f"Figure 5.5, {kind}, {name}: {means[side]:.1f} ± {errors[side]:.1f} %")
    axis.set(xticks=[0.2, 1.2], xticklabels=POSTERIORS, ylabel=SHARED_ERROR)
    axis.legend(fontsize="small")
    save_figure(figure, path)


def members(out: Path, path: Path) -> None:
    """Figure 5.4: errors of members, and their predictions in two dimensions by t-SNE."""
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    from initio.report.figures import save_figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    answers, owners = [], []
    for place, (row, folder, logits) in enumerate(_predictions(out)):
        singles = initio.load_ensemble(folder).outcome.judgement.singles
        left.scatter(singles, [place] * len(singles), label=row)
        answers += [one.argmax(1) for one in logits]
        owners += [place] * len(logits)
    names = [row for row, _, _ in _predictions(out)]
    left.set(yticks=range(len(names)), yticklabels=names, xlabel="test error of members, %")
    onehot = np.stack([np.eye(10)[one].ravel() for one in answers])
    places = TSNE(perplexity=min(5, len(onehot) - 1), random_state=0, init="pca").fit_transform(onehot)
    for place in dict.fromkeys(owners):
        own = np.array(owners) == place
        right.scatter(*places[own].T, label=names[place])
    right.set(xticks=[], yticks=[], title="answers of members")
    save_figure(figure, path, "")


def _predictions(out: Path) -> Iterator[tuple[str, Path, np.ndarray]]:
    for row in ROWS:
        folder = folder_of(out, DATA[0], 0, row)
        if (folder / "predictions.npz").is_file():
            with np.load(folder / "predictions.npz") as kept:
                yield row, folder, kept["logits"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page", "figures", "members"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with cifar10_sub10k.npz")
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--pictures", type=Path, default=Path("docs/results"))
    parser.add_argument("--only", choices=DATA, nargs="+", default=DATA, help="these data sets")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=SUPERNET["epochs"], help="of the shared network, but on digits")
    asked = parser.parse_args()
    SUPERNET["epochs"] = asked.epochs
    if asked.what == "run":
        run(asked.data, asked.out, asked.only, asked.seeds)
    elif asked.what == "page":
        print(page(asked.out))
    elif asked.what == "members":
        members(asked.out, asked.pictures / "ensembles-5-4.svg")
    else:
        figures(asked.out, asked.pictures)


if __name__ == "__main__":
    main()
