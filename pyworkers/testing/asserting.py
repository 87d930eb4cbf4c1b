"""Asserting: finds the job that a test expects, and says how the waiting ones differ from it.

Pure; used in the test's process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

from pyworkers.app import Job
from pyworkers.protocol import envelope
from pyworkers.testing.jobs import EnqueuedJob
from pyworkers.text import shorten
from pyworkers.typed.signatures import signature_of

_NEAREST = 3
_DIFFERENCES = 10
_LISTED = 10
_LONGEST = 200
# Characters of a long text around the first one that differs.
_BEFORE, _AFTER = 15, 45


def find(
    jobs: Sequence[EnqueuedJob], job: Job[..., Any] | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> EnqueuedJob | None:
    """The first job of this class, and with these arguments if any are given.

    An argument that is left out has its default, on both sides.
    """
    same = [other for other in jobs if other.job_class == name_of(job)]
    if args or kwargs:
        wanted = _filled(job, _as_stored(job, args, kwargs))
        same = [other for other in same if _filled(job, other.args) == wanted]
    return next(iter(same), None)


def missing(
    jobs: Sequence[EnqueuedJob],
    ran: Sequence[EnqueuedJob],
    job: Job[..., Any] | str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> str:
    """The text about a job that ``find`` has not found among ``jobs``; ``ran`` are the past jobs."""
    name, wanted = name_of(job), _as_stored(job, args, kwargs) if args or kwargs else None
    shown = name if wanted is None else _call(name, wanted)
    lines = [f"{shown} was not enqueued; {summary(jobs)}"]
    if find(ran, job, args, kwargs):
        lines.append("a job like this has run already")
    same = [other.args for other in jobs if other.job_class == name]
    if wanted is not None:
        names, filled = list(_parameters(job)), _filled(job, wanted)
        found = sorted(([*_of_arguments(filled, _filled(job, other), names)] for other in same), key=len)
        for differing in found[:_NEAREST]:
            lines += ["the nearest one differs:" if differing is found[0] else "another one:"]
            lines += [f"    {line}" for line in _capped(differing, _DIFFERENCES, "differences")]
    elif near := get_close_matches(name, {other.job_class for other in jobs}, 1):
        lines.append(f"did you mean {near[0]}?")
    return "\n".join(lines)


def summary(jobs: Sequence[EnqueuedJob]) -> str:
    """The waiting jobs, the oldest first."""
    if not jobs:
        return "nothing waits"
    return "waiting: " + ", ".join(_capped([_call(job.job_class, job.args) for job in jobs], _LISTED, "jobs"))


def name_of(job: Job[..., Any] | str) -> str:
    """The class of a job."""
    return job.name if isinstance(job, Job) else job


def differences(wanted: Any, found: Any, path: str) -> Iterator[str]:
    """A line for each place at which two JSON values differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in [*wanted, *(key for key in found if key not in wanted)]:
            yield from _of_items(wanted, found, key, f"{path}[{key!r}]")
    elif isinstance(wanted, list) and isinstance(found, list):
        items, others = dict(enumerate(wanted)), dict(enumerate(found))
        for index in range(max(len(items), len(others))):
            yield from _of_items(items, others, index, f"{path}[{index}]")
    elif wanted != found:
        yield f"{path}: {_shown(found, wanted)} instead of {_shown(wanted, found)}"


def _of_arguments(wanted: list[Any], found: list[Any], names: Sequence[str]) -> Iterator[str]:
    items, others = dict(enumerate(wanted)), dict(enumerate(found))
    for index in range(max(len(items), len(others))):
        path = names[index] if index < len(names) else f"argument {index + 1}"
        yield from _of_items(items, others, index, path)


def _of_items(wanted: Mapping[Any, Any], found: Mapping[Any, Any], key: object, path: str) -> Iterator[str]:
    if key not in found:
        yield f"{path}: missing, instead of {_shown(wanted[key])}"
    elif key not in wanted:
        yield f"{path}: {_shown(found[key])} instead of nothing"
    else:
        yield from differences(wanted[key], found[key], path)


def _shown(value: Any, other: Any = None) -> str:
    """A value; of a long text the part around the first character in which it differs from another."""
    if isinstance(value, str) and isinstance(other, str) and max(len(value), len(other)) > _LONGEST:
        same = next((n for n, (a, b) in enumerate(zip(value, other, strict=False)) if a != b), len(other))
        start = max(0, min(same, len(value)) - _BEFORE)
        return f"{value[start : same + _AFTER]!r} (from character {start})"
    return shorten(repr(value), _LONGEST)


def _call(name: str, args: Sequence[Any]) -> str:
    return f"{name}({', '.join(map(_shown, args))})"


def _capped(lines: Sequence[str], most: int, what: str) -> list[str]:
    rest = len(lines) - most
    return [*islice(lines, most), *([f"and {rest} more {what}"] if rest > 0 else [])]


def _parameters(job: Job[..., Any] | str) -> dict[str, Any]:
    """The arguments that have a name, as far as they are known, with their defaults."""
    if not isinstance(job, Job):
        return {}
    signature = signature_of(job.function)
    known = signature.parameters.values() if signature else ()
    return {
        one.name: one.default for one in known if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    }


def _filled(job: Job[..., Any] | str, args: list[Any]) -> list[Any]:
    """The arguments, and the defaults of those that are left out at the end, if JSON can hold them."""
    rest = list(_parameters(job).values())[len(args) :]
    try:
        return [*args, *_through_json(rest)]
    except (TypeError, ValueError):
        return args


def _through_json(args: Sequence[Any]) -> list[Any]:
    stored: list[Any] = envelope.decode(f'{{"args":{envelope.encode(args)}}}'.encode())["args"]
    return stored


def _as_stored(job: Job[..., Any] | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments as the envelope carries them: bound to the signature, tuples as lists."""
    if isinstance(job, Job):
        bound = job.bind(*args, **kwargs)
    elif kwargs:
        raise TypeError("keyword arguments need the Job, not its name")
    else:
        bound = args
    return _through_json(bound)
