"""READERS, the one list: everything in Initio that reads what others wrote, with valid examples of it.

A reader is told bytes and an empty folder of its own. It may return anything, or refuse with an `InputError`; it reads
as a user would, to the end: what was parsed is printed, what was opened is asked.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import pickle
import tempfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas  # noqa: F401  # before there is a limit on memory
import torch

import initio
from initio.cli import all_commands, main
from initio.cli.options import parse as parse_options
from initio.cli.options import read_toml
from initio.data import load as load_data
from initio.data.pickles import read_pickle, read_plain
from initio.errors import InputError
from initio.records import Batch, Cost, Evaluation, Observation, Query, from_json, to_json
from initio.runs import search as search_verb
from initio.runs import train as train_verb
from initio.runs.folders.model import ModelFolder
from initio.runs.folders.run import RunFolder
from initio.scores.pool import read_architectures
from initio.scores.read import read_table
from initio.scores.store import Store, differences, pack
from initio.searches.restarts import stability
from initio.spaces import NB201, SPACES, ZOO, get_space
from initio.spaces import parse as parse_architecture
from initio.tables import open_compact, open_table
from initio.tables.convert import convert
from initio.training import checkpoints
from initio.training.evaluate import read_answer, write_answer
from tests.data import formats
from tests.fuzz.damage import (
    Damage,
    either,
    inside,
    of_arrays,
    of_bytes,
    of_database,
    of_json,
    of_lines,
    of_pickle,
    of_text,
)
from tests.tables import files as benchmarks

Read = Callable[[bytes, Path], object]


@dataclass(frozen=True)
class Reader:
    """Who reads, and from what its damaged inputs are made.

    Args:
        examples: valid inputs.
        read: reads one, in a folder of its own.
        damage: what is done to an example.
        share: of all inputs, against the other readers'; a slow reader has less.
    """

    examples: Callable[[], list[bytes]]
    read: Read
    damage: Damage = of_bytes
    share: float = 1.0


def in_file(name: str, read: Callable[[Path], object]) -> Read:
    """The input as a file."""

    def written(raw: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(raw)
        return read(path)

    return written


def each(*calls: Callable[[], object]) -> None:
    """All of them; refused if every one is."""
    refusals = []
    for call in calls:
        try:
            call()
        except InputError as error:
            refusals.append(error)
    if len(refusals) == len(calls):
        raise refusals[0]


# --- architectures ----------------------------------------------------------------------------------------------------


def texts(name: str) -> list[bytes]:
    space, rng = SPACES[name], Random(0)
    return [space.format(space.sample(rng)).encode() for _ in range(4)]


def published() -> list[bytes]:
    return [*(str(genotype).encode() for genotype in ZOO.values()), b"darts_v2", b"mlp-4:relu,tanh,relu;skips=1"]


def read_text_of(raw: bytes, folder: Path) -> None:
    """What was read can be written, read again, drawn and counted."""
    arch = parse_architecture(raw.decode("utf-8", "surrogateescape"))
    space = get_space(arch.space)
    if parse_architecture(space.format(arch)) != arch:
        raise AssertionError(f"{space.format(arch)} is read as another architecture")
    space.canonical(arch)
    if len(arch.choices) < 100:
        space.cells(arch)


def lists() -> list[bytes]:
    return [b"# cells\n" + b"\n".join(texts("nb201"))]


def read_list(path: Path) -> None:
    read_architectures(path, NB201)


# --- JSON -------------------------------------------------------------------------------------------------------------

CELL = NB201.architecture(3, 1, 0, 0, 2, 4)
RECORDS: list[Any] = [
    CELL,
    Batch(np.ones((2, 3), np.float32), np.array([0, 1]), 2, "toy", (0.5,), (1.0,)),
    Evaluation(CELL, "grad", float("inf"), 3, "large", (("cells", 5), ("init", "he")), "0f", 2),
    Cost(steps=3, seconds=1.5),
]


def read_record(raw: bytes, folder: Path) -> None:
    text = raw.decode("utf-8", "replace")
    each(*(partial(_read_as, type(record), text) for record in RECORDS))


def _read_as(kind: Any, text: str) -> None:
    found = from_json(kind, text, where="x.json")
    again = from_json(kind, to_json(found))
    if again != found:
        raise AssertionError(f"{found} is written as {again}")


# --- runs -------------------------------------------------------------------------------------------------------------

TINY: dict[str, Any] = {"channels": 2, "cells": 1, "pixels": 8, "batch_size": 4}


@cache
def run_files() -> dict[str, bytes]:
    """Of a finished run with restarts and a limit."""
    with tempfile.TemporaryDirectory() as name:
        small = TINY | {"steps": 4, "restarts": 2, "limits": {"max_params": 10**6}}
        initio.search("nb201", "nasi-fit", "noise", folder=Path(name, "run"), **small)
        RunFolder(Path(name, "run")).add_latency(CELL, 0.25)
        return {path.name: path.read_bytes() for path in Path(name, "run").iterdir() if "json" in path.suffix}


def run_file(name: str) -> list[bytes]:
    return [run_files()[name]]


class Driven(Exception):  # noqa: N818
    """In place of the work that a document asks for: everything before it was accepted."""


def _driven(*args: Any, **options: Any) -> Any:
    raise Driven


def resume(changed: str, raw: bytes, folder: Path) -> None:
    """An interrupted run with one damaged file goes on as far as the first new step, which is left out."""
    for name, content in run_files().items():
        if name != "result.json":
            (folder / name).write_bytes(raw if name == changed else content)
    search_verb.drive = _driven
    with suppress(Driven):
        search_verb.resume_run(folder)
    RunFolder(folder).latencies()


def show(raw: bytes, folder: Path) -> None:
    """What `initio show` does with a finished run."""
    (folder / "run.json").write_bytes(run_files()["run.json"])
    (folder / "result.json").write_bytes(raw)
    result = initio.load(folder)
    stability(result)
    str(result)
    result.to_frame()


# --- trainings --------------------------------------------------------------------------------------------------------


@cache
def model_files() -> dict[str, bytes]:
    """Of a finished training, with the checkpoint that it had."""
    kept: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "t")

        def hear(what: object) -> None:
            if (folder / "checkpoint.pt").is_file():
                kept["checkpoint.pt"] = (folder / "checkpoint.pt").read_bytes()

        initio.train(
            "mlp:relu,tanh", "digits", folder=folder, channels=4, epochs=2, samples=60, tensorboard=False, on_event=hear
        )
        kept |= {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return kept


def model_file(name: str) -> list[bytes]:
    return [model_files()[name]]


def load_trained(changed: str, raw: bytes, folder: Path) -> None:
    for name, content in model_files().items():
        (folder / name).write_bytes(raw if name == changed else content)
    model = initio.load_model(folder)
    str(model)
    if changed.endswith(".pt"):
        ModelFolder(folder).digest("best")
        model.build()


def resume_training(raw: bytes, folder: Path) -> None:
    """As far as the machine that would train."""
    from initio.training import machine

    (folder / "train.json").write_bytes(raw)
    machine.run_on = _trained_nothing
    with suppress(Driven):
        train_verb.resume_training(folder)


def _trained_nothing(settings: Any, work: Any) -> None:
    """The recipe and the network that a document asks for are made, and not trained."""
    _ = work.plan.how, work.plan.used
    raise Driven


def checkpoint(path: Path) -> None:
    """A checkpoint that cannot be used says why, in an error of its own."""
    try:
        found = checkpoints.load(path, "x")
        network = torch.nn.Linear(2, 2)
        found.restore(network, torch.optim.SGD(network.parameters(), 0.1, momentum=0.9), None)
    except checkpoints.UnusableError as error:
        raise InputError(str(error)) from None


def small_checkpoint() -> list[bytes]:
    network = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "c.pt")
        checkpoints.save(path, checkpoints.Checkpoint.of(network, optimizer, None, "x", [{"epoch": 1}], 2.0))
        return [path.read_bytes()]


def summed(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest() + raw


def answers() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        write_answer(Path(name, "a.json"), '{"seed": 0}', Observation(50.0, 2.0))
        return [Path(name, "a.json").read_bytes()]


# --- stores -----------------------------------------------------------------------------------------------------------


@cache
def stores() -> dict[str, bytes]:
    """A small store and its packed copy."""
    rng = Random(0)
    with tempfile.TemporaryDirectory() as name:
        plain, packed = Path(name, "s.db"), Path(name, "s.db.xz")
        with Store(plain) as store:
            for metric in ("grad", "kappa"):
                values = [(1.0, ""), (None, "no gradient"), (float("inf"), "singular")]
                store.put(
                    Evaluation(NB201.canonical(NB201.sample(rng)), metric, value, seed, flag, (("cells", 1),), "0f")
                    for value, flag in values
                    for seed in (0, 1)
                )
            store.describe(Batch(np.ones((2, 3), np.float32), np.array([0, 1]), 2, "toy"))
        with Store(plain) as store:
            store._db.execute("PRAGMA journal_mode = DELETE")
            pack(store, packed)
        return {"s.db": plain.read_bytes(), "s.db.xz": packed.read_bytes()}


def store_file(name: str) -> list[bytes]:
    return [stores()[name]]


def read_store(path: Path) -> None:
    """What `initio store info`, `diff` and `correlate` ask of it."""
    with Store(path, read_only=True) as store:
        store.groups()
        len(store)
        list(store.evaluations())
    with Store(path, read_only=True) as store:
        read_table(store, NB201)
    other = path.with_name("other.db")
    other.write_bytes(stores()["s.db"])
    with Store(path, read_only=True) as first, Store(other, read_only=True) as second:
        list(differences(first, second))


def add_to_store(path: Path) -> None:
    """A damaged store is written to."""
    with Store(path) as store:
        store.put([Evaluation(CELL, "grad", 1.0, 7)])


# --- published tables -------------------------------------------------------------------------------------------------


def saved(arrays: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def compact_nb201() -> list[bytes]:
    return [saved(benchmarks.good_nb201())]


def compact_nb101() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        source = benchmarks.tfrecord(Path(name, "n.tfrecord"), benchmarks.cells101(3), (4, 108), 3)
        convert(source, Path(name, "n.npz"))
        return [Path(name, "n.npz").read_bytes()]


def read_benchmark(name: str, path: Path) -> None:
    table = open_table(name, table=path)
    arch = next(iter(table.validation.architectures or [parse_architecture("darts_v2")]))
    table.validation(Query(arch))
    table.report(arch)
    table.report.regret(arch)


def read_compact(path: Path) -> None:
    table = open_compact(str(path))
    for column in table.columns:
        table.column(column)
    list(table.rows([NB201.canonical(CELL)]))


@cache
def surrogate() -> tuple[bytes, bytes]:
    with tempfile.TemporaryDirectory() as name:
        path = benchmarks.small_surrogate(Path(name, "s.npz"))
        return path.read_bytes(), path.with_name(f"{path.stem}_encoding.json").read_bytes()


def read_surrogate(changed: int, raw: bytes, folder: Path) -> None:
    files = [*surrogate()]
    files[changed] = raw
    (folder / "s.npz").write_bytes(files[0])
    (folder / "s_encoding.json").write_bytes(files[1])
    read_benchmark("nb301", folder / "s.npz")


def converted(name: str) -> Read:
    return in_file(name, lambda path: convert(path, path.with_suffix(".npz")))


def written_by(write: Callable[[Path], object]) -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "x")
        write(path)
        return [path.read_bytes()]


def thinned(value: Any) -> Any:
    """The results without most of their epochs, which are much alike."""
    if not isinstance(value, dict):
        return value
    kept = list(value)
    if len(kept) > 30:
        kept = kept[-6:]
    return {key: thinned(value[key]) for key in kept}


def torch_files() -> list[bytes]:
    return written_by(lambda path: torch.save(thinned(benchmarks.nb201()), path))


def of_torch_file(raw: bytes, rng: Random) -> bytes:
    """torch's archive with another pickle in it."""
    content = of_pickle(pickle.dumps(thinned(benchmarks.nb201()), 2), rng)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(out, "w") as new:
        for member in old.namelist():
            new.writestr(member, content if member.endswith("data.pkl") else old.read(member))
    return out.getvalue()


