"""Calling a node that runs on this machine, with what its file says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import pyarrow.flight as fl
from pydantic import TypeAdapter, ValidationError

from tailrace.errors import TailraceError
from tailrace.node.form import NodeSpec
from tailrace.relay.certificate import name_in
from tailrace.relay.flight import Call, ask
from tailrace.relay.paper import BYTES_MAX, Paper
from tailrace.relay.pem import read_pem
from tailrace.relay.request import Change, Commit

if TYPE_CHECKING:
    from tailrace.node.form import NodeForm

_SECONDS: Final = 3700.0
"""Longer than a transaction may take."""
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  an address that somebody else gave


def call(spec: NodeSpec, what: Call, paper: Paper) -> bytes:
    """Ask the node as an operator."""
    form = spec.form
    if form.operator is None:
        raise TailraceError("relay.no_rights", "the node file has no `operator`", hint="add one, and restart the node")
    try:
        with _client(form) as client:
            (answer,) = ask(client, what, paper, form.operator.get_secret_value(), _SECONDS)
            return answer
    except TailraceError as error:
        if form.tls is None or error.code != "relay.unreachable":
            raise
        hint = "see that the node runs, with the certificate that its file names now: tailrace node status"
        raise TailraceError(error.code, error.what, hint=hint) from error


def read_changes(path: str) -> list[Change]:
    """Changes, one a line, from a file or from stdin."""
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(BYTES_MAX + 1)
        else:
            with open(path, "rb") as stream:
                raw = stream.read(BYTES_MAX + 1)
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror}"
        raise TailraceError("input.invalid", what, hint="name a file with one change a line") from None
    if len(raw) > BYTES_MAX:
        what = f"{path} has more than {BYTES_MAX} bytes, too much for one transaction"
        raise TailraceError("input.invalid", what, hint="commit it in several parts")
    change = TypeAdapter(Change)
    made = []
    for number, line in enumerate(raw.splitlines(), 1):
        if not line.strip():
            continue
        try:
            made.append(change.validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            what = f"{path}, line {number}: {where}: {first['msg']}"
            hint = 'write lines like {"op": "insert", "namespace": "main.t", "data": {"id": 1}}'
            raise TailraceError("input.invalid", what, hint=hint) from error
    if not made:
        raise TailraceError("input.invalid", f"{path} has no changes", hint="write one a line")
    return made


def commit_of(changes: list[Change], acks: int | None, timeout_s: float | None) -> Commit:
    """What asks for a transaction."""
    try:
        return Commit(changes=changes, acks=acks, timeout_s=timeout_s)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = str(first["loc"][0]).removesuffix("_s")
        raise TailraceError("input.invalid", f"{name}: {first['msg']}", hint="correct the value") from error


def _client(form: NodeForm) -> fl.FlightClient:
    host, _, port = form.listen.rpartition(":")
    address = f"{_ANYWHERE.get(host, host)}:{port}"
    if form.tls is None:
        return fl.FlightClient(f"grpc://{address}")
    certificate = read_pem(form.tls.certificate)
    # who answers must have the certificate that the file names, for whichever name that is
    expected: Any = {"tls_root_certs": certificate, "override_hostname": name_in(form.tls.certificate, form.tls.key)}
    shown: Any = {"cert_chain": certificate, "private_key": read_pem(form.tls.key)} if form.tls.clients else {}
    return fl.FlightClient(f"grpc+tls://{address}", **expected, **shown)
