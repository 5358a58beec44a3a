"""The verb: `initio.export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from initio.errors import InputError, did_you_mean
from initio.records import Architecture, to_json
from initio.runs.folders.base import read_record, write_record
from initio.runs.folders.ensemble import Ensemble, EnsembleFolder, load_ensemble
from initio.runs.folders.model import ModelFolder, TrainedModel, Which, load_model
from initio.runs.pages.card import UNSTATED, EnsembleCard, ModelCard, ensemble_card, make_card
from initio.spaces import GraphSpace, exports
from initio.spaces.exports import ensemble_source, python_source
from initio.system.files import whole_file, write_text

SUFFIXES = {"onnx": ".onnx", "torchscript": ".torchscript", "python": ".py", "safetensors": ".safetensors"}
ENSEMBLES = ("onnx", "torchscript", "python")
WEIGHTS = ".pt"  # of the Python file, beside it


def export(
    what: TrainedModel | Ensemble | Architecture | str | Path,
    path: str | Path | None = None,
    format: str = "python",
    **options: Any,
) -> Path:
    """Writes a trained network, or an architecture, to a file that other programs read; the file's path.

    Args:
        what: a trained network or ensemble, or its folder; else an architecture, or the text or name of one.
        path: the file; that of a trained network is by default `export/model` in its folder.
        format: onnx, torchscript, python or safetensors; of an architecture also genotype and json.
        options: of a trained network those of `export_trained`, of an architecture those of
            `initio.spaces.exports.exported`.
    """
    if EnsembleFolder.is_at(what):
        what = load_ensemble(what)
    if isinstance(what, Ensemble):
        return export_ensemble(what, path, format, **options)
    if ModelFolder.is_at(what):
        what = load_model(what)
    if isinstance(what, TrainedModel):
        return export_trained(what, path, format, **options)
    if path is None:
        raise InputError("say which file to write the architecture to")
    if isinstance(what, Path):
        what = str(what)
    exports.export(what, path, format, **options)
    return Path(path)


def export_ensemble(
    ensemble: Ensemble,
    path: str | Path | None = None,
    format: str = "onnx",
    *,
    preprocess: bool = True,
    licence: str | None = None,
) -> Path:
    """Writes all members as one network, from stored values to the log of their mean probabilities, and its card.

    Args:
        ensemble: the networks.
        path: of the file; by default `export/ensemble` in its folder.
        format: onnx, torchscript or python.
        preprocess: let ONNX and TorchScript files divide and normalise stored values themselves.
        licence: for the card; by default what an earlier card says.
    """
    if format not in ENSEMBLES:
        raise InputError(
            f"an ensemble is exported as {', '.join(ENSEMBLES)}, not as {format!r}: its members are trained networks, "
            f"which have the other formats"
        )
    ensemble.fixed("exported")
    path = _target(path, format, ensemble.folder / "export" / "ensemble")
    card = ensemble_card(ensemble, licence or _licence(path.with_suffix(".card.json"), EnsembleCard))
    _write(path, _ensemble_contents(ensemble, path, format, preprocess), card)
    return path


def _ensemble_contents(ensemble: Ensemble, path: Path, format: str, preprocess: bool) -> dict[Path, bytes]:
    """The files of a format; weights come before the code that reads them."""
    from initio.networks.export import traced, weights
    from initio.networks.export.inputs import Preprocessed, Preprocessing, trained_code

    first, model = ensemble.members[0], ensemble.build()
    plan, how = first.plan, first.preprocessing
    if format == "python":
        if not isinstance(first.space, GraphSpace):
            raise InputError(f"{plan.architecture.space} has a builder of its own, which a Python file cannot have")
        archs = [member.plan.architecture for member in ensemble.members]
        code = ensemble_source(archs, plan.used, first.space, trained_code(how, plan.names))
        return {path.with_suffix(WEIGHTS): weights.torch_file(model), path: code.encode()}
    if preprocess:
        model = Preprocessed(model, how).eval()
    else:
        how = Preprocessing(how.shape)
    facts = {
        "classes": json.dumps(plan.names),
        "outputs": "log of the mean of the members' probabilities",
        "weights": json.dumps(ensemble.outcome.weights),
    }
    write = {"onnx": traced.onnx, "torchscript": traced.torchscript}[format]
    return {path: write(model, how.shape, how.dtype, facts)}


def export_trained(
    trained: TrainedModel,
    path: str | Path | None = None,
    format: str = "onnx",
    *,
    which: Which = "best",
    preprocess: bool = True,
    licence: str | None = None,
) -> Path:
    """Writes the network with its weights, what is beside it, and its card.

    Args:
        trained: the network.
        path: of the file; the card has the same name and ends in `.card.md` and `.card.json`.
        format: one of `SUFFIXES`.
        which: the weights of the best epoch, or of the last.
        preprocess: let ONNX and TorchScript files divide and normalise stored values themselves; without it they read
            what the card's steps make of them.
        licence: for the card; by default what an earlier card says.
    """
    if format not in SUFFIXES:
        raise InputError(f"a trained network is not exported as {format!r}: {did_you_mean(format, list(SUFFIXES))}")
    path = _target(path, format, trained.folder / "export" / "model")
    card = make_card(trained, which, licence or _licence(path.with_suffix(".card.json"), ModelCard))
    _write(path, _contents(trained, path, format, which, preprocess, card), card)
    return path


def _target(path: str | Path | None, format: str, usual: Path) -> Path:
    """Where to write: what was asked for, or the usual place."""
    if path is None:
        usual.parent.mkdir(exist_ok=True)
        return usual.with_suffix(SUFFIXES[format])
    if Path(path).suffix == WEIGHTS and format == "python":
        raise InputError(f"{str(path)!r} is where the weights would be: let the Python file end in .py")
    return Path(path)


def _write(path: Path, contents: dict[Path, bytes], card: ModelCard | EnsembleCard) -> None:
    """The files of an export, then the card beside them."""
    for file, content in contents.items():
        with whole_file(file) as temporary:
            temporary.write_bytes(content)
    files = [path.with_suffix(suffix) for suffix in (*SUFFIXES.values(), WEIGHTS)]
    beside = [path, *(file for file in files if file.is_file() and file != path)]
    write_record(path.with_suffix(".card.json"), card)
    write_text(path.with_suffix(".card.md"), card.markdown(path.stem, tuple(file.name for file in beside)))


def _contents(
    trained: TrainedModel, path: Path, format: str, which: Which, preprocess: bool, card: ModelCard
) -> dict[Path, bytes]:
    """The files of a format; weights come before the code that reads them."""
    from initio.networks.export import traced, weights
    from initio.networks.export.inputs import Preprocessed, Preprocessing, trained_code

    model, how = trained.build(which), trained.preprocessing
    facts = {"classes": json.dumps(card.classes), "card": to_json(card)}
    if format == "safetensors":
        return {path: weights.safetensors(model, facts)}
    if format == "python":
        plan = trained.plan
        code = python_source(plan.architecture, plan.used, trained.space, trained_code(how, card.classes))
        return {path.with_suffix(WEIGHTS): weights.torch_file(model), path: code.encode()}
    if preprocess:
        model = Preprocessed(model, how).eval()
    else:
        how = Preprocessing(how.shape)
    write = {"onnx": traced.onnx, "torchscript": traced.torchscript}[format]
    return {path: write(model, how.shape, how.dtype, facts)}


def _licence(path: Path, kind: type[ModelCard] | type[EnsembleCard]) -> str:
    """What an earlier card says."""
    if not path.is_file():
        return UNSTATED
    return read_record(kind, path).licence
