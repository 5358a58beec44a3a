"""`make studies`: runs the measurements one after another and prints what they print.

Those that need published tables find them in the folder of INITIO_DATA, or in ../shared/data; without it they are
named and left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MEASUREMENTS: list[tuple[str, ...]] = [
    ("score_speed", "--cells", "5"),
    ("score_speed", "--cells", "1"),
    ("score_exact",),
    ("nasi_speed",),
    ("infinite_width",),
    ("topology",),
    ("svgd",),
    ("train_speed",),
    ("two_processes",),
]
WITH_DATA: list[tuple[str, ...]] = [("check_networks",), ("same_values",)]


def main() -> int:
    folder = Path(os.environ.get("INITIO_DATA", "../shared/data"))
    with_data = [(*measurement, "--data", str(folder)) for measurement in WITH_DATA]
    if not folder.is_dir():
        print(f"left out, since there is no folder {folder}: {', '.join(name for name, *_ in WITH_DATA)}")
        with_data = []
    failed = []
    for name, *options in [*MEASUREMENTS, *with_data]:
        print(f"\n=== {name} {' '.join(options)}", flush=True)
        if subprocess.run([sys.executable, "-m", f"studies.{name}", *options], check=False).returncode:
            failed.append(name)
    print(f"\nfailed: {', '.join(failed)}" if failed else "\nall measurements ended well")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
