"""NASI's Tables 6 and 8: does the width of the scoring network, or the batch size, change what nb1shot1 is given?

python -m studies.nasi_sizes --data ../shared/data --seeds 3

`--method nasi` is Algorithm 1 with the published settings of the space, `--method nasi-fit` our variant; both with
`--steps` steps. Test error, mean±std over seeds. Finished searches are kept in a journal below --out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from initio.errors import InputError
from initio.records import Architecture
from initio.runs.search import make_search
from initio.searches import drive
from initio.spaces import get_space
from initio.spaces.nb1shot1 import NB1Shot1Space
from studies.nasi_quality import Job, Journal, digest, nb1shot1_table, problem_of
from studies.nasi_relations import SPACES

PUBLISHED = {
    "channels": {
        "nb1shot1-s1": "7.0±0.6 | 8.3±1.8 | 8.0±2.2 | 7.3±1.5 | 6.5±0.2",
        "nb1shot1-s2": "7.3±0.7 | 8.0±1.5 | 7.3±0.6 | 7.3±0.4 | 7.0±0.2",
        "nb1shot1-s3": "7.6±0.8 | 7.7±1.1 | 6.8±0.1 | 6.8±0.3 | 6.4±0.2",
    },
    "batch_size": {
        "nb1shot1-s1": "6.8±0.3 | 6.7±0.2 | 6.7±0.1 | 6.0±0.3 | 7.0±0.3",
        "nb1shot1-s2": "6.9±0.2 | 7.3±0.4 | 7.1±0.2 | 7.2±0.3 | 6.8±0.2",
        "nb1shot1-s3": "7.0±0.3 | 6.6±0.2 | 6.7±0.2 | 6.6±0.1 | 7.1±0.2",
    },
}
TABLES = {"channels": ("Table 6: width N", (2, 4, 8, 16, 32)), "batch_size": ("Table 8: b", (8, 16, 32, 64, 128))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", nargs="+", default=SPACES, choices=SPACES)
    parser.add_argument("--table", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--method", default="nasi", choices=("nasi", "nasi-fit"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the journals")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    for table in options.table:
        title, sizes = TABLES[table]
        print(f"\n{title}; {options.method}, {options.seeds} seeds, {options.steps} steps\n")
        print(f"| space | {' | '.join(map(str, sizes))} |\n{'|---' * (len(sizes) + 1)}|")
        for space in options.space:
            cells = [cell(space, table, size, options) for size in sizes]
            print(f"| {space} | {' | '.join(cells)} |\n| paper | {PUBLISHED[table][space]} |", flush=True)


def cell(name: str, table: str, size: int, options: argparse.Namespace) -> str:
    """The test errors of all seeds at one size."""
    space = get_space(name)
    assert isinstance(space, NB1Shot1Space)
    report = nb1shot1_table(space, options.data).report
    search = make_search(options.method, space, {"steps": options.steps})
    key = digest((search, str(options.data.resolve())))
    journal = Journal(options.out / f"nasi-sizes-{name}-{key}.jsonl")
    errors = []
    for seed in range(options.seeds):
        job = Job(table, str(size), seed)
        if job not in journal.answers:
            problem = problem_of(name, "data", options.data, **{table: size})
            try:
                problem.check()
            except InputError as reason:  # the blocks of some cells would have no channels
                print(f"{name}, {table} {size}: {reason}", file=sys.stderr)
                return "too narrow"
            journal.add(job, list(drive(search, problem, seed=seed).best.choices))
        choices = journal.answers[job]
        assert isinstance(choices, list)
        errors.append(report(Architecture(name, tuple(choices)))[0])
        print(f"{name}, {table} {size}, seed {seed}: {errors[-1]:.2f}", file=sys.stderr, flush=True)
    return f"{np.mean(errors):.1f}±{np.std(errors):.1f}"


if __name__ == "__main__":
    main()
