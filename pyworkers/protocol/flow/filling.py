"""Filling: where results go in the arguments of jobs that follow, as paths next to the arguments.

Pure; made by ``plugins/canvas.py``, used at the end of a step (batch.py), and by the scripts,
which insert results at places in the text of a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyworkers.protocol.envelope import encode

FIELD = "fill"
"""The field of a job that follows: ``{"RESULT": [[1, "note"]]}``, the paths at which the result goes."""
NAME = "RESULT"
VERSION = 2
"""Of ``then``: an object with ``v`` and ``steps``. Version 1, of earlier servers, is a list."""
OLD_RESULTS = '{"pyworkers":"RESULTS"}'
"""The placeholder of the results of a group in a ready job of version 1."""


def taken_out(
    value: Any, marked: Mapping[str, Any], path: tuple[Any, ...] = ()
) -> tuple[Any, list[list[Any]]]:
    """The value with None in place of each marked value; and the paths of these."""
    if value == marked:
        return None, [list(path)]
    paths: list[list[Any]] = []
    if isinstance(value, dict | list):
        copy: Any = {} if isinstance(value, dict) else [None] * len(value)
        for at, item in value.items() if isinstance(value, dict) else enumerate(value):
            copy[at], found = taken_out(item, marked, (*path, at))
            paths += found
        return copy, paths
    return value, paths


def paths_of(job: Mapping[str, Any]) -> list[Any]:
    """The paths in a job that follows; invalid ones are left out when they are followed."""
    about = job.get(FIELD)
    paths = about.get(NAME) if isinstance(about, dict) else None
    return [path for path in paths if isinstance(path, list)] if isinstance(paths, list) else []


def cut(args: Any, paths: list[Any]) -> list[str]:
    """The arguments as JSON, cut where the results go: with a result between all parts they are valid."""
    tree: dict[Any, Any] = {}
    for path in paths:
        node = tree
        for at in path:
            # A boolean would be an index.
            node = node.setdefault(at if at.__class__ in (int, str) else None, {})
        node[_HERE] = True
    parts: list[list[str]] = [[]]
    _write(args, tree, parts)
    return ["".join(texts) for texts in parts]


_HERE = object()


def _write(value: Any, tree: Mapping[Any, Any], parts: list[list[str]]) -> None:
    if _HERE in tree:
        parts.append([])
    elif not tree or not isinstance(value, dict | list):
        parts[-1].append(encode(value))
    elif isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            parts[-1].append(f"{',' if number else '{'}{encode(key)}:")
            _write(item, tree.get(key, {}), parts)
        parts[-1].append("}" if value else "{}")
    else:
        for number, item in enumerate(value):
            parts[-1].append("," if number else "[")
            _write(item, tree.get(number, {}), parts)
        parts[-1].append("]" if value else "[]")


def ready(job: Mapping[str, Any]) -> str:
    """A job that waits for an event, as the text that the script pushes: queue, places, payload.

    The places count the bytes in front of each ``null`` that a result replaces, "-" for none. A text without
    places is one that an earlier server fills and pushes as well: it has the placeholder where a result goes.
    The form with places is for a text in which a value of a user looks like that placeholder. The fields that
    come last are those that the script changes.
    """
    last = {name: job[name] for name in ("created_at", "expiry") if name in job}
    first = {name: value for name, value in job.items() if name not in (*last, "args", FIELD)}
    args = cut(job["args"], paths_of(job))
    before, after = f'{encode(first)[:-1]},"args":', f",{encode(last)[1:]}" if last else "}"
    if not any(OLD_RESULTS in part for part in (before, *args, after)):
        return f"{job['queue']} {before}{OLD_RESULTS.join(args)}{after}"
    text, places = before, []
    for number, part in enumerate(args):
        if number:
            places.append(str(len(text.encode())))
            text += "null"
        text += part
    return f"{job['queue']} {','.join(places) or '-'} {text}{after}"


def parts_of(item: str) -> tuple[str, str, str]:
    """Queue, places and payload of a ready job; the places are empty for one of version 1."""
    queue, _, rest = item.partition(" ")
    places, _, payload = ("", "", rest) if rest.startswith("{") else rest.partition(" ")
    return queue, places, payload


def filled(item: str, result: str) -> tuple[str, str]:
    """Queue and payload of a ready job with the results, as the script pushes it."""
    queue, places, payload = parts_of(item)
    if not places:
        return queue, payload.replace(OLD_RESULTS, result)
    raw = payload.encode()
    for place in sorted((int(place) for place in places.split(",") if place != "-"), reverse=True):
        raw = raw[:place] + result.encode() + raw[place + 4 :]
    return queue, raw.decode()
