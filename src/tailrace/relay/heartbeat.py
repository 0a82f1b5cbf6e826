"""Heartbeats: how often two nodes hear of each other, and after which silence one takes the other for gone."""

from __future__ import annotations

from typing import Final

HEARTBEAT_S: Final = 1.0
SILENCE: Final = 4
"""A peer that was silent for so many heartbeats is gone."""
