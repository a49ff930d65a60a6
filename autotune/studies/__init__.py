"""Searches over the settings of a device."""
