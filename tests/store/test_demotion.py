"""A primary that becomes a replica: its connections are left, so that the next ones find its successor."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol.keys import Keys
from pyworkers.store.transport.connections import connect_async
from tests.helpers.owner import Owner
from tests.helpers.support import free_port, running_server


@pytest.mark.parametrize("single", [True, False])
async def test_the_connection_to_a_replica_is_left(tmp_path: Path, one_binary: str, single: bool) -> None:
    with running_server(one_binary, tmp_path, free_port()) as url:
        async with connect_async(RedisConfig(url=url), single_connection_client=single) as redis:
            store = Owner(redis, Keys(), "me")
            before = await redis.client_id()
            await redis.execute_command("REPLICAOF", "127.0.0.1", 1)
            assert await redis.client_id() == before
            for _ in range(2):
                with pytest.raises(RedisUnavailableError) as caught:
                    await store.renew(30, ["q"])
                assert caught.value.code == "READONLY"
                assert await redis.client_id() > before
            await redis.execute_command("REPLICAOF", "NO", "ONE")
            assert await store.renew(30, ["q"]) == 2
