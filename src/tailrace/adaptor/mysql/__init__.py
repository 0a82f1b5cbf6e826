"""MySQL and MariaDB servers, read and written."""

from __future__ import annotations

from typing import Final

from tailrace.adaptor.endpoint import endpoint
from tailrace.adaptor.mysql.options import MysqlReaderOptions, MysqlWriterOptions
from tailrace.adaptor.registry import Adaptor

ADAPTOR: Final = Adaptor(
    name="mysql",
    summary="a MySQL or MariaDB server: tables by key ranges, changes from the binary log, exactly-once writes",
    reader=MysqlReaderOptions,
    writer=MysqlWriterOptions,
)
mysql = endpoint("mysql", first="url")
