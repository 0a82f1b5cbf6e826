"""Options: addresses, the replica's number, and the example."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.adaptor.mysql.options import MysqlReaderOptions
from tailrace.adaptor.mysql.types import ZeroDates
from tailrace.errors import TailraceError
from tailrace.pipeline.load import load

ROOT = Path(__file__).parents[3]


def test_the_parts_of_an_address() -> None:
    url = "mariadb://us%40er:pa%2Fss@db.example/shop"
    server = MysqlReaderOptions(url=url).server()  # type: ignore[arg-type]
    assert (server.host, server.port, server.user, server.password) == ("db.example", 3306, "us@er", "pa/ss")
    assert server.place == "db.example:3306/shop"
    assert "pa/ss" not in repr(server)
    options = MysqlReaderOptions(url=url, password="other")  # type: ignore[arg-type]
    assert options.server().password == "other"
    assert "other" not in repr(options)


@pytest.mark.parametrize(
    "url", ["postgresql://u@h/d", "mysql://h/d", "mysql:///d", "mysql://u:sesame83@h/d?ssl=1", "shop"]
)
def test_what_is_no_address(url: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.yml"
    file.write_text(f"pipeline: shop\nread:\n  mysql: {{url: '{url}'}}\nwrite:\n  - console: {{}}\n")
    with pytest.raises(TailraceError, match="address") as caught:
        load(str(file))
    assert caught.value.code == "config.invalid"
    assert "sesame83" not in str(caught.value)


def test_every_pipeline_is_a_replica_of_its_own() -> None:
    url = "mysql://u@h/d"
    ids = {MysqlReaderOptions(url=url, pipeline=name).replica_id for name in ("a", "b", "")}  # type: ignore[arg-type]
    assert len(ids) == 3
    assert all(1 << 30 <= number < 1 << 32 for number in ids)
    assert MysqlReaderOptions(url=url, pipeline="a", server_id=7).replica_id == 7  # type: ignore[arg-type]


def test_the_example() -> None:
    passwords = {"SHOP_PASSWORD": "canary-1", "COPY_PASSWORD": "canary-2"}
    spec = load(str(ROOT / "examples" / "mysql_to_postgres.yml"), passwords)
    assert isinstance(spec.read.options, MysqlReaderOptions)
    assert spec.read.options.where() == "db.example:3306/shop"
    assert spec.read.options.zero_dates is ZeroDates.NULL
    assert [writer.name for writer in spec.writes] == ["copy", "replica"]
