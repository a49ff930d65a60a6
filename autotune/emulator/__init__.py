"""Emulated phones and boards. They stand in for real ones, and say so in all of their output."""
