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

import initio
from initio.analysis.ensembles import EstimateAgreement
from initio.data import load
from initio.errors import InputError
from initio.records import Architecture
from initio.runs.estimates import SIZES, estimates
from initio.runs.folders.run import RunFolder
from initio.runs.sharing import trained_weights
from initio.searches.ensembles import ArchitecturePosterior, Estimates, nes_rs, nesbs, uniform

IMAGES, SIDE = 10_000, 16  # of each data set, half of its pixels a side
SUPERNET = {"epochs": 30, "posterior_updates": 500}
MEMBERS = {"channels": 8, "cells": 1, "epochs": 6, "size": 3}
DIGITS = {"epochs": 50, "batch_size": 32}  # what `initio ensemble nb201 --data digits` takes
NETWORKS = 60  # that a method may ask for predictions with shared weights
ATTACKS, ATTACKED = ("fgsm", "pgd", "cw", "autoattack"), 30
DATA = ("cifar10", "cifar100", "digits")
COLOURS = DATA[:2]
MOST_SEEDS = 20  # that are looked for
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
DEFENDED = ("NESBS (SVGD-RD)", "NESBS (MC)", "DeepEns (mode)", "NES-RS")
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
                _attacked(folder_of(out, data, seed, row), seed)
            if data == DATA[0]:
                path = prepared(source, data, out)
                shared = _shared(path, out, data, seed, "best-response")
                for row in BEST_RESPONSE:
                    _made(path, folder_of(out, data, seed, f"{row} best-response"), shared, seed, ROWS[row])


def _attacked(folder: Path, seed: int) -> None:
    if not (folder / "attacks.json").is_file():
        began = time.process_time()
        initio.attack(folder, ATTACKS, samples=ATTACKED, seed=seed)
        print(f"{folder.parent.name} {folder.name}: attacks in {time.process_time() - began:.0f} s", flush=True)


def _shared(path: str, out: Path, data: str, seed: int, posterior: str) -> Path:
    folder, began = out / f"{data}-{seed}" / posterior, time.process_time()
    if not (folder.is_dir() and RunFolder(folder).finished):
        settings = {"digits": DIGITS}.get(data, SUPERNET)
        initio.search(
            "nb201", "nesbs", path, seed=seed, folder=folder, resume=True, channels=8, cells=1, posterior=posterior,
            **settings,
        )  # fmt: skip
        _spent(folder, began)
    return folder


def _made(path: str, folder: Path, shared: Path, seed: int, settings: dict[str, Any]) -> None:
    if (folder / "result.json").is_file():
        return
    began = time.process_time()
    # Member k is trained with seed + k: hundreds keep the members of two seeds apart.
    asked = {"prior": "uniform", **{"digits": {"size": 3}}.get(path, MEMBERS), **settings}
    found = initio.ensemble("nb201", path, folder=folder, resume=True, shared=str(shared), seed=100 * seed, **asked)
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


def _with_error(values: Sequence[float], digits: int = 2) -> str:
    """Mean and standard error."""
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}"


def page(out: Path) -> str:
    """All tables as Markdown."""
    parts = [_errors(out, data) for data in DATA]
    parts += [_singles(out), _defence(out), _estimates(out), _posteriors(out)]
    return "\n\n".join(part for part in parts if part)


