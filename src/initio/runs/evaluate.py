"""The verb: `initio.evaluate`."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from initio.analysis.classification import LEVEL, Judgement, judge
from initio.autodiff.devices import check_device
from initio.data import Dataset, Noise, load
from initio.data.arrays import NoPartError
from initio.data.draw import whole
from initio.data.sources import load_parts, located, same_source
from initio.errors import InputError
from initio.report.terminal import columns
from initio.runs.folders.base import read_record, write_record
from initio.runs.folders.model import TrainedModel, TrainPlan, Which, load_model

if TYPE_CHECKING:
    import torch

    from initio.training.settings import Device

OnBatch = Callable[[int, int], None]  # samples done, and all
JSON, CONFUSION, CALIBRATION, MISTAKES = "evaluation.json", "confusion.png", "calibration.png", "mistakes.png"


@dataclass(frozen=True)
class ModelEvaluation:
    """How a trained network does on data that neither its search nor its training has seen.

    Args:
        which: weights, of the best or the last epoch.
        weights: their SHA-256.
        data: what was tested on.
        tested: a sentence on which part of it.
        fingerprint: of the inputs and labels.
        judgement: all numbers.
        places: where the worst mistakes are found, in their order.
        repeated: samples whose input is also among those that were trained on; None where that was not looked up.
        seconds: of the forward passes.
        folder: where it was written; None if it was not.
    """

    which: Which
    weights: str
    data: str
    tested: str
    fingerprint: str
    judgement: Judgement
    places: tuple[str, ...] = ()
    repeated: int | None = None
    seconds: float = field(default=0.0, compare=False)
    folder: Path | None = field(default=None, compare=False, metadata={"saved": False})

    kind: ClassVar[str] = "model evaluation"

    @property
    def accuracy(self) -> float:
        """In percent."""
        return self.judgement.accuracy

    def told(self) -> dict[str, str]:
        """What is worth saying, by its name."""
        seen = self.judgement
        told = {
            "tested on": self.tested,
            "accuracy": f"{seen.accuracy:.2f} %, {100 * LEVEL:.0f} % interval {seen.low:.2f} to {seen.high:.2f} "
            f"({seen.right:,} of {seen.samples:,} right)",
        }
        if seen.top5 is not None:
            told["top 5"] = f"{seen.top5:.2f} %"
        told["loss"] = f"{seen.loss:.4f}, Brier score {seen.brier:.4f}"
        told["calibration"] = f"off by {100 * seen.calibration_error:.2f} points on average (ECE)"
        if self.repeated:
            told["beware"] = f"{self.repeated:,} of the inputs are also among those that were learned from"
        return told

    def __str__(self) -> str:
        return columns(self.told())


def evaluate(
    trained: TrainedModel | str | Path,
    data: Dataset | str | None = None,
    *,
    which: Which = "best",
    worst: int = 25,
    device: Device = "auto",
    workers: int = 1,
    folder: str | Path | None = None,
    save: bool = True,
    on_progress: OnBatch | None = None,
) -> ModelEvaluation:
    """Measures a trained network on data that it has not seen, and writes JSON and pictures into its folder.

    Args:
        trained: what `initio.train` returned, or its folder.
        data: by default what was kept aside of the training's own data: its test part, else a fifth of each class. Of
            other data the test part is taken, or all where there is none; classes are matched by name.
        which: the weights of the best epoch, or of the last.
        worst: how many mistakes to show.
        device: what computes: cpu, cuda, cuda:1, mps, or auto, a GPU where there is one.
        workers: processes that read image files.
        folder: where to write; by default the trained network's own, for other data a folder in it.
        save: write; without it nothing is written.
        on_progress: hears how many samples are done, of how many.

    >>> import initio
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     trained = initio.train("mlp:relu,tanh", "digits", folder=f"{folder}/t", epochs=2, tensorboard=False)
    ...     seen = evaluate(trained)
    >>> seen.tested, seen.judgement.samples, seen.accuracy > 80
    ('the test part of digits', 360, True)
    """
    check_device(device)
    if not isinstance(trained, TrainedModel):
        trained = load_model(trained)
    whole(worst, "number of mistakes to show", 0)
    plan = trained.plan
    own = data is None or (plan.tested != "" and isinstance(data, str) and same_source(located(data), plan.data))
    if data is None or own:
        name, tested, (test, learned) = plan.data, plan.tested, _kept_aside(plan)
    else:
        name, tested, test = _other(data)
        learned = _learned(plan)
    test = _fitted(test, plan)
    start = time.perf_counter()
    logits, fingerprint = _answers(trained.build(which), test, device, workers, on_progress)
    judgement = judge(logits, test.labels, plan.names, worst)
    places = tuple(_place(test, mistake.sample) for mistake in judgement.mistakes)
    seen = ModelEvaluation(
        which, trained.digest(which), name, tested, fingerprint, judgement, places,
        _repeated(learned, test), time.perf_counter() - start,
    )  # fmt: skip
    if not save:
        return seen
    if folder is None:
        folder = trained.folder
        if not own:
            folder = trained.folder / re.sub(r"[^\w.-]", "-", f"evaluation-{test.name}")
    return _written(seen, test, Path(folder))


def kept_aside(trained: TrainedModel) -> Dataset:
    """What neither search nor training has seen, as the network reads it."""
    return _fitted(_kept_aside(trained.plan)[0], trained.plan)


def answers_kept_aside(
    trained: TrainedModel, network: torch.nn.Module | None = None, *, device: Device = "auto"
) -> tuple[np.ndarray, np.ndarray]:
    """The logits of what was kept aside of the training's data, and the labels; `network` may answer in its place."""
    test = kept_aside(trained)
    logits, _ = _answers(network or trained.build(), test, device, 1, None)
    return logits, test.labels


