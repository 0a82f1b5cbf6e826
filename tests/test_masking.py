"""Masking: what options call a secret is in no error and no log line, whatever form it takes."""

from __future__ import annotations

import logging
import pickle
import secrets
import subprocess
import sys

import pytest
from pydantic import SecretStr

from tailrace.adaptor.options import FilePath, Options
from tailrace.errors import TailraceError
from tailrace.masking import keep_secret, masked


class Login(Options):
    password: SecretStr
    path: FilePath = "/"


@pytest.fixture
def canary() -> str:
    return f"canary{secrets.token_hex(4)}"


def test_secrets_of_options(canary: str) -> None:
    assert masked(f"is {canary}") == f"is {canary}"
    Login.model_validate({"password": canary})
    assert masked(f"is {canary}, and {canary}") == "is ***, and ***"


@pytest.mark.parametrize("encoded", ["{}", "{}%2Fx"])
def test_the_password_in_an_address(canary: str, encoded: str) -> None:
    password = encoded.format(canary)
    Login(password=SecretStr(f"postgresql://me:{password}@host:5432/db"))
    assert masked(f"postgresql://me:{password}@host:5432/db") == "***"
    assert masked(f"host=host password={password}") == "host=host password=***"
    assert masked(f"password {password.replace('%2F', '/')!r}") == "password '***'"


def test_what_python_shows_otherwise(canary: str) -> None:
    keep_secret(f"{canary}\n\\")
    assert canary not in masked(repr(f"{canary}\n\\"))


@pytest.mark.parametrize("secret", ["", "abc", "http://[", "://:@"])
def test_what_is_no_secret(secret: str) -> None:
    keep_secret(secret)
    assert masked("abc http://host") == "abc http://host"


def test_errors(canary: str) -> None:
    keep_secret(canary)
    error = TailraceError("source.unreachable", f"no {canary}", hint=f"try {canary}")
    assert str(error) == "source.unreachable: no ***. Next: try ***"
    assert canary not in repr(error)


def test_log_lines(canary: str, caplog: pytest.LogCaptureFixture) -> None:
    keep_secret(canary)
    log = logging.getLogger("somebody.else")
    log.warning("is %s", canary)
    log.warning("is %(what)s", {"what": canary})
    log.warning("is %d", 5)
    assert caplog.messages == ["is ***", "is ***", "is 5"]


def test_options_that_travel_keep_their_secrets(canary: str) -> None:
    """As they do to tasks, in processes that have not made them."""
    sent = pickle.dumps(Login(password=SecretStr(canary)))
    program = (
        "import sys, pickle; from tailrace.errors import TailraceError; pickle.load(sys.stdin.buffer);"
        f"print(TailraceError('log.io', 'no {canary}'))"
    )
    done = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, cwd=".")
    assert done.stdout == b"log.io: no ***\n", done.stderr


def test_a_path_has_no_password_in_it(canary: str) -> None:
    with pytest.raises(ValueError, match="must have no password in it"):
        Login(password=SecretStr("none"), path=f"s3://me:{canary}@bucket/x")
    assert Login(password=SecretStr("none"), path="s3://bucket/x").path == "s3://bucket/x"


def test_how_something_failed(canary: str, caplog: pytest.LogCaptureFixture) -> None:
    """Handlers of others show it, too."""
    keep_secret(canary)
    try:
        raise ValueError(f"cannot log in with {canary}")
    except ValueError:
        logging.getLogger("somebody.else").exception("failed")
    assert "ValueError: cannot log in with ***" in caplog.text
    assert canary not in caplog.text
