"""The redis-cli command line that reaches the server of a URL. No server is needed."""

from __future__ import annotations

import pytest

from pyworkers.config.fields import RedisConfig
from pyworkers.store.transport.address import readable_on_the_way, redis_cli
from pyworkers.store.transport.connections import connect_async


async def command_line(config: RedisConfig) -> str:
    async with connect_async(config) as redis:
        return await redis_cli(redis)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://127.0.0.1:7000/2", "-h 127.0.0.1 -p 7000"),
        ("redis:///3", "-h localhost -p 6379"),
        ("redis://:secret@h", "-h h -p 6379 --askpass"),
        ("redis://me:secret@h:7", "-h h -p 7 --user me --askpass"),
        ("redis://me@h:7", "-h h -p 7 --user me --askpass"),
        ("redis://h:7?password=secret&username=a%20b", "-h h -p 7 --user 'a b' --askpass"),
        ("rediss://[::1]:7", "-h ::1 -p 7 --tls"),
        ("rediss://h:7?ssl_cert_reqs=none", "-h h -p 7 --tls --insecure"),
        ("unix:///tmp/a%20b.sock?db=2", "-s '/tmp/a b.sock'"),
        ("unix://me:secret@/tmp/s", "-s /tmp/s --user me --askpass"),
        ("embedded:/data", "-s /data/valkey.sock"),
    ],
)
async def test_a_url_as_a_command_line(url: str, words: str) -> None:
    assert await command_line(RedisConfig(url=url)) == f"redis-cli {words}"


async def test_login_and_certificates_of_the_configuration() -> None:
    config = RedisConfig(
        "rediss://h", username="me", password="secret", ca_file="/ca", cert_file="/cert", key_file="/key"
    )
    words = "-h h -p 6379 --user me --askpass --tls --cacert /ca --cert /cert --key /key"
    assert await command_line(config) == f"redis-cli {words}"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://:secret@10.0.0.1:7000", ["10.0.0.1:7000"]),
        ("redis://redis.internal?password=secret", ["redis.internal:6379"]),
        ("redis://:secret@[fd00::2]:7", ["[fd00::2]:7"]),
        ("redis://me@10.0.0.1", []),
        ("rediss://:secret@10.0.0.1", []),
        ("redis://:secret@127.8.8.8", []),
        ("redis://:secret@[::1]:7", []),
        ("redis://:secret@localhost", []),
        ("redis://:secret@", []),
        ("unix://:secret@/run/redis.sock", []),
    ],
)
async def test_a_password_in_plain_text_to_another_host(url: str, expected: list[str]) -> None:
    async with connect_async(RedisConfig(url)) as redis:
        assert await readable_on_the_way(redis) == expected


async def test_a_password_of_the_configuration_counts_as_well() -> None:
    async with connect_async(RedisConfig("redis://10.0.0.1", password="secret")) as redis:
        assert await readable_on_the_way(redis) == ["10.0.0.1:6379"]