def of_records(raw: bytes, rng: Random) -> bytes:
    """A TFRecord whose sums are right, with one record damaged."""
    cells = benchmarks.cells101(2)
    record = benchmarks.record101(cells[0], 108, 0.9, 0.91, 100.0, 1000)
    return benchmarks.framed(of_json(record, rng)) + raw


# --- data -------------------------------------------------------------------------------------------------------------


def arrays_of_images() -> list[bytes]:
    x, y = formats.images(3, 4, 4, 3), formats.labels(3, 3)
    return [
        saved({"x": x, "y": y, "class_names": np.array(["a", "b", "c"])}),
        saved({"x_train": x / 255.0, "y_train": y, "x_test": x / 255.0, "y_test": y}),
    ]


def draw(name: object) -> None:
    """A batch of each part of a data set, by its name, file or folder."""
    each(partial(_draw, str(name), "train"), partial(_draw, str(name), "test"))


def _draw(name: str, split: str) -> None:
    if not np.isfinite(load_data(name, split=split).batch(1, seed=0).x).all():
        raise AssertionError("a batch that is not finite")


@dataclass(frozen=True)
class DataFolder:
    """A folder of data of which one file is damaged."""

    write: Callable[[Path], object]
    damaged: str

    def examples(self) -> list[bytes]:
        with tempfile.TemporaryDirectory() as name:
            self.write(Path(name))
            return [Path(name, self.damaged).read_bytes()]

    def read(self, raw: bytes, folder: Path) -> None:
        self.write(folder)
        (folder / self.damaged).write_bytes(raw)
        draw(folder)


