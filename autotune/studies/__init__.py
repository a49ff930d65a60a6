"""Searches over what a device can be set to."""
