"""Replication: which data a Redis has, by the ids of its replication.

Run by the master. A replica that is promoted keeps the id of its former primary as its second one
(https://redis.io/docs/latest/operate/oss_and_stack/management/replication/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyworkers.store.calls import Request, one


@dataclass(frozen=True, slots=True)
class Data:
    """The data of one Redis: the id that it has, and the one that it had before; zeros if there was none.

    Both are empty if the service does not name them.
    """

    is_primary: bool
    now: str
    before: str

    def follows(self, other: Data) -> bool:
        """True if one of the two is, or was, a replica of the other."""
        return bool(self.now) and (self.now in (other.now, other.before) or self.before == other.now)


def data() -> Request[Data]:
    """The data of the Redis that a connection leads to."""
    return one("INFO", "replication", read=_read)


def _read(info: Mapping[str, Any]) -> Data:
    ids = (str(info.get(name, "")) for name in ("master_replid", "master_replid2"))
    return Data(info.get("role") == "master", *ids)
