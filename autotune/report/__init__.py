"""Runs as self-contained HTML pages, one page for each run."""
