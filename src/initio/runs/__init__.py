"""The verbs, one a file; `folders/` is what they leave on disk, `pages.py` what a report shows of it."""
