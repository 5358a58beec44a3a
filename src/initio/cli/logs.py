"""What is said on stderr: sentences for people, or, by `--log-json`, lines of JSON with what they count as numbers."""

from __future__ import annotations

import io
import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from initio.errors import without_passwords
from initio.records import encode

PROGRAM = "initio: "  # begins an error's line


class JsonLines(io.TextIOBase):
    """Writes every line as JSON with its time: `{"time": ..., "level": "info", "message": ...}`."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.rest = stream, ""

    def write(self, text: str) -> int:
        """Keeps what is no whole line yet."""
        *lines, self.rest = (self.rest + text).split("\n")
        for line in filter(str.strip, lines):
            self.log(line, {})
        return len(text)

    def log(self, line: str, facts: Mapping[str, Any], level: str = "") -> None:
        """A line and what it says as data, each fact under its name; what is NaN or None is left out."""
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": level or {True: "error", False: "info"}[line.startswith(PROGRAM)],
            "message": without_passwords(line.removeprefix(PROGRAM)),
        }
        known = {name: encode(value) for name, value in facts.items() if value is not None and not _is_nan(value)}
        self.stream.write(json.dumps(entry | known, ensure_ascii=False, allow_nan=False) + "\n")
        self.flush()

    def flush(self) -> None:
        """At once, as a log is read while it is written."""
        self.stream.flush()

    def fileno(self) -> int:
        """Of what is behind it."""
        return self.stream.fileno()


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def say(line: str, **facts: Any) -> None:
    """A line on stderr, with its facts where lines are JSON; the work goes on when nobody listens any more."""
    with suppress(OSError):
        if isinstance(sys.stderr, JsonLines):
            sys.stderr.log(line, facts)
        else:
            print(line, file=sys.stderr, flush=True)


@contextmanager
def json_lines() -> Iterator[None]:
    """Inside, stderr and the warnings of Initio's rooms are lines of JSON."""
    with redirect_stderr(JsonLines(sys.stderr)) as lines:
        handler, logger = _Warnings(lines), logging.getLogger("initio")
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


class _Warnings(logging.Handler):
    """Warnings as lines of JSON."""

    def __init__(self, lines: JsonLines) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.log(record.getMessage(), {}, record.levelname.lower())
