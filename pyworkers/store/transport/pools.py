"""Pools: pools of connections, and a client, that close a connection in an unknown state.

Used by ``connections`` alone. Nothing here opens a connection before a command needs one.
"""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio

from pyworkers.store.transport.errors import Reaction, code_of, rule_for
from pyworkers.store.transport.replies import CheckedPipeline, reading
from pyworkers.store.transport.turns import FreeTurns, Turns


class WaitingPool(redis.ConnectionPool):
    """A pool that makes a command wait for a free connection, where redis-py's raises an error.

    It drops a connection whose login was interrupted (a job's time limit, Ctrl-C): redis-py would give it to
    the next command in that state, perhaps not logged in, or on another database.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turns = Turns(self.max_connections)
        self._lent: dict[Any, FreeTurns] = {}

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """As redis-py's. Raises its TimeoutError if none becomes free."""
        turn = self._turns.take(self.connection_kwargs["socket_timeout"])
        try:
            connection = super().get_connection(*args, **options)
            self._lent[connection] = turn
        except BaseException:
            turn.leave()
            self.disconnect(inuse_connections=False)
            raise
        return connection

    def release(self, connection: Any) -> None:
        """As redis-py's."""
        turn = self._lent.pop(connection, None)
        try:
            if getattr(connection, "is_left", False):
                connection.disconnect()
            super().release(connection)
        finally:
            if turn is not None:
                turn.leave()


class CheckedClient(redis.asyncio.Redis):
    """Drops a connection that leads to the wrong server, e.g. to a primary that has become a replica, or
    whose replies have an unexpected shape. The next connection resolves the address again, by DNS or a load
    balancer.
    """

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """As redis-py's."""
        try:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except redis.ResponseError as error:
            if rule_for(code_of(error)).reaction is Reaction.RECONNECT:
                await self._leave()
            raise

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> CheckedPipeline:
        """As redis-py's."""
        return CheckedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)

    async def _leave(self) -> None:
        if self.connection is not None:
            await self.connection.disconnect()
        else:
            await self.connection_pool.disconnect(inuse_connections=False)


class AsyncPool(redis.asyncio.BlockingConnectionPool):
    """Drops a connection whose login was cancelled, or got a reply of an unexpected shape."""

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        """As redis-py's."""
        try:
            with reading("the login"):
                return await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
        except BaseException:
            await self.disconnect(inuse_connections=False)
            raise

    async def release(self, connection: Any) -> None:
        """As redis-py's."""
        if getattr(connection, "is_left", False):
            await connection.disconnect()
        await super().release(connection)
