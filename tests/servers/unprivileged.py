"""Programs that refuse to run as root: another user runs them when root runs the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

_USER: Final = "nobody"


@cache
def as_user() -> dict[str, Any]:
    """What `subprocess` needs to be told; nothing unless root runs the tests."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(_USER)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def own_directory(prefix: str) -> Path:
    """A new directory of that user's, outside of pytest's, which are closed to others."""
    path = Path(tempfile.mkdtemp(prefix=prefix))
    if os.geteuid() == 0:
        entry = pwd.getpwnam(_USER)
        os.chown(path, entry.pw_uid, entry.pw_gid)
    return path


def reachable(programs: Path, copy_to: Path) -> Path:
    """A directory of programs as the user can start them: a copy when their own place is closed to others."""
    is_open = all(parent.stat().st_mode & 0o001 for parent in (programs, *programs.parents))
    if os.geteuid() != 0 or is_open:
        return programs
    if not copy_to.exists():
        shutil.copytree(programs, copy_to, symlinks=True)
    return copy_to
