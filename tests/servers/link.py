"""A link between two programs on this machine that can be cut: a port that leads to another one."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Self

_PIECE = 1 << 16


class Link:
    """What comes to `port` goes on to `target`, and back. Cut twice, it is as if cut once."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._is_broken = False
        self._carries = asyncio.Event()
        self._carries.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def break_off(self) -> None:
        """Both ends see every connection end, and none is made."""
        self._is_broken = True
        self._loop.call_soon_threadsafe(self._abort)

    def fall_silent(self) -> None:
        """Nothing comes through and nobody is told, as when packets are lost. What is on its way comes when mended."""
        self._loop.call_soon_threadsafe(self._carries.clear)

    def mend(self) -> None:
        self._is_broken = False
        self._loop.call_soon_threadsafe(self._carries.set)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._listening)

    async def _close(self) -> None:
        self._server.close()
        self._abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _abort(self) -> None:
        for end in self._ends:
            end.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_broken:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._ends |= ends
        try:
            await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))
        except OSError:
            pass
        finally:
            self._ends -= ends
            for end in ends:
                end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_PIECE):
            await self._carries.wait()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
