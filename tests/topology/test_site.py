"""Sites: names that can be kept, printed and called."""

from __future__ import annotations

import pytest

from tailrace.errors import TailraceError
from tailrace.topology.site import DATABASE_CHARS_MAX, HOST_CHARS_MAX, Site


@pytest.mark.parametrize("host", ["a:1", "10.0.0.7:4700", "[::1]:65535", "node.example.org:4700", "x" * 118 + ":1"])
def test_a_site_is_a_log_and_a_place(host: str) -> None:
    assert str(Site("x" * DATABASE_CHARS_MAX, host)).endswith(f"@{host}")


@pytest.mark.parametrize(
    ("database", "host"),
    [
        ("", "a:1"),
        ("x" * (DATABASE_CHARS_MAX + 1), "a:1"),
        ("a\nb", "a:1"),
        ("a\0", "a:1"),
        (" a", "a:1"),
        ("a", ""),
        ("a", "x" * HOST_CHARS_MAX + ":1"),
        ("a", "b"),
        ("a", ":1"),
        ("a", "b:"),
        ("a", "b:0"),
        ("a", "b:65536"),
        ("a", "b:\u0661"),
        ("a", "b\x1b[0m:1"),
    ],
)
def test_what_is_no_site(database: str, host: str) -> None:
    with pytest.raises(TailraceError) as refused:
        Site(database, host)
    assert refused.value.code == "name.invalid"
    assert len(str(refused.value)) < 500