def load_evaluation(folder: str | Path) -> ModelEvaluation | None:
    """What `evaluate` wrote into this folder, if it did."""
    path = Path(folder) / JSON
    if not path.is_file():
        return None
    return replace(read_record(ModelEvaluation, path), folder=Path(folder))


# --- what is tested on ------------------------------------------------------------------------------------------------


def _kept_aside(plan: TrainPlan) -> tuple[Dataset, Dataset | None]:
    """What was kept aside of the training's data, and the rest; data that have changed since are refused."""
    from initio.training.examples import examples_of

    if not plan.tested:
        raise InputError("the training was given its data as an object: say what to evaluate on")
    learned, test, tested = load_parts(plan.data, skip_bad=plan.skip_bad)
    if test is None:
        raise InputError(f"{tested}: say by --data what to evaluate on")
    assert not isinstance(learned, Noise)
    if examples_of(learned, plan.how, plan.seed).fingerprint != plan.fingerprint:
        raise InputError(
            f"{plan.data!r} has changed since the training, which may have seen what is now kept aside: "
            f"bring the data back, or give others by --data"
        )
    return test, learned


def _other(data: Dataset | str) -> tuple[str, str, Dataset]:
    """Its name, a sentence, and its test part or all of it."""
    if isinstance(data, Dataset):
        return data.name, f"all {len(data):,} samples of {data.name}", data
    try:
        found = load(data, split="test")
        tested = f"the test part of {found.name}"
    except NoPartError:
        found = load(data)
        tested = f"all of {found.name}, which was not trained on"
    if isinstance(found, Noise):
        raise InputError("noise has no labels that could be found out: evaluate on data with labels")
    return located(data), tested, found


def _learned(plan: TrainPlan) -> Dataset | None:
    """What was learned from, if it has a name and is still there."""
    if not plan.tested:
        return None
    try:
        found = load_parts(plan.data, skip_bad=plan.skip_bad)[0]
    except InputError:
        return None
    assert not isinstance(found, Noise)
    return found


