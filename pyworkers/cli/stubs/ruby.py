"""Ruby of an application's jobs: a module for the gem ``pyworkers``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyworkers.cli.stubs.names import FreeNames, comment, quoted, words

_PLAIN = {
    "string": "String",
    "integer": "Integer",
    "number": "Numeric",
    "boolean": "Boolean",
    "null": "nil",
    "object": "Hash",
    "array": "Array",
}
# What cannot be the name of a parameter.
_WORDS = re.compile(
    "alias|and|begin|break|case|class|def|do|else|elsif|end|ensure|false|for|if|in|module|next|nil|not|or|redo|"
    "rescue|retry|return|self|super|then|true|undef|unless|until|when|while|yield|options"
)
# Methods that a module cannot do without.
_METHODS = ("initialize", "method_missing", "object_id")
_HEAD = """# frozen_string_literal: true

# Made by `pyworkers generate ruby --app {app}`: a change here is lost.

require "pyworkers"

# The jobs of the application. Each method enqueues one, and returns its id. The options are the ones of
# Pyworkers.enqueue.
module Jobs
  NONE = Object.new.freeze
  private_constant :NONE

  class << self
"""
_FOOT = """
    private

    # Arguments that are left out are the last ones.
    def __enqueue(queue, job_class, args, options)
      given = args.take_while { |arg| !arg.equal?(NONE) }
      Pyworkers.enqueue(queue, job_class, given, **options)
    end
  end
end
"""


def written(app: str, found: Mapping[str, Any]) -> str:
    """The text of the file: a method for each job, which takes its arguments."""
    names = FreeNames(_METHODS)
    methods = [
        _method(job, names.new(_snake(job["name"])), found["$defs"])
        for job in sorted(found["jobs"], key=lambda job: str(job["name"]))
    ]
    return _HEAD.format(app=app) + "\n".join(methods) + _FOOT


def _method(job: Mapping[str, Any], name: str, types: Mapping[str, Any]) -> str:
    names = FreeNames()
    about, declared, given = [], [], []
    for one in job["parameters"]:
        parameter, kind = names.new(_parameter(one["name"])), _type_of(one["schema"], types)
        if one["kind"] == "rest":
            parameter, kind = f"*{parameter}", f"Array<{kind}>"
        about.append(f"    # @param {parameter.lstrip('*')} [{kind}]\n")
        declared.append(parameter if one["required"] or one["kind"] == "rest" else f"{parameter} = NONE")
        given.append(parameter)
    said = f"    # {comment(job['about'])}\n    #\n" if job["about"] else ""
    result = _type_of(job["result"], types)
    call = f"{_quoted(job['queue'])}, {_quoted(job['name'])}, [{', '.join(given)}], options"
    return (
        f"{said}{''.join(about)}    # @return [String] the id; the result is [{result}]\n"
        f"    def {name}({', '.join([*declared, '**options'])})\n      __enqueue({call})\n    end\n"
    )


def _type_of(schema: Mapping[str, Any] | bool, types: Mapping[str, Any]) -> str:
    """The type in YARD's words; ``Object`` if the schema says too little."""
    if isinstance(schema, bool) or not schema:
        return "Object"
    if "$ref" in schema:
        named = types.get(schema["$ref"].rpartition("/")[2], {})
        return "Object" if "$ref" in named else _type_of(named, {})
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return ", ".join(dict.fromkeys(_class_of(value) for value in values))
    kinds = schema.get("anyOf") or schema.get("oneOf")
    if kinds:
        return ", ".join(dict.fromkeys(_type_of(one, types) for one in kinds))
    kind = schema.get("type")
    if isinstance(kind, list):
        return ", ".join(_PLAIN.get(str(one), "Object") for one in kind)
    if kind == "array" and schema.get("items"):
        return f"Array<{_type_of(schema['items'], types)}>"
    return _PLAIN.get(str(kind), "Object")


def _class_of(value: object) -> str:
    if value is None:
        return "nil"
    return (
        "Boolean" if isinstance(value, bool) else {str: "String", int: "Integer"}.get(type(value), "Numeric")
    )


def _snake(name: str) -> str:
    """``send_mail`` of ``SendMail``, ``shop_charge`` of ``shop.charge``."""
    found = "_".join(words(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))).lower()
    return found if found and not found[0].isdigit() else f"job_{found}"


def _parameter(name: str) -> str:
    found = _snake(name)
    return f"{found}_" if _WORDS.fullmatch(found) else found


def _quoted(text: str) -> str:
    # Ruby reads #{…} in a text.
    return quoted(text).replace("#", "\\#")
