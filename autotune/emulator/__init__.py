"""Emulated phones and boards: they stand in for real ones, and say so in everything that they tell."""
