"""Fixtures of all tests of pages."""

from __future__ import annotations

from tests.command.conftest import model

__all__ = ["model"]
