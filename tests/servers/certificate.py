"""A certificate for a server at an address, signed by itself."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.unprivileged import as_user, own_directory


@dataclass(frozen=True, slots=True)
class Certificate:
    """Two files that the user who runs servers can read."""

    path: Path
    key: Path


def missing() -> str:
    """Why there is none, empty when there is one."""
    return "" if shutil.which("openssl") else "no openssl: install the package openssl"


@contextmanager
def certificate(address: str = "127.0.0.1") -> Iterator[Certificate]:
    directory = own_directory("tailrace-certificate-")
    made = Certificate(directory / "cert.pem", directory / "key.pem")
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-keyout", str(made.key), "-out", str(made.path)),
        *("-subj", f"/CN={address}", "-addext", f"subjectAltName=IP:{address}"),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, cwd=directory, **as_user())
        made.key.chmod(0o600)
        directory.chmod(0o755)
        yield made
    finally:
        shutil.rmtree(directory, ignore_errors=True)
