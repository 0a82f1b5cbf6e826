"""Tarantool servers, read as one of their replicas would."""

from __future__ import annotations

from typing import Final

from tailrace.adaptor.endpoint import endpoint
from tailrace.adaptor.registry import Adaptor
from tailrace.adaptor.tarantool.options import TarantoolReaderOptions

ADAPTOR: Final = Adaptor(
    name="tarantool",
    summary="a Tarantool: spaces from one snapshot, changes from its log, as a replica gets them",
    reader=TarantoolReaderOptions,
)
tarantool = endpoint("tarantool", first="address")
