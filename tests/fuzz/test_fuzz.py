"""Every reader answers damage with a sentence, in time; and the harness notices when one does not."""

import os
import time
from functools import partial
from pathlib import Path

import pytest

from initio.errors import InputError
from tests.fuzz import harness
from tests.fuzz.harness import fuzz, keep, shares
from tests.fuzz.readers import READERS, Reader, corpus, draw_input

INPUTS = 2000  # `make fuzz` reads a million

pytestmark = pytest.mark.filterwarnings("ignore:.*fork")


def test_some_damaged_inputs_to_every_reader() -> None:
    """Children read a valid example first, and die if it is refused."""
    found = dict(fuzz(shares(INPUTS, list(READERS)), partial(draw_input, 1)))
    assert found.keys() == READERS.keys()
    assert [finding for outcome in found.values() for finding in outcome.findings] == []
    assert sum(outcome.refused for outcome in found.values()) > INPUTS / 2


def test_past_findings() -> None:
    """What once was answered by more than a sentence."""
    kept: dict[str, list[bytes]] = {}
    for name, path in corpus():
        kept.setdefault(name, []).append(path.read_bytes())
    counts = {name: len(inputs) for name, inputs in kept.items()}
    assert sum(counts.values()) > 20
    found = [
        finding for _, outcome in fuzz(counts, lambda name, number: kept[name][number]) for finding in outcome.findings
    ]
    assert found == []


def test_an_input_is_named_by_its_number() -> None:
    assert draw_input(0, "json records", 5) == draw_input(0, "json records", 5)
    assert len({draw_input(seed, "json records", number) for seed in (0, 1) for number in range(20)}) > 30


def test_a_reader_that_fails_always_is_left_after_some_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READERS, "planted", Reader(lambda: [b"valid"], lambda raw, _: fails(Path()) if raw else None))
    monkeypatch.setattr(harness, "examples", lambda name: [b""])
    ((_, outcome),) = fuzz({"planted": 500}, lambda name, number: b"%d" % number)
    assert (outcome.tried, len(outcome.findings)) == (harness.MANY, harness.MANY)


# --- the harness ------------------------------------------------------------------------------------------------------


def hangs(folder: Path) -> None:
    while True:
        pass


def waits(folder: Path) -> None:
    time.sleep(60)


def eats(folder: Path) -> None:
    len(bytearray(2 * harness.MEMORY))


def executes(folder: Path) -> None:
    os.system("true")


def dies(folder: Path) -> None:
    os.abort()


def fails(folder: Path) -> None:
    raise KeyError(3)


def says_nothing(folder: Path) -> None:
    raise InputError(" ")


def refuses(folder: Path) -> None:
    raise InputError("it is bad")


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (hangs, "hang"),
        (waits, "hang"),
        (eats, "memory"),
        (executes, "executed"),
        (dies, "died"),
        (fails, "traceback"),
        (says_nothing, "traceback"),
        (refuses, ""),
    ],
)
def test_what_a_reader_may_not_do(bad: object, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The third input of five is bad; the others are read all the same."""

    def read(raw: bytes, folder: Path) -> None:
        (tmp_path / raw.decode()).touch()
        if raw == b"2":
            bad(folder)  # type: ignore[operator]

    monkeypatch.setitem(READERS, "planted", Reader(lambda: [b"valid"], read))
    monkeypatch.setattr(harness, "CPU_SECONDS", 0.2)
    monkeypatch.setattr(harness, "WAIT_SECONDS", 2.0)
    monkeypatch.setattr(harness, "CORPUS", tmp_path / "corpus")
    ((name, outcome),) = fuzz({"planted": 5}, lambda name, number: b"%d" % number)
    assert {path.name for path in tmp_path.iterdir()} == {"valid", *"01234"}
    assert (name, outcome.tried, outcome.refused) == ("planted", 5, int(not kind))
    assert [(finding.kind, finding.number) for finding in outcome.findings] == [(kind, 2)] * bool(kind)
    for finding in outcome.findings:
        assert keep(finding, b"2").read_bytes() == b"2"
