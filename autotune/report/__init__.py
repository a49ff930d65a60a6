"""Runs as one self-contained HTML page each."""
