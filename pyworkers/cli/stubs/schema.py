"""The JSON Schema of an application's jobs. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def written(app: str, found: Mapping[str, Any]) -> str:
    """The text of the file: for each job its queue, and the schemas of its arguments and of its result."""
    jobs = {job["name"]: _job(job) for job in found["jobs"]}
    document = {
        "$schema": _DIALECT,
        "title": f"The jobs of {app}",
        "description": f"Made by: pyworkers generate schema --app {app}",
        "jobs": jobs,
        "$defs": dict(sorted(found["$defs"].items())),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _job(job: Mapping[str, Any]) -> dict[str, Any]:
    about = {"description": job["about"]} if job["about"] else {}
    return {"queue": job["queue"], **about, "args": _args(job["parameters"]), "result": job["result"]}


def _args(parameters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of the array ``args``."""
    places = [
        {"title": one["name"], **one["schema"], **({"default": one["default"]} if "default" in one else {})}
        for one in parameters
        if one["kind"] == "place"
    ]
    rest = [one["schema"] for one in parameters if one["kind"] == "rest"]
    required = sum(one["required"] for one in parameters)
    return {
        "type": "array",
        **({"prefixItems": places} if places else {}),
        "items": rest[0] if rest else False,
        "minItems": required,
    }
