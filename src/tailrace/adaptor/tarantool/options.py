"""Options of a Tarantool, as a source."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from tailrace.adaptor.options import Check, FilledIn, ReaderOptions, Seconds
from tailrace.adaptor.tarantool import probes
from tailrace.adaptor.tarantool.holder import Holder, replica_uuid
from tailrace.adaptor.tarantool.reader import TarantoolReader
from tailrace.adaptor.tarantool.server import Server, parse_address
from tailrace.adaptor.tarantool.types import Numbers


def _is_address(address: SecretStr) -> SecretStr:
    parse_address(address.get_secret_value())
    return address


class Replica(StrEnum):
    """As what a server is followed."""

    ANONYMOUS = "anonymous"
    """The server knows nothing of us, and removes its log when it is old, read or not."""
    REGISTERED = "registered"
    """We have a place in its replica set, and it keeps its log until we have read it."""


class TarantoolReaderOptions(ReaderOptions):
    """A Tarantool that is read."""

    address: Annotated[SecretStr, AfterValidator(_is_address)]
    """Its address, `user:password@host:3301`; without a user it is read as `guest`."""
    user: str = ""
    """The user, when it is not in the address."""
    password: SecretStr | None = None
    """The password, when it is not in the address."""
    replica: Replica = Replica.ANONYMOUS
    """Whether the server must keep its log until it is read (`registered`)."""
    numbers: Numbers = Numbers.DOUBLE
    """Whether fields of type `number` become floats, or text that has every digit."""
    piece_rows: int = Field(default=250_000, ge=1)
    """About how many rows of a space one task copies at a time."""
    timeout: Seconds = 10.0
    """How often the server is heard of at least (its `replication_timeout`); silence of four times that ends it."""
    pipeline: FilledIn = ""
    """The pipeline's name; it fills it in itself."""
    log: FilledIn = ""
    """The directory of the pipeline's log, in which the image of the rows is kept; it fills it in itself."""

    def where(self) -> str:
        return self.server().place

    def open(self) -> TarantoolReader:
        server = self.server()
        holder = Holder(server, replica_uuid(self.pipeline)) if self.replica is Replica.REGISTERED else None
        return TarantoolReader(server, self.log, self.numbers, self.piece_rows, holder)

    def probe(self) -> list[Check]:
        return probes.of_source(self.server(), is_registered=self.replica is Replica.REGISTERED)

    def server(self) -> Server:
        parts = parse_address(self.address.get_secret_value())
        if self.user:
            parts["user"] = self.user
        if self.password is not None:
            parts["password"] = self.password.get_secret_value()
        return Server(**parts, timeout_s=self.timeout)
