"""The pipeline files in the documentation are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tailrace.pipeline.form import ReadForm, SettingsForm, WriteForm
from tailrace.pipeline.load import load

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference" / "pipeline-file.md"
GUIDE = DOCS / "guides" / "pipelines.md"


@pytest.fixture(autouse=True)
def shelves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The adaptors of the house instead of those for tests."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", [REFERENCE, GUIDE], ids=lambda page: page.stem)
def test_files_in_the_documentation_are_accepted(page: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        Path("page.yml").write_text(block)
        assert load("page.yml", {}).name == "orders"


@pytest.mark.parametrize(("section", "form"), [("read", ReadForm), ("write", WriteForm), ("settings", SettingsForm)])
def test_every_key_has_its_line(section: str, form: type[ReadForm | WriteForm | SettingsForm]) -> None:
    text = REFERENCE.read_text()
    rows = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith(f"| `{section}."))
    assert [key for key in form.model_fields if f"`{section}.{key}`" not in rows and f"`{key}`" not in rows] == []
