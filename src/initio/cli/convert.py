"""`initio convert FILE`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from initio.cli.units import tell


@dataclass(frozen=True)
class ConvertCommand:
    """Writes the compact table of a benchmark's own file; nothing in the file is executed.

    Args:
        file: a NAS-Bench-201 .pth, a NATS-Bench topology folder or .pickle.pbz2, or a NAS-Bench-101 .tfrecord.
        out: the table to write; by default the file's name with the ending .npz, in the current folder.
        json: print what was written as JSON.
    """

    file: str
    out: str | None = None
    json: bool = False

    def run(self) -> None:
        """Writes the table and prints what it holds."""
        from initio.tables.convert import convert

        source = Path(self.file)
        done = convert(source, self.out or f"{source.name.partition('.')[0] or source.resolve().name}.npz")
        tell(
            f"{done.kind}: {done.length:,} rows, columns {', '.join(done.columns)}\nwrote {done.path}",
            {"kind": done.kind, "rows": done.length, "columns": done.columns, "written": str(done.path)},
            json=self.json,
        )
