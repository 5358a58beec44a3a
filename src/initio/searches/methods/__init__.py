"""Searches, one paper a file."""
