"""Runs: a search in its folder, and many searches side by side."""
