"""Character sets: how MySQL's are called in Python. The binary log has text as the column stores it."""

from __future__ import annotations

import codecs
from typing import Final

BINARY: Final = "binary"
_LATIN1_NAME: Final = "cp1252"
_CODECS: Final = {
    "ascii": "ascii",
    "big5": "big5",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin1": _LATIN1_NAME,
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macroman": "mac_roman",
    "sjis": "shift_jis",
    "tis620": "tis_620",
    "ucs2": "utf_16_be",
    "ujis": "euc_jp",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "utf8": "utf_8",
    "utf8mb3": "utf_8",
    "utf8mb4": "utf_8",
}


def codec_of(charset: str) -> str:
    """Python's name of a character set. Raises `ValueError` for one that it does not have."""
    found = _CODECS.get(charset)
    if found is None:
        raise ValueError(f"text in the character set {charset} cannot be read from the binary log")
    return found


def decoded(content: bytes, charset: str) -> str:
    """Text as a column of this character set stores it."""
    codec = codec_of(charset)
    return _latin1(content) if codec == _LATIN1_NAME else codecs.decode(content, codec)


def _latin1(content: bytes) -> str:
    """MySQL's latin1 is Windows' 1252, with the five bytes that this leaves undefined."""
    try:
        return content.decode("cp1252")
    except UnicodeDecodeError:
        return "".join(_LATIN1[byte] for byte in content)


_LATIN1: Final = [
    chr(byte) if byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else bytes([byte]).decode("cp1252") for byte in range(256)
]