def pictures(ending: str) -> DataFolder:
    def write(root: Path) -> None:
        formats.write_pictures(root, formats.images(2, 8, 8, 3), np.array([0, 1]), ["a", "b"], ending)

    return DataFolder(write, f"b/001.{ending}")


def digits(root: Path, zipped: bool = False) -> None:
    formats.write_idx(root, formats.images(3, 4, 4), formats.labels(3), "train", zipped=zipped)


def hundred(root: Path, binary: bool = False) -> None:
    formats.write_cifar100(root, formats.images(2, 3, 32, 32), formats.labels(2, 100), "train", binary=binary)


def ten(root: Path) -> None:
    formats.write_cifar10_python(root, formats.images(6, 3, 32, 32), formats.labels(6))


PICTURES = ("png", "jpg", "bmp", "gif", "webp", "tif", "ppm")
DATA_FOLDERS = {
    "idx images": (DataFolder(digits, "train-images-idx3-ubyte"), of_bytes),
    "idx labels": (DataFolder(digits, "train-labels-idx1-ubyte"), of_bytes),
    "idx gzip": (
        DataFolder(partial(digits, zipped=True), "train-images-idx3-ubyte.gz"),
        either(of_bytes, inside(gzip.decompress, gzip.compress, of_bytes)),
    ),
    "cifar pickle": (DataFolder(hundred, "train"), of_pickle),
    "cifar meta": (DataFolder(ten, "batches.meta"), of_pickle),
    "cifar binary": (DataFolder(partial(hundred, binary=True), "train.bin"), of_bytes),
    **{f"picture {ending}": (pictures(ending), of_bytes) for ending in PICTURES},
}  # fmt: skip


