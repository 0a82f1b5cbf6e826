"""Lines of a file: where the last complete one ends, how a range is divided, and blocks of whole lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tailrace.errors import Place, TailraceError
from tailrace.limits import MIB
from tailrace.log.disk import read_exactly

LINE_BYTES_MAX: Final = 16 * MIB
BLOCK_BYTES: Final = 4 * MIB
"""Lines are read and parsed in blocks of about this size."""
_STEP_BYTES: Final = 64 * 1024

Cut = Callable[[bytes], int]
"""How many bytes of a text are whole lines."""


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file."""

    start: int
    """The place of the first byte in the file, or in what is inside a compressed one."""
    text: bytes


def end_of_lines(fd: int, size: int, path: str, ending: bytes = b"\n") -> int:
    """Where the last complete line ends, within the first `size` bytes; 0 when none does."""
    at = size
    while at > 0:
        start = max(0, at - _STEP_BYTES)
        found = read_exactly(fd, min(at + len(ending) - 1, size) - start, start).rfind(ending)
        if found >= 0:
            return start + found + len(ending)
        at = start
        if size - at > LINE_BYTES_MAX:
            raise too_long(path, at)
    return 0


def end_of_records(fd: int, size: int, path: str, quote: bytes) -> int:
    """Where the last complete line ends that is not inside quotes; for that all of the file must be looked at."""
    cut = record_end(quote)
    end = 0
    for block in blocks_of_range(fd, 0, size, path, cut):
        end = block.start + cut(block.text)
    return end


def divide(fd: int, start: int, end: int, step: int, path: str, ending: bytes = b"\n") -> list[tuple[int, int]]:
    """A range of whole lines as ranges of about `step` bytes; each begins where a line begins."""
    ranges: list[tuple[int, int]] = []
    while start < end:
        middle = _line_start(fd, start + step, end, path, ending) if start + step < end else end
        ranges.append((start, middle))
        start = middle
    return ranges


def _line_start(fd: int, at: int, end: int, path: str, ending: bytes) -> int:
    """The first place at or after `at` where a line begins."""
    look = max(0, at - len(ending))
    while look < end:
        found = read_exactly(fd, min(_STEP_BYTES + len(ending) - 1, end - look), look).find(ending)
        if found >= 0:
            return look + found + len(ending)
        look += _STEP_BYTES
        if look - at > LINE_BYTES_MAX:
            raise too_long(path, at)
    return end


def line_end(text: bytes) -> int:
    """Where the last complete line ends."""
    return text.rfind(b"\n") + 1


def record_end(quote: bytes) -> Cut:
    """Where the last line ends that is complete and not inside quotes."""

    def cut(text: bytes) -> int:
        end = line_end(text)
        while text.count(quote, 0, end) % 2:
            end = text.rfind(b"\n", 0, text.rfind(quote, 0, end)) + 1
        return end

    return cut


def blocks_of_range(fd: int, start: int, end: int, path: str, cut: Cut = line_end) -> Iterator[Block]:
    """The lines of a range. When the file has become shorter they end early, and a line that was cut is left out."""
    at, wanted = start, BLOCK_BYTES
    while at < end:
        text = read_exactly(fd, min(wanted, end - at), at)
        if len(text) < min(wanted, end - at):
            end = at + line_end(text)
        length = len(text) if at + len(text) == end else cut(text[: end - at])
        if length:
            yield _checked(Block(at, text if length == len(text) else text[:length]), path)
            at, wanted = at + length, BLOCK_BYTES
        elif at < end:
            wanted *= 2
            if wanted > 2 * LINE_BYTES_MAX:
                raise too_long(path, at)


def blocks_of_stream(stream: Any, path: str, bytes_max: int, cut: Cut = line_end) -> Iterator[Block]:
    """The lines of what comes out of a decompressor, of which no more than a block is in memory."""
    at = 0
    rest = b""
    while part := stream.read(BLOCK_BYTES):
        at += len(part)
        if at > bytes_max:
            what = f"the file holds more than {bytes_max} bytes when it is unpacked"
            hint = "unpack it yourself, or raise unpacked_bytes_max"
            raise TailraceError("source.unsupported", what, place=Place(path), hint=hint)
        text = rest + part
        length = cut(text)
        if length:
            yield _checked(Block(at - len(text), text[:length]), path)
        rest = text[length:]
        if len(rest) > LINE_BYTES_MAX:
            raise too_long(path, at - len(rest))
    if rest:
        yield Block(at - len(rest), rest)


def _checked(block: Block, path: str) -> Block:
    """A block without lines that are too long; few blocks are long enough to have one."""
    if len(block.text) > LINE_BYTES_MAX and max(map(len, block.text.split(b"\n"))) > LINE_BYTES_MAX:
        raise too_long(path, block.start)
    return block


def too_long(path: str, at: int) -> TailraceError:
    what = f"a line is longer than {LINE_BYTES_MAX // MIB} MiB"
    return TailraceError(
        "source.malformed", what, place=Place(path, byte=at), hint="check that the file has one document per line"
    )


def malformed(path: str, at: int, why: str, line: bytes) -> TailraceError:
    """The error for a line that cannot be read; it shows how the line begins."""
    shown = line[:60].decode(errors="replace")
    return TailraceError(
        "source.malformed",
        f"{why}: {shown!r}",
        place=Place(path, byte=at),
        hint="mend the line, or set on_malformed: skip",
    )
