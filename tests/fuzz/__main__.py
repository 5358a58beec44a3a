"""`make fuzz`: a million damaged inputs to every reader, or as many as FUZZ says.

An input must be read or be refused in a sentence, within limits of time and memory and without starting anything. What
is answered otherwise is kept in `tests/fuzz/corpus`, once for each place in the package, and read by the tests from
then on.

python -m tests.fuzz --inputs 200000
python -m tests.fuzz --reader "run result.json" --inputs 10000 --seed 7
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

from tests.fuzz.harness import Outcome, fuzz, keep, shares
from tests.fuzz.readers import READERS, draw_input

KINDS = {
    "traceback": "tracebacks",
    "hang": "hangs",
    "memory": "out of memory",
    "executed": "executed",
    "died": "deaths",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=int(os.environ.get("FUZZ") or 1_000_000))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--reader", action="append", choices=list(READERS), help="this one only")
    args = parser.parse_args()
    counts = shares(args.inputs, args.reader or list(READERS))
    total = Outcome()
    print(f"{'reader':<22}  {'inputs':>9}  {'refused':>9}  {'a second':>8}  {'MB':>5}  findings", flush=True)
    inputs = partial(draw_input, args.seed)
    for name, outcome in fuzz(counts, inputs, jobs=args.jobs):
        rate = outcome.tried / max(outcome.seconds, 1e-9)
        line = f"{name:<22}  {outcome.tried:>9,}  {outcome.refused:>9,}  {rate:>8,.0f}  {outcome.memory >> 20:>5}"
        print(f"{line}  {len(outcome.findings) or ''}".rstrip(), flush=True)
        places = {(finding.kind, finding.place): finding for finding in reversed(outcome.findings)}
        for finding in places.values():
            kept = keep(finding, inputs(name, finding.number))
            print(f"    {finding.kind} at {finding.place}: {finding.text!r}; kept as {kept}")
        total.tried += outcome.tried
        total.memory = max(total.memory, outcome.memory)
        total.findings += outcome.findings
    found = ", ".join(f"{words} {total.count(kind)}" for kind, words in KINDS.items())
    print(f"{total.tried:,} inputs to {len(counts)} readers: {found}, largest memory {total.memory >> 20} MB")
    return bool(total.findings)


if __name__ == "__main__":
    sys.exit(main())
