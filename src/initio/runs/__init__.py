"""The verbs, one a file; `folders/` is what they leave on disk, `pages/` what a report shows of it."""
