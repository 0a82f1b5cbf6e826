"""The JSON schema of pipeline files, for editors: made from the same models that check them."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticOmit

from tailrace.adaptor import registry as adaptors
from tailrace.pipeline.form import ReadForm, SettingsForm, WriteForm
from tailrace.transform import registry as functions
from tailrace.transform.options import FunctionOptions

_REFERENCE: Final = {"type": "string", "pattern": r"\$\{"}
"""Any plain value may come from the environment."""
_PLAIN_TYPES: Final = ("integer", "number", "boolean")


class _WithoutCode(GenerateJsonSchema):
    """Leaves out what only Python can say, such as a function itself."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> NoReturn:
        raise PydanticOmit


def pipeline_schema() -> dict[str, Any]:
    """What a pipeline file may say, with all adaptors and functions that can be loaded here."""
    defs: dict[str, Any] = {}
    readers, writers = {}, {}
    for name in adaptors.names():
        try:
            found = adaptors.find(name)
        except ImportError:
            continue
        if found.reader is not None:
            readers[name] = _or_nothing(_add(defs, f"read.{name}", found.reader))
        if found.writer is not None:
            writers[name] = _or_nothing(_add(defs, f"write.{name}", found.writer))
    steps = {name: _step(defs, name, functions.find(name)) for name in functions.names()}
    defs["function"] = {"anyOf": [{"enum": list(steps)}, _one_of(steps)]}
    _end(_add(defs, "read", ReadForm), readers, defs)
    write = _end(_add(defs, "write", WriteForm), writers, defs)
    write["properties"]["through"]["items"] = {"$ref": "#/$defs/function"}
    write["properties"]["hold"] = {"anyOf": [write["properties"]["hold"], {"enum": ["hold", "none"]}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tailrace pipeline",
        "type": "object",
        "additionalProperties": False,
        "required": ["pipeline", "read", "write"],
        "properties": {
            "pipeline": {"type": "string", "description": "The pipeline's name."},
            "log": {"type": "string", "description": "The log's directory; .tailrace/NAME when left out."},
            "read": {"$ref": "#/$defs/read"},
            "write": {
                "anyOf": [
                    {"$ref": "#/$defs/write"},
                    {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/write"}},
                ]
            },
            "settings": _add(defs, "settings", SettingsForm),
        },
        "$defs": _with_references(defs),
    }


def _add(defs: dict[str, Any], name: str, model: type[BaseModel]) -> dict[str, Any]:
    """Put a model's schema among the definitions, and what it refers to under a name of its own."""
    schema = model.model_json_schema(
        mode="validation", ref_template=f"#/$defs/{name}.{{model}}", schema_generator=_WithoutCode
    )
    for inner, described in schema.pop("$defs", {}).items():
        defs[f"{name}.{inner}"] = described
    defs[name] = schema
    return {"$ref": f"#/$defs/{name}"}


def _end(reference: dict[str, Any], theirs: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """One end of a pipeline: our keys, and exactly one adaptor."""
    schema: dict[str, Any] = defs[reference["$ref"].removeprefix("#/$defs/")]
    schema["properties"].update(theirs)
    schema["oneOf"] = [{"required": [name]} for name in theirs]
    return schema


def _one_of(steps: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": steps,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def _or_nothing(schema: dict[str, Any]) -> dict[str, Any]:
    """An adaptor that needs no option may be followed by nothing."""
    return {"anyOf": [schema, {"type": "null"}]}


def _step(defs: dict[str, Any], name: str, model: type[FunctionOptions]) -> dict[str, Any]:
    """A function's options, or its short form."""
    forms = [_add(defs, f"through.{name}", model), {"type": "null"}]
    if model.short:
        forms.append({"$ref": f"#/$defs/through.{name}/properties/{model.short}"})
    if "from_short" in vars(model):
        forms.append({"type": ["string", "array"]})
        forms.append({"type": "object", "additionalProperties": {"type": "string"}})
    return {"anyOf": forms}


def _with_references(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_references(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in _PLAIN_TYPES or ("enum" in schema and schema.get("type") == "string"):
        return {"anyOf": [schema, _REFERENCE]}
    return {key: _with_references(each) for key, each in schema.items()}
