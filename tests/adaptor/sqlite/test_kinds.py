"""Which Arrow type a column gets."""

import pytest

from tailrace.adaptor.sqlite.kinds import Kind, declared_kind, field_of, found_kind, kind_of_field


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("INTEGER", Kind.INTEGER),
        ("unsigned big int", Kind.INTEGER),
        ("VARCHAR(20)", Kind.TEXT),
        ("clob", Kind.TEXT),
        ("BLOB", Kind.BLOB),
        ("double precision", Kind.REAL),
        ("FLOAT", Kind.REAL),
        ("DECIMAL(10,2)", Kind.REAL),
        ("numeric", Kind.REAL),
        ("FLOATING POINT", Kind.INTEGER),
        ("", None),
        ("DATETIME", None),
        ("BOOLEAN", None),
        ("ANY", None),
        ("STRING", None),
    ],
)
def test_declared_types(declared: str, kind: Kind | None) -> None:
    assert declared_kind(declared) is kind


@pytest.mark.parametrize(
    ("declared", "classes", "kind"),
    [
        ("", [], Kind.JSON),
        ("", ["null"], Kind.JSON),
        ("", ["integer", "null"], Kind.INTEGER),
        ("", ["integer", "real"], Kind.REAL),
        ("", ["real"], Kind.REAL),
        ("", ["text", "text"], Kind.TEXT),
        ("", ["blob"], Kind.BLOB),
        ("", ["integer", "text"], Kind.JSON),
        ("", ["blob", "text"], Kind.JSON),
        ("datetime", [], Kind.TEXT),
        ("datetime", ["integer"], Kind.INTEGER),
        ("boolean", [], Kind.INTEGER),
    ],
)
def test_what_a_column_holds(declared: str, classes: list[str], kind: Kind) -> None:
    assert found_kind(declared, classes) is kind


@pytest.mark.parametrize("kind", Kind)
def test_fields_know_their_kind(kind: Kind) -> None:
    assert kind_of_field(field_of("x", kind)) is kind
