"""remap: give namespaces other names."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.namespace import check_name
from tailrace.transform.options import FunctionOptions, mapping_from_short


class Remap(FunctionOptions):
    """Gives namespaces other names; those not mentioned keep theirs."""

    kind: ClassVar[str] = "remap"
    summary: ClassVar[str] = "give namespaces other names"
    keeps_namespaces: ClassVar[bool] = False

    namespaces: Annotated[dict[str, str], Field(min_length=1)]
    """Old name to new name, both in full."""

    @classmethod
    def from_short(cls, value: Any) -> Any:
        return mapping_from_short(value, "namespaces")

    @field_validator("namespaces")
    @classmethod
    def _check_names(cls, namespaces: dict[str, str]) -> dict[str, str]:
        for name in (*namespaces, *namespaces.values()):
            try:
                check_name(name, "namespace")
            except TailraceError as error:
                raise ValueError(error.what) from None
        return namespaces

    def apply(self, messages: Messages) -> Messages:
        return replace(messages, namespace=self.namespaces.get(messages.namespace, messages.namespace))
