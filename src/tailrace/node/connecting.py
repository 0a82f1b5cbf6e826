"""Connecting: what a node file says about who is followed and how connections are encrypted, as Flight wants it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from tailrace.message import NodeId
from tailrace.node.form import PlacingForm, SourceForm, TlsForm
from tailrace.relay.applier import Source
from tailrace.relay.pem import read_pem


def source_of(said: SourceForm) -> Source:
    """A node that is followed."""
    return Source(
        said.name,
        f"{'grpc+tls' if said.ca else 'grpc'}://{said.address}",
        said.token.get_secret_value(),
        read_pem(said.ca),
        read_pem(said.certificate),
        read_pem(said.key),
        None if said.namespace is None else said.namespace.pattern,
        frozenset(NodeId(origin) for origin in said.without),
    )


def registry_at(said: PlacingForm) -> Source:
    """Where a registry is."""
    return Source(
        "registry",
        f"{'grpc+tls' if said.ca else 'grpc'}://{said.address}",
        said.token.get_secret_value(),
        read_pem(said.ca),
        read_pem(said.certificate),
        read_pem(said.key),
    )


def server_options(listen: str, tokens: Mapping[str, SecretStr], tls: TlsForm | None) -> dict[str, Any]:
    """Where a server listens, whom it lets in, and what it shows."""
    found: dict[str, Any] = {
        "location": f"{'grpc+tls' if tls else 'grpc'}://{listen}",
        "tokens": {name: token.get_secret_value() for name, token in tokens.items()},
    }
    return found | tls_options(tls)


def tls_options(tls: TlsForm | None) -> dict[str, Any]:
    """What a server shows, and whom it wants to see."""
    if tls is None:
        return {}
    found: dict[str, Any] = {"tls_certificates": [(read_pem(tls.certificate), read_pem(tls.key))]}
    if tls.clients is not None:
        found |= {"verify_client": True, "root_certificates": read_pem(tls.clients)}
    return found
