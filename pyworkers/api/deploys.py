"""DeploySet: the marks of deployments, which are lines in the charts of the dashboard."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from math import inf, isfinite

from pyworkers.api.actions import Action
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.parameters import Parameter
from pyworkers.api.schemas import array
from pyworkers.api.target import AtRedis
from pyworkers.errors import BadArgumentError
from pyworkers.store.measures import deploys
from pyworkers.store.measures.deploys import MOST_LABEL, Deploy, read_deploys
from pyworkers.store.processes.views import ProcessView

__all__ = [
    "ACTIONS",
    "DEPLOY",
    "DEPLOYS",
    "Deploy",
    "DeploySet",
    "merged_deploys",
    "read_deploys",
    "versions_of",
]
_MOST_VERSIONS = 3
DEPLOY: Table[Deploy] = Table(
    "Deploy", Column("at", Kind.MOMENT, "When"), Column("label", title="Label", cut=1)
)
DEPLOYS = array(DEPLOY.schema)


def merged_deploys(found: Iterable[Iterable[Deploy]]) -> list[Deploy]:
    """The deployments of several Redis servers, the latest first; one that several have is there once."""
    return sorted({deploy for deploys in found for deploy in deploys}, reverse=True)


def versions_of(servers: Iterable[ProcessView]) -> list[Deploy]:
    """When the first of the live servers of each version started, the latest first; at most three."""
    first: dict[str, float] = {}
    for server in servers:
        if server.version and server.started_at > 0 and isfinite(server.started_at):
            program = "" if server.look is None else "pyworkers "
            label = f"servers of {program}{server.version}"[:MOST_LABEL]
            first[label] = min(server.started_at, first.get(label, inf))
    return sorted((Deploy(at, label) for label, at in first.items()), reverse=True)[:_MOST_VERSIONS]


class DeploySet(AtRedis):
    """The marked deployments of the last 90 days, the latest first. Sidekiq's Web UI shows the same marks."""

    def __iter__(self) -> Iterator[Deploy]:
        """At most a hundred. Raises RedisUnavailableError and StoreError."""
        now = time.time()
        yield from self._admin.run(read_deploys(self._admin.keys, now - deploys.TTL_S, now + 60))

    def mark(self, label: str) -> bool:
        """Mark a deployment now. ``label``: a version, or a commit with its subject, at most 200 characters.

        False if it was marked in the last minute, as by another host, or another one in this minute. Raises
        BadArgumentError, RedisUnavailableError and StoreError.
        """
        label = label.strip()
        if not label or len(label) > MOST_LABEL or not label.isprintable():
            raise BadArgumentError(
                f"a label of a deployment has 1 to {MOST_LABEL} printable characters, not {label[:50]!r}",
                hint="pass a version: pyworkers deploys mark v1.4.2",
            )
        return self._admin.run(deploys.mark(self._admin.keys, label))


MARK: Action[Deploy] = Action(
    "deploy.mark",
    "Mark a deployment: a line in the charts of the dashboard.",
    [Parameter("label", "A version, or a commit with its subject.", required=True)],
    lambda admin, **given: DeploySet(admin).mark(given["label"]),
    done="The deployment {label} is marked",
    unchanged="The deployment {label}, or another one in this minute, is marked already",
    command="""Mark a deployment, as a line in the charts of the dashboard and of Sidekiq's Web UI.

    LABEL is a version, or a commit with its subject. Each host may mark it: the same label counts once in a
    minute.

    \b
    Example: pyworkers deploys mark v1.4.2
    """,
)
ACTIONS = (MARK,)