def _fitted(data: Dataset, plan: TrainPlan) -> Dataset:
    """The data as the network was trained to read them: its size, its normalisation, its classes."""
    shape, stored = plan.network.shape, tuple(data.images[0].shape)
    if len(stored) != len(shape) or stored[0] != shape[0]:
        raise InputError(f"{data.name} has inputs of shape {stored}, the network reads {shape}")
    if data.scale != plan.scale:
        kinds = {255.0: "8-bit images", 1.0: "numbers that are no bytes"}
        raise InputError(f"{data.name} holds {kinds[data.scale]}, the network was trained on {kinds[plan.scale]}")
    if len(shape) == 3:
        data = data.resized((shape[1], shape[2]))
    labels = data.labels
    if data.class_names and plan.class_names:
        unknown = [name for name in data.class_names if name not in plan.class_names]
        if unknown:
            raise InputError(
                f"{data.name} has a class {unknown[0]!r} that the network does not know: "
                f"it knows {', '.join(plan.class_names[:20])}"
            )
        labels = np.array([plan.class_names.index(name) for name in data.class_names])[labels]
    if labels.max() >= plan.network.classes:
        raise InputError(
            f"{data.name} has a label {labels.max()}, the network knows classes 0 to {plan.network.classes - 1}"
        )
    return replace(
        data,
        labels=labels,
        classes=plan.network.classes,
        class_names=plan.class_names,
        mean=plan.mean,
        std=plan.std,
    )


def _repeated(learned: Dataset | None, test: Dataset) -> int | None:
    """How many stored inputs occur in both, byte for byte; files on disk are not read for it."""
    if learned is None or not (isinstance(learned.images, np.ndarray) and isinstance(test.images, np.ndarray)):
        return None
    known = {hash(image.tobytes()) for image in learned.images}
    return sum(hash(image.tobytes()) in known for image in test.images)


def _place(data: Dataset, number: int) -> str:
    if isinstance(data.images, np.ndarray):
        return f"sample {number} of the {data.split} part"
    return data.images.where(number)


# --- the answers, and what is written about them ----------------------------------------------------------------------


def _answers(
    model: torch.nn.Module, test: Dataset, device: Device, workers: int, on_progress: OnBatch | None
) -> tuple[np.ndarray, str]:
    """The logits of all samples, and a fingerprint of what was read."""
    import torch

    from initio.training.examples import StreamedExamples
    from initio.training.machine import PlainMachine
    from initio.training.settings import MachineSettings

    settings = MachineSettings(device=device, workers=workers * (not isinstance(test.images, np.ndarray)))
    machine = PlainMachine(torch.device(settings.chosen))
    examples = StreamedExamples(test, np.arange(0), np.arange(len(test)), settings.workers)
    digest, logits = hashlib.sha256(f"{test.shape} {test.classes}".encode()), []
    done = 0
    with machine.running(), torch.inference_mode():
        model.to(machine.device).eval()
        for x, y in examples.validate():
            outputs = model(x.to(machine.device)).cpu().double().numpy()  # mps has no float64
            if not np.isfinite(outputs).all():
                number = done + int(np.flatnonzero(~np.isfinite(outputs).all(axis=1))[0])
                raise InputError(f"the network's outputs are not finite for {_place(test, number)}")
            digest.update(x.numpy().tobytes() + y.numpy().tobytes())
            logits.append(outputs)
            done += len(y)
            if on_progress is not None:
                on_progress(done, len(test))
    return np.concatenate(logits), digest.hexdigest()[:16]


def _written(seen: ModelEvaluation, test: Dataset, folder: Path) -> ModelEvaluation:
    """Pictures first, then the document that says that they are there."""
    from initio.report.classifier import save_calibration, save_confusion, save_sheet

    folder.mkdir(parents=True, exist_ok=True)
    judgement, names = seen.judgement, [report.name for report in seen.judgement.classes]
    save_confusion(np.array(judgement.confusion), names, folder / CONFUSION)
    confidence, accuracy, counts = (
        np.array([getattr(each, side) for each in judgement.bins]) for side in ("confidence", "accuracy", "samples")
    )
    save_calibration(confidence, accuracy, counts, folder / CALIBRATION)
    (folder / MISTAKES).unlink(missing_ok=True)
    if judgement.mistakes and len(test.shape) == 3:
        captions = [
            f"{names[mistake.label]}\n→ {names[mistake.answer]} {100 * mistake.confidence:.0f} %"
            for mistake in judgement.mistakes
        ]
        pictures = [test.images[mistake.sample] for mistake in judgement.mistakes]
        save_sheet(pictures, captions, folder / MISTAKES)
    write_record(folder / JSON, seen)
    return replace(seen, folder=folder)
