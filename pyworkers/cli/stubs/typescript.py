"""TypeScript of an application's jobs: for the package ``pyworkers`` of Node. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyworkers.cli.stubs.names import FreeNames, comment, pascal, quoted, words

_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "{ [name: string]: Json }",
    "array": "Json[]",
}
_NAME_OF_ANY = "value"
# What the name of an argument cannot be.
_RESERVED = re.compile(
    "await|break|case|catch|class|const|continue|debugger|default|delete|do|else|enum|export|extends|finally|"
    "for|if|implements|in|instanceof|interface|let|package|private|protected|public|return|static|super|switch|"
    "throw|try|var|while|with|yield"
)


def written(app: str, found: Mapping[str, Any]) -> str:
    """The text of the file: a type for each class, for the arguments and the result of each job."""
    names = FreeNames(("Call", "Client", "Json", "Jobs"))
    types = {name: names.new(_type_name(name)) for name in sorted(found["$defs"])}
    writer = _TypeScriptWriter(types)
    parts = [
        f"// Made by `pyworkers generate ts --app {app}`: a change here is lost.\n"
        'import type { Call, Client, Json } from "pyworkers";\n'
    ]
    parts += [writer.definition(types[name], found["$defs"][name]) for name in sorted(found["$defs"])]
    members = []
    for job in sorted(found["jobs"], key=lambda job: str(job["name"])):
        base = _type_name(job["name"])
        args, result = names.new(f"{base}Args"), names.new(f"{base}Result")
        parts.append(f"export type {args} = {writer.args(job['parameters'])};\n")
        parts.append(f"export type {result} = {writer.type_of(job['result'])};\n")
        members.append((job, args, result))
    parts.append(_function(members))
    return "\n".join(parts)


def _function(members: Sequence[tuple[Mapping[str, Any], str, str]]) -> str:
    interface, values = [], []
    for job, args, result in members:
        about = f"  /** {_in_comment(job['about'])} */\n" if job["about"] else ""
        name = _member(job["name"])
        interface.append(f"{about}  readonly {name}: Call<{args}, {result}>;\n")
        where = f"{quoted(job['name'])}, {{ queue: {quoted(job['queue'])} }}"
        values.append(f"    {name}: client.call<{args}, {result}>({where}),\n")
    return (
        "/** The jobs of the application. */\nexport interface Jobs {\n"
        + "".join(interface)
        + "}\n\n/** The jobs, enqueued by this client. */\nexport function jobs(client: Client): Jobs {\n"
        "  return {\n" + "".join(values) + "  };\n}\n"
    )


class _TypeScriptWriter:
    """Types of TypeScript from JSON schemas. ``types``: the names of the definitions."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types

    def definition(self, name: str, schema: Mapping[str, Any]) -> str:
        """A class or another named type."""
        about = f"/** {_in_comment(schema['description'])} */\n" if schema.get("description") else ""
        return f"{about}export type {name} = {self.type_of(schema)};\n"

    def args(self, parameters: Sequence[Mapping[str, Any]]) -> str:
        """The tuple of the arguments."""
        parts = []
        for one in parameters:
            name = _label(one["name"])
            kind = self.type_of(one["schema"])
            if one["kind"] == "rest":
                parts.append(f"...{name}: {_in_brackets(kind)}[]")
            else:
                parts.append(f"{name}{'' if one['required'] else '?'}: {kind}")
        return f"[{', '.join(parts)}]"

    def type_of(self, schema: Mapping[str, Any] | bool) -> str:
        """The type of a value; ``Json`` if the schema says too little, or what TypeScript cannot say."""
        if isinstance(schema, bool) or not schema:
            return "Json"
        if "$ref" in schema:
            return self._types.get(schema["$ref"].rpartition("/")[2], "Json")
        if "const" in schema:
            return json.dumps(schema["const"])
        if "enum" in schema:
            return " | ".join(json.dumps(value) for value in schema["enum"])
        for name in ("anyOf", "oneOf"):
            if name in schema:
                return " | ".join(dict.fromkeys(self.type_of(one) for one in schema[name]))
        kind = schema.get("type")
        if isinstance(kind, list):
            return " | ".join(self.type_of({**schema, "type": one}) for one in kind)
        if kind == "array":
            return self._array(schema)
        if kind == "object":
            return self._object(schema)
        return _PLAIN.get(str(kind), "Json")

    def _array(self, schema: Mapping[str, Any]) -> str:
        if "prefixItems" in schema:
            return f"[{', '.join(self.type_of(one) for one in schema['prefixItems'])}]"
        return f"{_in_brackets(self.type_of(schema.get('items', {})))}[]"

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties = schema.get("properties")
        if not properties:
            return f"{{ [name: string]: {self.type_of(schema.get('additionalProperties', {}))} }}"
        required = set(schema.get("required", ()))
        members = (
            f"{_member(name)}{'' if name in required else '?'}: {self.type_of(one)}"
            for name, one in properties.items()
        )
        return f"{{ {'; '.join(members)} }}"


def _in_brackets(kind: str) -> str:
    return f"({kind})" if " | " in kind else kind


def _type_name(name: str) -> str:
    """``SendMail`` of ``send_mail`` or ``shop.send_mail``."""
    return pascal(words(name))


def _member(name: str) -> str:
    # Without brackets, it would be the prototype of an object.
    if name == "__proto__":
        return '["__proto__"]'
    return name if _WORD.fullmatch(name) else quoted(name)


def _label(name: str) -> str:
    """The name of an argument, which is only shown."""
    if not _WORD.fullmatch(name):
        return _NAME_OF_ANY
    return f"{name}_" if _RESERVED.fullmatch(name) else name


def _in_comment(text: str) -> str:
    return comment(text).replace("*/", "* /")
