"""Measured claims: each module prints what it measures; `python -m benchmarks` runs the quick ones."""
