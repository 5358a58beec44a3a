"""Measured claims: each module prints what it measures; `python -m studies` runs the quick ones."""
