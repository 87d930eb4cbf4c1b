"""LimitSet: the limits over all servers, with their use."""

from __future__ import annotations

from collections.abc import Iterator

from pyworkers.api.target import Where, admin_of
from pyworkers.protocol.limits import LimitStats
from pyworkers.store.flow import limits


class LimitSet:
    """All limits that jobs have asked for, by key.

    All methods raise RedisUnavailableError and StoreError.
    """

    def __init__(self, where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        self._admin = admin_of(where, namespace)

    def __iter__(self) -> Iterator[LimitStats]:
        return iter(self._admin.run(limits.uses(self._admin.keys)))

    def reset(self, name: str) -> int:
        """Free all slots and forget all starts of a limit, and of each value of its ``by``.

        Returns the number of these; 0 if the limit is not in use. Jobs that hold a slot continue.
        """
        return self._admin.run(limits.reset(self._admin.keys, name))
