"""Scores: of one model (`model`), of many (`pool`), where they are kept (`store`), and as one table (`table`)."""
