"""The keys of a node file about routing queues."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, model_validator

from tailrace.adaptor.options import Bytes, FilePath, Options, Seconds
from tailrace.limits import SEGMENT_BYTES_DEFAULT
from tailrace.log.agreement import Hold, Policy
from tailrace.queues.fullness import WhenFull
from tailrace.queues.wire import Name
from tailrace.relay.address import Address

Token = Annotated[SecretStr, Field(min_length=1)]


class DestinationForm(Options):
    """A site that gets messages."""

    address: Address
    """Where it listens."""
    token: Token
    """What this site says there to be let in: the one that is called like this site in its `tokens`."""
    ca: FilePath | None = None
    """Certificates that sign its own: then the connection is encrypted."""
    certificate: FilePath | None = None
    """This site's certificate, for a destination that wants one."""
    key: FilePath | None = None
    """Its private key."""


class OutboxForm(Options):
    """The database in which a client's applications leave what they send: one of the two."""

    sqlite: FilePath | None = None
    """A SQLite database."""
    postgres: SecretStr | None = None
    """A PostgreSQL database, `postgresql://…`."""

    @model_validator(mode="after")
    def _is_one(self) -> OutboxForm:
        if (self.sqlite is None) == (self.postgres is None):
            raise ValueError("name either a sqlite file or a postgres address")
        return self

    @property
    def address(self) -> str:
        return self.sqlite or (self.postgres.get_secret_value() if self.postgres is not None else "")


class ClientForm(Options):
    """A client: a name under which applications send and receive."""

    outbox: OutboxForm | None = None
    """Where its applications leave what they send; without one they send through this site."""
    snapshots: bool = True
    """Whether a destination that is new, or has missed something, gets a snapshot of the client's data."""
    limit_entries: Annotated[int, Field(ge=1)] | None = None
    """A destination for which so many messages wait is full."""
    limit_bytes: Bytes | None = None
    """A destination for which so many bytes wait is full."""
    when_full: WhenFull = WhenFull.BLOCK
    """What happens to messages for it then."""


class QueuesForm(Options):
    """Routing queues of a node."""

    site: Name | None = None
    """What other sites call this one; the node's name unless said."""
    destinations: dict[Name, DestinationForm] = Field(default_factory=dict)
    """The sites to which messages can be sent."""
    clients: dict[Name, ClientForm] = Field(default_factory=dict)
    """Who sends from here."""
    segment_bytes: Bytes = SEGMENT_BYTES_DEFAULT
    """The size at which a file of the log is sealed and a new one begun."""
    every: Annotated[Seconds, Field(gt=0)] = 60.0
    """How often what nobody needs any more is removed from the log."""
    cap_bytes: Bytes | None = None
    """Past so many bytes the log is not kept for a destination any more, which then needs a snapshot."""
    cap_age: Seconds | None = None
    """Past this age the log is not kept for a destination any more, which then needs a snapshot."""

    def hold(self) -> Hold:
        """How much a destination may hold back."""
        has_cap = self.cap_bytes is not None or self.cap_age is not None
        return Hold(Policy.CAP if has_cap else Policy.HOLD, self.cap_bytes, self.cap_age)
