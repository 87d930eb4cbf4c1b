"""Commits: the clients of a project, whose jobs wait for the commit of the transaction around them.

Used in every process that enqueues. A job that waits is lost if the process ends between commit and push.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property, partial
from typing import TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

from pyworkers import AsyncClient, Client, DuplicateJobError, QueueFullError, Worker
from pyworkers.errors import BatchError
from pyworkers.integrations.django.configuration import django_settings
from pyworkers.job import Clients
from pyworkers.plugins.deferral import DeferringClient
from pyworkers.protocol.conditions import NO_OTHERS, Others
from pyworkers.protocol.draft import PushedJob

R = TypeVar("R")

log = logging.getLogger("pyworkers")


class CommitClient(DeferringClient):
    """A client for the transactions of ``PYWORKERS["database"]``; ``asked``: also with ``on_commit`` off."""

    def __init__(self, worker: Worker, *, asked: bool) -> None:
        super().__init__(worker.stores(), owner=worker)
        self._asked = asked

    def after_commit(self, action: Callable[[], object]) -> bool:
        """Do the action in ``transaction.on_commit``."""
        settings = django_settings()
        if not (self._asked or settings.on_commit):
            return False
        connection = connections[settings.database]
        if not connection.in_atomic_block:
            return False
        connection.on_commit(partial(_done, action))
        return True

    async def aside(self, function: Callable[[], R]) -> R:
        """Run code on the thread that has the transactions of this context."""
        result: R = await sync_to_async(function)()
        return result


class CommitAsyncClient(AsyncClient):
    """``CommitClient`` with ``await``: looks for a transaction where the ORM runs, on a thread of asgiref."""

    def __init__(self, worker: Worker, client: CommitClient, are_connected: Callable[[], bool]) -> None:
        """``are_connected``: False while no transaction is possible, as this process has no connection."""
        super().__init__(worker.stores(), owner=worker)
        self._client = client
        self._are_connected = are_connected

    async def push(self, jobs: list[PushedJob]) -> Others:
        """As ``AsyncClient.push``, after the commit."""
        if self._are_connected() and await self._client.aside(partial(self._client.push_later, jobs)):
            return NO_OTHERS
        return await super().push(jobs)


class ProjectClients:
    """Two clients, each made at its first use; ``on_commit`` None: as the settings say."""

    def __init__(self, worker: Worker, are_connected: Callable[[], bool], on_commit: bool | None) -> None:
        self._worker = worker
        self._are_connected = are_connected
        self._on_commit = on_commit

    @cached_property
    def client(self) -> Client:
        """For calls that block."""
        return Client.of(self._worker) if self._on_commit is False else self._committing

    @cached_property
    def async_client(self) -> AsyncClient:
        """For calls in an event loop."""
        if self._on_commit is False:
            return AsyncClient.of(self._worker)
        return CommitAsyncClient(self._worker, self._committing, self._are_connected)

    @cached_property
    def _committing(self) -> CommitClient:
        return CommitClient(self._worker, asked=self._on_commit is True)

    def clients_for(self, *, on_commit: bool) -> Clients:
        """The clients that enqueue at the commit, or at once."""
        return self._worker.clients_for(on_commit=on_commit)


def _done(action: Callable[[], object]) -> None:
    """Do the action. A job that Redis refuses must not cost the others of the transaction."""
    try:
        action()
    except (BatchError, DuplicateJobError, QueueFullError) as error:
        log.error("not enqueued after the commit: %s", error)
