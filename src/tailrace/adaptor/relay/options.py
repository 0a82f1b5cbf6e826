"""Options of a node that is read."""

from __future__ import annotations

from pydantic import Field, SecretStr

from tailrace.adaptor.options import Check, FilePath, FilledIn, ReaderOptions
from tailrace.adaptor.relay import probes
from tailrace.adaptor.relay.reader import RelayReader
from tailrace.adaptor.relay.remote import Remote
from tailrace.relay.address import Address


class RelayReaderOptions(ReaderOptions):
    """A node that is read."""

    address: Address
    """Where it listens, `host:port`."""
    token: SecretStr
    """What the pipeline says there to be let in: one of the node's `tokens`."""
    ca: FilePath | None = None
    """Certificates that sign the node's own: then the connection is encrypted."""
    certificate: FilePath | None = None
    """The pipeline's certificate, for a node that wants one."""
    key: FilePath | None = None
    """Its private key."""
    consumer: str = Field(default="", pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,99})?$")
    """Under which name the node keeps its log for the pipeline; the name of the pipeline unless said."""
    pipeline: FilledIn = ""
    """The pipeline's name; it fills it in itself."""

    def where(self) -> str:
        return self.address

    def open(self) -> RelayReader:
        return RelayReader(self.remote())

    def probe(self) -> list[Check]:
        return probes.of_source(self.remote())

    def remote(self) -> Remote:
        return Remote(self.address, self.token.get_secret_value(), self.name, self.ca, self.certificate, self.key)

    @property
    def name(self) -> str:
        """What the node calls this pipeline."""
        if self.consumer:
            return self.consumer
        tame = "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in self.pipeline)
        return tame[:100] or "pipeline"
