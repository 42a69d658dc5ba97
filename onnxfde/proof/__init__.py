"""Bounds that hold for every input."""
