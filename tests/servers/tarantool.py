"""A Tarantool of one's own, on a port of loopback that nobody else has."""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgpack

USER: Final = "follower"
PASSWORD: Final = "canary-7d21"
_SETTINGS: Final[dict[str, Any]] = {
    "checkpoint_interval": 0,
    "log_level": 5,
    "memtx_memory": 128 << 20,
    "replication_timeout": 0.5,
    "vinyl_memory": 8 << 20,
    "vinyl_cache": 0,
    "wal_mode": "write",
}
_START: Final = """
local json = require('json')
local console = require('console')
local settings = json.decode(SETTINGS)
console.listen('unix/:' .. CONTROL)
box.cfg(settings)
if not settings.replication and not box.info.ro then
    box.once('users', function()
        box.schema.user.create(USER, {password = PASSWORD})
        box.schema.user.grant(USER, 'replication')
        box.schema.user.create('powerless', {password = PASSWORD})
    end)
end
READY = true
"""


def missing() -> str:
    """Why there is no server, empty when there is one."""
    return "" if shutil.which("tarantool") else "no tarantool: install the package tarantool"


class TarantoolServer:
    """`start`, then any number of `stop`, `kill` and `start`, then `remove`. Users speak Lua to it, through `run`."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tailrace-tarantool-"))
        self.port = _free_port()
        self.settings: dict[str, Any] = {
            **_SETTINGS,
            "listen": f"127.0.0.1:{self.port}",
            "work_dir": str(self.directory),
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def address(self, user: str = USER, password: str = PASSWORD) -> str:
        return f"{user}:{password}@127.0.0.1:{self.port}"

    def run(self, lua: str) -> Any:
        """What a piece of Lua returns."""
        with socket.socket(socket.AF_UNIX) as console:
            console.settimeout(120)
            console.connect(self._control)
            stream = console.makefile("rwb")
            for _ in range(2):
                stream.readline()  # it greets
            mark = uuid.uuid4().hex
            one_line = " ".join(lua.split("\n"))
            body = f"local function f() {one_line} end local ok, r = pcall(f) if not ok then r = tostring(r) end"
            encoded = "require('digest').base64_encode(require('msgpack').encode({ok = ok, r = r}), {nowrap = true})"
            stream.write(f"{body} return '{mark}' .. {encoded}\n".encode())
            stream.flush()
            text = ""
            while not text.endswith("\n...\n"):
                line = stream.readline()
                assert line, f"the server is gone:\n{self.log()}"
                text += line.decode()
        found = re.search(rf"{mark}([A-Za-z0-9+/=]*)", text)
        assert found is not None, text
        answer = msgpack.unpackb(base64.b64decode(found[1]), strict_map_key=False)
        if not answer["ok"]:
            raise RuntimeError(answer["r"])
        return answer.get("r")

    def start(self, wait: bool = True) -> None:
        script = self.directory / "start.lua"
        values = {"SETTINGS": json.dumps(self.settings), "CONTROL": self._control, "USER": USER, "PASSWORD": PASSWORD}
        given = "".join(f"local {name} = [==[{value}]==]\n" for name, value in values.items())
        script.write_text(given + _START)
        Path(self._control).unlink(missing_ok=True)
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(["tarantool", str(script)], stdout=log, stderr=log, cwd=self.directory)
        if wait:
            self.await_ready()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a power cut would end it, though the machine goes on."""
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()  # nobody needs what it holds
        shutil.rmtree(self.directory, ignore_errors=True)

    def log(self) -> str:
        return (self.directory / "server.log").read_text(errors="replace")[-4000:]

    def await_ready(self) -> None:
        self.await_true("READY")

    def await_true(self, lua: str, tries: int = 600) -> None:
        """Wait for something to become true."""
        for _ in range(tries):
            assert self._process is not None
            try:
                self._process.wait(timeout=0.05)
                break
            except subprocess.TimeoutExpired:
                pass
            try:
                if self.run(f"return {lua}"):
                    return
            except (OSError, RuntimeError, AssertionError):
                continue
        raise RuntimeError(f"{lua} did not become true:\n{self.log()}")

    @property
    def _control(self) -> str:
        return str(self.directory / "control")

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(timeout=60)
        self._process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
