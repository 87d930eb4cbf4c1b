"""Groups: the options of ``Worker.group``, and the sizes that groups and decorators have in common.

Pure; used when the application is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Required, TypedDict

from pyworkers.config.groups import MODES, Sizes, check_group_name, check_processes, check_queues
from pyworkers.errors import DeclarationError
from pyworkers.protocol.options import suggestion

if TYPE_CHECKING:
    from pyworkers.ipc.control import GroupFacts, SizeFacts


class SizeOptions(TypedDict, total=False):
    """Options of ``Worker.group``, ``@worker.process`` and ``@worker.job``.

    For several jobs on one queue, and several queues in a group without the option, the largest number is
    used.
    """

    concurrency: int | None
    """The number of jobs that run at a time, from 1; None: the number in the configuration."""
    processes: int | str | None
    """The number of worker processes in the modes ``async`` and ``thread``, where they share the concurrency.
    Default: None, the cores that the server may use. In all modes ``"auto"``: they start with the first job,
    and end after a minute without one; ``"1-4"``: so, but from one to four of them."""
    mode: str | None
    """What a worker process holds: ``process`` (one job), ``async`` or ``thread`` (several). Default: None,
    ``async`` if all jobs are ``async def``, else ``process``."""


class GroupOptions(SizeOptions, total=False):
    """Options of ``Worker.group``."""

    queues: Required[Sequence[str] | Mapping[str, int]]
    """A list: in strict order; a dict: the weight of each, from 1 to 1,000,000."""


def group_facts(name: str, options: GroupOptions) -> GroupFacts:
    """A group for the manifest. Raises DeclarationError."""
    what = f"the group {name!r}"
    queues, sizes = options.get("queues", ()), sizes_of(options)
    if isinstance(queues, str) or not isinstance(queues, Sequence | Mapping):
        raise DeclarationError(
            f"{what} needs a list of queues", hint='queues=["a", "b"], or weights: queues={"a": 5, "b": 1}'
        )
    listed = dict(queues) if isinstance(queues, Mapping) else tuple(queues)
    try:
        check_group_name(name)
        check_queues(listed)
    except ValueError as error:
        raise DeclarationError(f"{what}: {error}") from error
    check_sizes(sizes, what)
    return {"queues": listed if isinstance(listed, dict) else list(listed), **size_facts(sizes)}


def size_facts(sizes: Sizes) -> SizeFacts:
    """The sizes for the manifest."""
    return {"concurrency": sizes.concurrency, "processes": sizes.processes, "mode": sizes.mode}


def sizes_of(options: SizeOptions) -> Sizes:
    """The sizes among the options."""
    return Sizes(options.get("concurrency"), options.get("processes"), options.get("mode"))


def check_sizes(sizes: Sizes, what: str) -> None:
    """Raise DeclarationError for an invalid size; ``what`` declares it."""
    if sizes.concurrency is not None and not _is_positive(sizes.concurrency):
        raise DeclarationError(f"{what}: concurrency must be at least 1, not {sizes.concurrency!r}")
    if isinstance(sizes.processes, str):
        try:
            check_processes(sizes.processes)
        except ValueError as error:
            raise DeclarationError(f"{what}: processes {error}") from error
    elif sizes.processes is not None and not _is_positive(sizes.processes):
        raise DeclarationError(f"{what}: processes must be at least 1, not {sizes.processes!r}")
    if sizes.mode is not None and sizes.mode not in MODES:
        hint = suggestion(str(sizes.mode), MODES)
        raise DeclarationError(
            f"{what}: mode must be one of {', '.join(MODES)}, not {sizes.mode!r}", hint=hint
        )


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
