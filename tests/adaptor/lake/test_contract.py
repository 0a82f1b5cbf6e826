"""The promises that all writers of DataFrames make, kept by lakes of all forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adaptor.contract import FrameWriterContract, KeyedFrameWriterContract
from tests.adaptor.lake.lakes import STORED, CurrentLake, DeltaLake, HistoryLake


class TestCurrent(KeyedFrameWriterContract):
    stored = STORED

    @pytest.fixture
    def destination(self, tmp_path: Path) -> CurrentLake:
        return CurrentLake(tmp_path / "a lake%41 [x]{y}*")


class TestHistory(FrameWriterContract):
    stored = STORED

    @pytest.fixture
    def destination(self, tmp_path: Path) -> HistoryLake:
        return HistoryLake(tmp_path / "a lake%41 [x]{y}*")


class TestDelta(KeyedFrameWriterContract):
    stored = STORED

    @pytest.fixture
    def destination(self, tmp_path: Path) -> DeltaLake:
        return DeltaLake(tmp_path / "a lake {y}*")
