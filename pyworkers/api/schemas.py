"""Schemas: the words in which the JSON of a record is described.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}
OBJECT: Schema = {"type": "object"}
MAYBE_TEXT: Schema = {"type": ["string", "null"]}
MAYBE_NUMBER: Schema = {"type": ["number", "null"]}
SCORE: Schema = {"type": ["number", "string"], "description": "A text for infinity, which JSON lacks."}


def array(items: Schema) -> Schema:
    """An array of these."""
    return {"type": "array", "items": items}


def maybe(schema: Schema) -> Schema:
    """This, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def by_name(item: Schema) -> Schema:
    """An object with any names as members."""
    return {"type": "object", "additionalProperties": item}


def record(title: str, members: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these members."""
    properties = {**members, **(optional or {})}
    return {"title": title, "type": "object", "required": list(members), "properties": properties}


def more(
    base: Schema, title: str, members: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None
) -> Schema:
    """A record with the members of another one, and these."""
    properties = {**base["properties"], **members, **(optional or {})}
    return {**base, "title": title, "required": [*base["required"], *members], "properties": properties}
