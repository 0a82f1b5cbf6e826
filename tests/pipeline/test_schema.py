"""The JSON schema for editors agrees with what is accepted."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from tailrace.adaptor import registry as adaptors
from tailrace.pipeline.assemble import assemble
from tailrace.pipeline.catalog import catalog, describe_adaptor
from tailrace.pipeline.sample import sample_file, sample_of
from tailrace.pipeline.schema import pipeline_schema

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
UNDERSTOOD = {
    "type",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "properties",
    "additionalProperties",
    "required",
}
UNDERSTOOD |= {"items", "minItems", "maxItems", "minProperties", "maxProperties", "minimum", "maximum", "pattern"}
UNDERSTOOD |= {"exclusiveMinimum", "minLength", "maxLength", "title", "description", "default", "examples", "format"}
UNDERSTOOD |= {"$defs", "$schema", "propertyNames", "writeOnly"}


def accepts(schema: Any, value: Any, root: Any) -> bool:
    """The part of JSON Schema that ours uses; an unknown word fails the test."""
    if isinstance(schema, bool):
        return schema
    assert set(schema) <= UNDERSTOOD, set(schema) - UNDERSTOOD
    if "$ref" in schema:
        target = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        if not accepts(target, value, root):
            return False
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[kind]) for kind in kinds):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "anyOf" in schema and not any(accepts(each, value, root) for each in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(accepts(each, value, root) for each in schema["oneOf"]) != 1:
        return False
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        return False
    if isinstance(value, int | float) and value < schema.get("minimum", value):
        return False
    if isinstance(value, list):
        within = schema.get("minItems", 0) <= len(value)
        return within and all(accepts(schema.get("items", True), each, root) for each in value)
    return not isinstance(value, dict) or accepts_object(schema, value, root)


def accepts_object(schema: Any, value: dict[str, Any], root: Any) -> bool:
    if any(key not in value for key in schema.get("required", ())):
        return False
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        return False
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    return all(accepts(properties.get(key, others), each, root) for key, each in value.items())


GOOD = """
pipeline: orders
log: ./orders.log
read:
  shelf: {path: shop.json, poll: 100ms, piece_bytes: 1000}
  namespace: main
  parallel: 2
write:
  - name: lake
    sink: {path: lake}
    through:
      - omit: [email]
      - omit: {fields: [email], missing: error}
      - rename: {a: b}
      - skip: {field: total, operator: ">", match: 10}
      - pretty
    on_error: stop
    on_schema_change: "${POLICY:-evolve}"
    every: 5s
    batch_bytes: 1MB
    hold: {cap_bytes: 10GB}
  - shelf: {path: x, form: long, password: "${PASSWORD}"}
    hold: none
settings: {poll: 1s, keep_age: 7d, spark: {spark.ui.enabled: false}}
"""


def schema_now() -> Any:
    """As an editor gets it: through JSON."""
    return json.loads(json.dumps(pipeline_schema()))


def test_it_accepts_a_good_file() -> None:
    schema = schema_now()
    assert accepts(schema, yaml.safe_load(GOOD), schema)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("log:", "lag:"),
        ("pipeline: orders", ""),
        ("namespace:", "namespase:"),
        ("poll: 100ms", "pol: 100ms"),
        ("parallel: 2", "parallel: 0"),
        ("parallel: 2", "parallel: many"),
        ("on_error: stop", "on_error: explode"),
        ("form: long", "form: round"),
        ("sink: {path: lake}", "every: 1s"),
        ("sink: {path: lake}", "sink: {path: lake}\n    shelf: {path: lake}"),
        ("shelf: {path: shop.json", "sink: {path: shop.json"),
        ("- pretty", "- prety"),
        ("- omit: [email]", "- omti: [email]"),
        ("fields: [email]", "feilds: [email]"),
        ("keep_age", "keep_ages"),
        ("{cap_bytes", "{cap_byte"),
    ],
)
def test_it_refuses_mistakes(old: str, new: str) -> None:
    assert old in GOOD
    schema = schema_now()
    assert not accepts(schema, yaml.safe_load(GOOD.replace(old, new, 1)), schema)


def test_every_reference_leads_somewhere() -> None:
    schema = schema_now()
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(schema)):
        target = schema
        for part in reference.split("/"):
            target = target[part]


@pytest.mark.parametrize(("source", "sink"), [("shelf", "shelf"), ("shelf", "sink")])
def test_a_file_to_begin_with_is_accepted(source: str, sink: str) -> None:
    text = sample_file("orders", describe_adaptor(source), describe_adaptor(sink))
    schema = schema_now()
    assert accepts(schema, yaml.safe_load(text), schema)


def test_every_option_of_a_file_to_begin_with_is_accepted_with_its_default() -> None:
    text = sample_file("orders", describe_adaptor("shelf"), describe_adaptor("sink"))
    assignments = re.sub(r"^( *)# ([a-z_]+:(?: |$))", r"\1\2", text, flags=re.MULTILINE)
    said = yaml.safe_load(assignments)
    assert said["settings"]["segment_bytes"] == "1GiB"
    assert said["write"][0]["sink"]["form"] == "wide"
    spec, problems = assemble(said, "/")
    assert problems == []
    assert spec == assemble(yaml.safe_load(text), "/")[0]


def test_what_about_shows_for_a_function_is_accepted() -> None:
    schema = schema_now()
    _, functions = catalog()
    assert len(functions) >= 8
    for each in functions:
        (step,) = yaml.safe_load(sample_of(each))["through"]
        said = yaml.safe_load(GOOD)
        said["write"] = {"sink": {"path": "x"}, "through": [step]}
        assert accepts(schema, said, schema), step
        if each.name != "python":  # its module is only a name
            assert assemble(said, "/")[1] == [], step


def test_an_adaptor_that_cannot_be_loaded_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptors, "BUILT_IN", ("nowhere",))
    assert "read.nowhere" not in pipeline_schema()["$defs"]
    nowhere = next(each for each in catalog()[0] if each.name == "nowhere")
    assert "cannot be loaded here" in nowhere.summary
