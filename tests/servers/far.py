"""A network of one's own, whose cable can be cut: what is sent then is lost, and nobody says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

_SUBNET: Final = "10.213.77"


def missing() -> str | None:
    """Why there can be none, None when there can."""
    if os.geteuid() != 0:
        return "only root can make a network namespace"
    programs = [name for name in ("ip", "setpriv") if shutil.which(name) is None]
    return f"there is no {programs[0]}" if programs else None


class FarNetwork:
    """Two ends: this machine, and a namespace with `address`. `cut` and `mend` as often as one likes, then `remove`."""

    def __init__(self) -> None:
        self.name = f"tailrace{os.getpid()}"
        self.address = f"{_SUBNET}.2"
        self._near, self._far = f"trn{os.getpid()}"[:15], f"trf{os.getpid()}"[:15]
        _ip("netns", "add", self.name)
        _ip("link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self.name)
        _ip("address", "add", f"{_SUBNET}.1/30", "dev", self._near)
        _ip("-n", self.name, "address", "add", f"{self.address}/30", "dev", self._far)
        _ip("link", "set", self._near, "up")
        _ip("-n", self.name, "link", "set", "lo", "up")
        self.mend()

    def cut(self) -> None:
        _ip("-n", self.name, "link", "set", self._far, "down")

    def mend(self) -> None:
        _ip("-n", self.name, "link", "set", self._far, "up")

    def remove(self) -> None:
        _ip("netns", "delete", self.name)

    def inside(self, command: list[str], user: int, group: int) -> list[str]:
        """A command that runs at the far end, as some user."""
        as_user = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"]
        return ["ip", "netns", "exec", self.name, *as_user, *command]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
