"""Databases of applications."""

from __future__ import annotations

from tests.adaptor.postgres.conftest import database, postgres

__all__ = ["database", "postgres"]  # fixtures