def _errors(out: Path, data: str) -> str:
    """Tables 5.1 and 5.2: error, calibration and cost."""
    titles = [
        "method",
        "seeds",
        "error %",
        "best member %",
        "loss",
        "ECE %",
        "Brier",
        "noise %",
        "blur %",
        "contrast %",
    ]
    rows = [[*titles, "networks asked", "shared network s", "own s"]]
    single: list[float] = []
    for row in ROWS:
        found = [(folder, initio.load_ensemble(folder)) for folder in _finished(out, data, row)]
        if not found:
            continue
        judged = [each.outcome.judgement for _, each in found]
        wholes = [one.whole for one in judged]
        corrupted = {
            name: [np.mean([c.error for c in e.outcome.corrupted if c.corruption == name]) for _, e in found]
            for name in ("noise", "blur", "contrast")
        }
        rows.append(
            [
                row, str(len(found)), _with_error([one.error for one in judged]),
                _with_error([min(one.singles) for one in judged]), _with_error([one.loss for one in wholes], 3),
                _with_error([100 * one.calibration_error for one in wholes]),
                _with_error([one.brier for one in wholes], 3),
                *(_with_error([float(value) for value in values]) for values in corrupted.values()),
                f"{np.mean([each.choice.networks for _, each in found]):.0f}",
                _seconds([folder.parent / "post-training" for folder, _ in found]),
                _seconds([folder for folder, _ in found]),
            ]
        )  # fmt: skip
        if row == "DeepEns (mode)":
            single = [one.singles[0] for one in judged]
    if single:
        rows.append(["the mode alone", str(len(single)), _with_error(single), *[""] * (len(rows[0]) - 3)])
    return f"{data} (Tables 5.1 and 5.2)\n\n{_table(rows)}" if len(rows) > 1 else ""


def _singles(out: Path) -> str:
    """Table 5.5: ATE, PPD, and the oracle's error."""
    there = [data for data in DATA if any(_finished(out, data, row) for row in ROWS)]
    rows = [["method", *(f"{data} {name} %" for data in there for name in ("ATE", "PPD", "oracle"))]]
    for row in ROWS:
        cells = []
        for data in there:
            judged = [initio.load_ensemble(folder).outcome.judgement for folder in _finished(out, data, row)]
            for name in ("ate", "ppd", "oracle"):
                cells.append(_with_error([getattr(one, name) for one in judged]) if judged else "")
        if any(cells):
            rows.append([row, *cells])
    return f"Table 5.5\n\n{_table(rows)}"


def _defence(out: Path) -> str:
    """Table 5.4: accuracy of the attacked member, and of all members on what fooled it."""
    rows = [["data", "method", *(f"{attack} {side} %" for attack in ATTACKS for side in ("attack", "defence"))]]
    for data in COLOURS:
        for row in DEFENDED:
            found = [folder / "attacks.json" for folder in _finished(out, data, row)]
            told = [json.loads(path.read_text()) for path in found if path.is_file()]
            if not told:
                continue
            cells = [data, row]
            for attack in ATTACKS:
                rounds = [
                    (each, result["samples"])
                    for result in told
                    for each in result["rounds"]
                    if each["attack"] == attack and each["on"] != "all"
                ]
                alone = [each["samples"] / n * max(0.0, 100 - each["fooled"]) for each, n in rounds]
                cells += [_with_error(alone, 1), _with_error([each["accuracy"] for each, _ in rounds], 1)]
            rows.append(cells)
    return f"Table 5.4\n\n{_table(rows)}" if len(rows) > 1 else ""


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
            cells = [_with_error([value for value in column if value is not None]) for column in columns]
            rows.append([data, str(n), str(sum(one.ensembles for one in found)), *cells])
    return f"Table 5.6\n\n{_table(rows)}" if len(rows) > 1 else ""


def _agreements(out: Path, data: str, seed: int) -> dict[int, EstimateAgreement]:
    folders = [folder_of(out, data, seed, row) for row in ROWS]
    done = [folder for folder in folders if (folder / "result.json").is_file()]
    if not done:
        return {}
    return {one.size: one for one in estimates(done, seed=seed)}


def _posteriors(out: Path) -> str:
    """Table 5.7: the posterior learned after the weights, or beside them."""
    rows = [["method", "seeds", "best-response %", "post-training %"]]
    for row in BEST_RESPONSE:
        other = _finished(out, DATA[0], f"{row} best-response")
        own = [folder_of(out, DATA[0], int(folder.parent.name.rpartition("-")[2]), row) for folder in other]
        if other:
            errors = [[initio.load_ensemble(f).outcome.judgement.error for f in group] for group in (other, own)]
            rows.append([row, str(len(other)), *map(_with_error, errors)])
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


BUDGETS, TEMPERATURES = (6, 15, 30, 60), (0.1, 1.0, 10.0)
DELTAS = (-2.0, -1.0, 0.0, 1.0)


