"""Exports: kernels as a library that others load, with a manifest, checks and an example."""