def small_pickles() -> list[bytes]:
    contents = (
        {"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [0, 300, -5], "t": "ü", "s": {1, 2}},
        {"all": OrderedDict({("c10", 7): [1, np.float64(2.5), {3}]}), "t": None},
    )
    return [pickle.dumps(content, protocol) for content in contents for protocol in range(6)]


def read_pickles(raw: bytes, folder: Path) -> None:
    each(lambda: read_pickle(raw, "file"), lambda: read_plain(io.BytesIO(raw), "file"))


# --- the command line -------------------------------------------------------------------------------------------------


def command_lines() -> list[bytes]:
    """What the help of every command shows, typed."""
    lines = [
        ["search", "nb201", "--method", "nasi", "--steps", "4", "--max-params", "500k", "--seed", "1"],
        ["search", "--method", "hnas", "--queries", "3", "--restarts", "2", "--resume", "runs/x"],
        ["score", "nb201", "--sample", "3", "--metrics", "grad,trace", "--memory", "600MB", "--store", "s.db"],
        ["bench", "nb201", "--search", "random", "evolution", "--queries", "20", "--seeds", "2", "--json"],
        ["train", "darts_v2", "--data", "digits", "--recipe", "cifar", "--epochs", "2", "--out", "t"],
        ["correlate", "t.npz:acc", "--store", "nb201", "--where", "cells=5,init=he", "--top", "5", "--json"],
        ["show", "nasnet", "--cost", "--json"],
        ["show", CELLS_TEXT, "--no-json"],
        ["metrics", "grad,trace", "--json"],
        ["spaces", "--json"],
        ["store", "info", "nb201"],
        ["store", "diff", "a.db", "b.db"],
        ["export", "darts_v2", "--format", "python", "--out", "x.py"],
        ["bounds", "mlp:relu,tanh", "--width", "64", "--delta", "0.1"],
        ["sample", "darts", "-n", "3", "--seed", "7", "--print-config"],
        ["convert", "a.pth", "b.npz"],
        ["env"],
    ]
    return [json.dumps(line).encode() for line in lines]


CELLS_TEXT = "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|skip_connect~2|"
SHORT_COMMANDS = ("show", "spaces", "metrics")  # end at once, whatever they are asked, and write nothing


def of_command(raw: bytes, rng: Random) -> bytes:
    """Other words, other options, other values."""
    words = json.loads(raw)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(1, len(words) + 1)
        way = rng.randrange(5)
        if way == 0:
            words.insert(place, rng.choice(option_names()))
        elif way == 1:
            words[place:place] = [rng.choice(option_names()), rng.choice(VALUES)]
        elif way == 2 and place < len(words):
            words[place] = rng.choice(VALUES)
        elif way == 3 and place < len(words):
            typed = words[place].encode("utf-8", "surrogateescape")  # as Python hands on what is no UTF-8
            words[place] = of_text(typed, rng).decode("utf-8", "surrogateescape")
        elif place < len(words):
            words[place : place + 1] = [words[place]] * rng.choice((0, 2))
    if rng.random() < 0.1:
        words[0] = rng.choice(VALUES)
    return json.dumps(words).encode()


VALUES = (
    "", "-1", "0", "1e400", "nan", "inf", "9" * 30, "none", "true", "x", "--", "-", "=", "a=b", "500k", "20ms", "1GB",
    "nb201", "/dev/null", "no/such/file", "\x1b[31m", "a\nb", "ü", "\udcff", "x" * 5000, "os:system", "json:loads",
    "--help", "-h",
)  # fmt: skip


@cache
def option_names() -> list[str]:
    from initio.cli.options import options_of

    found = {option.flag for _, command in all_commands() for option in options_of(command).values()}
    return [*sorted(found), "--config", "--print-config", "--no-json", "--seed=3", "--no-such"]


def read_command(raw: bytes, folder: Path) -> None:
    """All are parsed; those that end at once are run."""
    words = json.loads(raw)
    named = dict(all_commands())
    key = " ".join(["initio", *words[:2]])
    if words and words[0] in SHORT_COMMANDS and "--out" not in words:
        code = main(words)
        if code not in (0, 2):
            raise AssertionError(f"exit code {code}")
        return
    for start, rest in ((f"initio {words[0]}" if words else "", words[1:]), (key, words[2:])):
        if start in named:
            parse_options(named[start], rest, start)


CONFIG = b"""space = "nb201"
method = "nasi-fit"
seed = 3
steps = 10
max-params = "500k"
batch_size = 8
"""


def read_config(path: Path) -> None:
    from initio.cli.search import SearchCommand

    read_toml(str(path))
    parse_options(SearchCommand, ["--config", str(path)], "initio search")


def names_of_data() -> list[bytes]:
    return [b"noise", b"noise:3x8x8", b"digits:test@16", b"toy.npz:train", b"noise:1x4x4@8"]


# --- the list ---------------------------------------------------------------------------------------------------------

SHARES = {"nb1shot1-s1": 1, "nb1shot1-s2": 1, "nb1shot1-s3": 1, "mlp": 2}  # the slower ones

READERS: dict[str, Reader] = {
    **{f"text {name}": Reader(partial(texts, name), read_text_of, of_text, SHARES.get(name, 6)) for name in SPACES},
    "text published": Reader(published, read_text_of, of_text, 3),
    "text list": Reader(lists, in_file("list.txt", read_list), of_text, 2),
    "json records": Reader(lambda: [to_json(record).encode() for record in RECORDS], read_record, of_json, 12),
    "json answer": Reader(answers, in_file("a.json", lambda path: read_answer(path, '{"seed": 0}')), of_json, 2),
    **{
        f"run {name}": Reader(partial(run_file, name), partial(resume, name), damage, share)
        for name, damage, share in (
            ("run.json", of_json, 1),
            ("steps.jsonl", of_lines, 0.4),
            ("clock.jsonl", of_lines, 0.2),
            ("latency.jsonl", of_lines, 0.2),
        )
    },
    "run result.json": Reader(partial(run_file, "result.json"), show, of_json, 1),
    **{
        f"model {name}": Reader(partial(model_file, name), partial(load_trained, name), damage, share)
        for name, damage, share in (
            ("train.json", of_json, 1),
            ("trained.json", of_json, 1),
            ("epochs.jsonl", of_lines, 1),
            ("best.pt", of_bytes, 0.5),
        )
    },
    "model resumed": Reader(partial(model_file, "train.json"), resume_training, of_json, 0.1),
    "checkpoint": Reader(
        small_checkpoint,
        in_file("c.pt", checkpoint),
        either(of_bytes, inside(lambda raw: raw[checkpoints.DIGEST :], summed, of_bytes)),
        4,
    ),
    "store db": Reader(partial(store_file, "s.db"), in_file("s.db", read_store), of_database, 0.5),
    "store written": Reader(partial(store_file, "s.db"), in_file("s.db", add_to_store), of_database, 0.3),
    "store packed": Reader(
        partial(store_file, "s.db.xz"),
        in_file("s.db.xz", read_store),
        either(of_bytes, inside(lzma.decompress, partial(lzma.compress, preset=0), of_database)),
        0.5,
    ),
    "table nb201": Reader(compact_nb201, in_file("t.npz", partial(read_benchmark, "nb201")), of_arrays),
    "table nb101": Reader(compact_nb101, in_file("t.npz", partial(read_benchmark, "nb101")), of_arrays),
    "table columns": Reader(compact_nb201, in_file("t.npz", read_compact), of_arrays),
    "table nb301": Reader(lambda: [surrogate()[0]], partial(read_surrogate, 0), of_arrays, 0.2),
    "table nb301 codes": Reader(lambda: [surrogate()[1]], partial(read_surrogate, 1), of_json, 0.5),
    "convert tfrecord": Reader(
        lambda: written_by(lambda path: benchmarks.tfrecord(path, benchmarks.cells101(2), (4, 108), 3)),
        converted("n.tfrecord"),
        either(of_bytes, of_records),
        0.3,
    ),
    "convert pth": Reader(torch_files, converted("n.pth"), either(of_bytes, of_torch_file), 0.3),
    "convert pickle": Reader(
        lambda: written_by(lambda path: benchmarks.write_bz2(path, thinned(benchmarks.nb201(("12", "200"))))),
        converted("n.pickle.pbz2"),
        either(of_bytes, inside(bz2.decompress, bz2.compress, of_pickle)),
        0.3,
    ),
    "data npz": Reader(arrays_of_images, in_file("toy.npz", draw), of_arrays),
    **{f"data {name}": Reader(kind.examples, kind.read, damage, 0.5) for name, (kind, damage) in DATA_FOLDERS.items()},
    "data pickles": Reader(small_pickles, read_pickles, of_pickle, 3),
    "data names": Reader(names_of_data, lambda raw, _: draw(raw.decode("utf-8", "replace")), of_text, 0.1),
    "options toml": Reader(lambda: [CONFIG], in_file("o.toml", read_config), of_text, 0.5),
    "options words": Reader(command_lines, read_command, of_command, 0.5),
}  # fmt: skip


def draw_input(seed: int, name: str, number: int) -> bytes:
    """The input of a reader by its number."""
    reader, rng = READERS[name], Random(f"{name} {seed} {number}")
    return reader.damage(rng.choice(examples(name)), rng)


@cache
def examples(name: str) -> list[bytes]:
    """The valid inputs of a reader."""
    return READERS[name].examples()


def corpus() -> Iterator[tuple[str, Path]]:
    """Inputs that once caused more than a sentence, by reader."""
    for folder in sorted(Path(__file__).with_name("corpus").iterdir()):
        for path in sorted(folder.iterdir()):
            yield folder.name.replace("_", " "), path
