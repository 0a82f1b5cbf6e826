"""Where the token of a page is kept."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.limits import WEB_TOKEN_LETTERS_MIN
from tailrace.web.status_page import TOKEN_FILE, TOKEN_VARIABLE, token_beside


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def test_it_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    token, where = token_beside(str(tmp_path))
    assert len(token) >= WEB_TOKEN_LETTERS_MIN
    assert stat.S_IMODE(Path(where).stat().st_mode) == 0o600
    assert token_beside(str(tmp_path)) == (token, where)


def test_the_environment_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "said-by-the-environment")
    assert token_beside(str(tmp_path))[0] == "said-by-the-environment"
    assert not (tmp_path / TOKEN_FILE).exists()


def test_one_that_others_can_read_is_refused(tmp_path: Path) -> None:
    _, where = token_beside(str(tmp_path))
    Path(where).chmod(0o640)
    with pytest.raises(TailraceError, match="others can read") as caught:
        token_beside(str(tmp_path))
    assert "chmod 600" in caught.value.hint


def test_what_is_no_token_is_refused(tmp_path: Path) -> None:
    file = tmp_path / TOKEN_FILE
    file.write_bytes(b"\xff\xfe" * 20)
    file.chmod(0o600)
    with pytest.raises(TailraceError, match="no token"):
        token_beside(str(tmp_path))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("a-token-of-somebody-else\n")
    (tmp_path / TOKEN_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TailraceError):
        token_beside(str(tmp_path))
