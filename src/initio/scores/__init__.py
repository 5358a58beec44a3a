"""Scores: of one model, of many, where they are kept, and as a table."""
