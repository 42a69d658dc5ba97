"""Benchmarks: what the README claims, measured."""
