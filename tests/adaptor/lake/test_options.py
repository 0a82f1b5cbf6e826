"""What can be said about a lake, and what cannot."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tailrace.adaptor.lake.options import Format, LakeWriterOptions


@pytest.mark.parametrize("character", "%[]\\^|")
def test_a_path_that_the_package_for_delta_misreads(character: str) -> None:
    path = f"/data/a{character}41"
    with pytest.raises(ValidationError, match=r"must not have the character"):
        LakeWriterOptions(path=path, format=Format.DELTA)
    assert LakeWriterOptions(path=path).path == path