def figures(out: Path, pictures: Path) -> None:
    """Figures 5.3 and 5.5 to 5.7 on CIFAR-10, from finished runs of the shared network."""
    from initio.report.surfaces import save_lines

    found = (out / f"{DATA[0]}-{seed}" / "post-training" for seed in range(MOST_SEEDS))
    runs = [run for run in found if run.is_dir() and RunFolder(run).finished]
    judges = [_Judge(run) for run in runs]
    seeds = range(len(judges))

    def curve(choose: Callable[[_Judge, int, int], Sequence[Architecture]], at: Sequence[float]) -> Any:
        errors = [[judges[s].error(choose(judges[s], s, k)) for s in seeds] for k in range(len(at))]
        return np.array(at), np.mean(errors, axis=1)

    def sampled(sampling: Any, temperature: float) -> Callable[[_Judge, int, int], Sequence[Architecture]]:
        def choose(judge: _Judge, seed: int, k: int) -> Sequence[Architecture]:
            posterior, rng = judge.posterior(temperature), np.random.default_rng((seed, k))
            try:
                return nesbs(posterior, judge.held, 3, BUDGETS[k] // 3, rng, sampling)[0].members
            except InputError:  # no draw has three different networks
                return (posterior.mode,)

        return choose

    lines = {
        "NESBS (SVGD-RD)": curve(sampled("svgd", 1.0), BUDGETS),
        "NESBS (MC)": curve(sampled("mc", 1.0), BUDGETS),
        "NES-RS": curve(lambda j, s, k: nes_rs(j.at.space, j.held, 3, BUDGETS[k], s)[0].members, BUDGETS),
        "random": curve(lambda j, s, k: uniform(j.at.space, j.held, 3, BUDGETS[k] // 3, s)[0].members, BUDGETS),
    }
    by_budget = "networks that predict", "test error with shared weights, %"
    save_lines({f"n = 3, {len(judges)} seeds": lines}, pictures / "ensembles-5-3.svg", by_budget)
    panels = {
        f"τ = {tau:g}": {sampling: curve(sampled(sampling, tau), BUDGETS) for sampling in ("svgd", "mc")}
        for tau in TEMPERATURES
    }
    save_lines(panels, pictures / "ensembles-5-6.svg", by_budget)

    def apart(temperature: float) -> Callable[[_Judge, int, int], Sequence[Architecture]]:
        def choose(judge: _Judge, seed: int, k: int) -> Sequence[Architecture]:
            rng = np.random.default_rng((seed, 9))
            drawn = judge.posterior(temperature).sets(5, [DELTAS[k]] * 4, rng)
            return min(drawn, key=judge.held.loss)

        return choose

    deltas = {f"τ = {tau:g}": curve(apart(tau), DELTAS) for tau in TEMPERATURES}
    save_lines({"n = 5": deltas}, pictures / "ensembles-5-7.svg", ("δ", by_budget[1]))
    for name, points in (("5.3", lines), ("5.7", deltas), *((f"5.6 {tau}", own) for tau, own in panels.items())):
        for line, (x, y) in points.items():
            print(f"Figure {name} {line}: " + ", ".join(f"{a:g}: {b:.1f} %" for a, b in zip(x, y, strict=True)))
    _discrepancy(out)


def _discrepancy(out: Path) -> None:
    """Figure 5.5: how far the likeliest architecture is from the best of 60 random ones, by posterior."""
    for kind in ("post-training", "best-response"):
        gaps = []
        for seed in range(MOST_SEEDS):
            run = out / f"{DATA[0]}-{seed}" / kind
            if not (run.is_dir() and RunFolder(run).finished):
                continue
            judge, rng = _Judge(run), np.random.default_rng(seed)
            flat = replace(judge.posterior(), alpha=(0.0,) * len(judge.alpha))
            best = min(judge.error([flat.sample(rng)]) for _ in range(NETWORKS))
            gaps.append((judge.error([judge.posterior().mode]), best))
        if gaps:
            mode, best = (_with_error([gap[side] for gap in gaps]) for side in (0, 1))
            gap = _with_error([a - b for a, b in gaps])
            print(f"Figure 5.5 {kind}: mode {mode} %, best of {NETWORKS} random {best} %, gap {gap}")


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
    asked = parser.parse_args()
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
