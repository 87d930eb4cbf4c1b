"""Which server a client talks to, and what its errors become. No server is needed."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from pyworkers.asyncclient import AsyncClient
from pyworkers.client import Client
from pyworkers.config.fields import RedisConfig
from pyworkers.config.loading import load
from pyworkers.errors import ConfigError, PyworkersError, RedisUnavailableError, StoreError
from pyworkers.store.transport.connections import (
    connect,
    connect_async,
    errors_translated,
    translate,
)
from pyworkers.store.transport.tls import Tls

DEFAULT = "redis://127.0.0.1:6379/0"


@pytest.mark.parametrize(
    ("url", "namespace", "message"),
    [
        ("http://x", None, "url 'http://x' is not a Redis URL: use redis://"),
        ("redis://:secret@host:port", None, "invalid port"),
        (
            "redis://:secret@host/shop",
            None,
            r"^url 'redis://:\*\*\*@host/shop' has an invalid database \(a number",
        ),
        (5, None, "url must be a string, not int"),
        (None, "app", "namespace must be empty or end with a colon"),
    ],
)
def test_a_bad_configuration_is_refused_when_the_client_is_made(
    url: Any, namespace: Any, message: str
) -> None:
    for client in (Client, AsyncClient):
        with pytest.raises(ConfigError, match=message) as caught:
            client(url, namespace=namespace)
        assert "secret" not in str(caught.value)


def test_the_environment_is_read_when_the_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYWORKERS_REDIS__URL", "redis://:secret@host/3")
    monkeypatch.setenv("PYWORKERS_REDIS__NAMESPACE", "app:")
    assert repr(Client()) == "Client('redis://:***@host/3', namespace='app:')"
    assert AsyncClient.from_config(RedisConfig(url="redis://h")).config.url == "redis://h"


_COMMON = {"host", "port", "path", "db", "username", "password", "protocol", "tls"}


def options(url: str, **config: str) -> dict[str, Any]:
    """What the blocking and the asyncio connections of a URL have in common."""
    settings = RedisConfig(url=url, **config)
    found = connect(settings).connection_pool.connection_kwargs
    other = connect_async(settings).connection_pool.connection_kwargs
    names = {name for name in found if name in _COMMON or name.startswith("socket_")}
    assert {name: found[name] for name in names} == {name: other[name] for name in names}
    assert found["retry"]._retries == other["retry"]._retries == 0
    return found


def test_the_options_of_a_connection() -> None:
    found = options("redis://user:pa%40ss@host:7000/3")
    expected = {"host": "host", "port": 7000, "db": 3, "username": "user", "password": "pa@ss", "protocol": 2}
    expected |= {"socket_connect_timeout": 5.0, "socket_timeout": 10.0, "socket_keepalive": True}
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("redis://host", ("name", "word")),
        ("redis://other:pass@host", ("other", "pass")),
        ("redis://:pass@host", ("name", "pass")),
        ("unix:///run/redis.sock", ("name", "word")),
        ("rediss://other@host", ("other", "word")),
        ("redis+sentinel://h/main", ("name", "word")),
        ("redis+sentinel://other:pa%40ss@h/main", ("other", "pa@ss")),
    ],
)
def test_the_url_goes_before_user_and_password(url: str, login: tuple[str, str]) -> None:
    found = options(url, username="name", password="word")
    assert (found["username"], found["password"]) == login


def test_the_callers_options_go_before_the_defaults() -> None:
    pool = connect(RedisConfig(), socket_timeout=1.5).connection_pool
    assert pool.connection_kwargs["socket_timeout"] == 1.5


def test_certificates_are_for_tls_alone() -> None:
    files = {"ca_file": "ca.pem", "cert_file": "c.pem", "key_file": "k.pem"}
    expected = Tls(ca_certs="ca.pem", certfile="c.pem", keyfile="k.pem")
    assert options("rediss://host", **files)["tls"].tls == expected
    assert options("rediss+sentinel://host/main", **files)["tls"].tls == expected
    for url in ("redis://host", "unix:///run/redis.sock", "redis+sentinel://host/main"):
        assert "tls" not in options(url, **files)
    assert options("rediss://host")["tls"].tls == Tls()


def test_the_options_of_tls_in_a_url_go_first_and_are_of_both_hops() -> None:
    query = "ssl_ca_certs=other.pem&ssl_cert_reqs=none&ssl_min_version=771&ssl_check_hostname=no"
    expected = Tls("other.pem", "c.pem", cert_reqs="none", min_version=771, check_hostname=False)
    for make in (connect, connect_async):
        config = RedisConfig(f"rediss+sentinel://a,b/main?{query}", ca_file="ca.pem", cert_file="c.pem")
        pool: Any = make(config).connection_pool
        hops = [pool.connection_kwargs, *pool.connection_kwargs["primary"].ends]
        assert [hop["tls"].tls for hop in hops] == [expected] * 3


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis+sentinel://h/main?ssl=true", r"unknown option ssl; use rediss\+sentinel:// for TLS"),
        (
            "redis+sentinel://h/main?ssl_ca_certs=c",
            r"is for URLs with TLS, which begin with rediss\+sentinel://",
        ),
        ("redis://h?ssl_ca_certs=c", "option ssl_ca_certs is for URLs with TLS, which begin with rediss://"),
        ("rediss://h?ssl_ca_cert=c", r"unknown option ssl_ca_cert; did you mean ssl_ca_certs\?"),
        ("rediss://h?ssl_validate_ocsp=1", "unknown option ssl_validate_ocsp"),
        ("rediss://h?ssl_cert_reqs=some", "must be one of none, optional, required, not 'some'"),
        ("rediss://h?ssl_keyfile=k", "key_file is set, and cert_file is not: set both"),
        ("rediss://h?ssl_min_version=9", "9 is not a valid TLSVersion"),
    ],
)
def test_options_of_tls_that_cannot_be_used(url: str, text: str) -> None:
    for make in (connect, connect_async):
        with pytest.raises(ConfigError, match=text):
            make(RedisConfig(url))


def test_an_embedded_server_is_a_socket(tmp_path: Any) -> None:
    assert options(f"embedded:{tmp_path}")["path"].endswith("valkey.sock")


def test_a_sentinel_url() -> None:
    url = "redis+sentinel://user:word@a:1,b,[::1]:3/main/2?sentinel_username=su&sentinel_password=s%40p"
    for client in (connect(RedisConfig(url=url)), connect_async(RedisConfig(url=url))):
        found: Any = client.connection_pool.connection_kwargs
        nodes = found["primary"].ends
        assert [(node["host"], node["port"]) for node in nodes] == [("a", 1), ("b", 26379), ("::1", 3)]
        assert {(node["username"], node["password"], node["socket_timeout"]) for node in nodes} == {
            ("su", "s@p", 1.0)
        }
        assert (found["primary"].directory.name, found["db"], found["username"]) == ("main", 2, "user")


def test_a_cluster_url() -> None:
    url = "rediss+cluster://user:word@a:1,b,[::1]:3/0?socket_timeout=3"
    for client in (connect(RedisConfig(url, "{x}:")), connect_async(RedisConfig(url, "{x}:"))):
        found: Any = client.connection_pool.connection_kwargs
        nodes = found["primary"].ends
        assert [(node["host"], node["port"]) for node in nodes] == [("a", 1), ("b", 6379), ("::1", 3)]
        assert {(node["username"], node["password"], node["tls"]) for node in nodes} == {
            ("user", "word", found["tls"])
        }
        assert found["socket_timeout"] == 3.0


_EMPTY = "the URL has an empty host (in a password, write / ? # as %2F %3F %23)"
_PORT = _EMPTY.replace("an empty host", "an invalid port")


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("redis+cluster://h:7,i/1", 'a cluster has no database but 0: write url = "redis+cluster://h:7,i"'),
        (
            "rediss+cluster://me:secret@h?db=1",
            'a cluster has no database but 0: write url = "rediss+cluster://me:***@h"',
        ),
        ("redis+cluster://:secret@", _EMPTY),
        ("redis+cluster://h,", _EMPTY),
        ("redis+cluster://h:secret/1@i", _PORT),
        (
            "redis+cluster://h:12/secret@i",
            "a cluster has no database but 0 (in a password, write / ? # as %2F %3F %23)",
        ),
        (
            "redis+sentinel://h,i:7",
            'the name of the primary is missing: write url = "redis+sentinel://h,i:7/mymaster"',
        ),
        (
            "redis+sentinel://:secret@h/",
            'the name of the primary is missing: write url = "redis+sentinel://:***@h/mymaster"',
        ),
        ("redis+sentinel://:secret@/main", _EMPTY),
        ("redis+sentinel://h,/main", _EMPTY),
        ("redis+sentinel://h:99999/main", _PORT),
        ("redis+sentinel://h:0/main", _PORT),
        ("redis+sentinel://::1/main", _PORT),
        (
            "redis+sentinel://me@h/main/x",
            'the database is not a number: write url = "redis+sentinel://me@h/main/0"',
        ),
    ],
)
def test_a_url_of_several_hosts_that_cannot_be_used(url: str, fault: str) -> None:
    """Of a client, of a server, and of the command that checks its file, which names the line."""
    for make in (connect, connect_async):
        with pytest.raises(ConfigError) as caught:
            make(RedisConfig(url, "{x}:"))
        assert caught.value.message.endswith(f" cannot be used: {fault}")
        assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load(None, env={"PYWORKERS_REDIS__URL": url})
    assert (caught.value.message, caught.value.location) == (f"redis.url: {fault}", "PYWORKERS_REDIS__URL")


def test_an_option_that_cannot_be_used() -> None:
    for make in (connect, connect_async):
        with pytest.raises(ConfigError, match="cannot be used") as caught:
            make(RedisConfig("redis://:secret@host/0?socket_timeout=soon"))
        assert "secret" not in str(caught.value)


def test_the_options_of_a_sentinel_url() -> None:
    url = "redis+sentinel://h/main/2?socket_timeout=3&max_connections=5&sentinel_password=s"
    for client in (connect(RedisConfig(url=url)), connect_async(RedisConfig(url=url))):
        pool: Any = client.connection_pool
        assert (pool.max_connections, pool.connection_kwargs["socket_timeout"]) == (5, 3.0)
        assert pool.connection_kwargs["db"] == 2
        [end] = pool.connection_kwargs["primary"].ends
        assert end["socket_timeout"] == 1.0


@pytest.mark.parametrize(
    "scheme",
    ["redis://host/0", "rediss://host/0", "unix:///run/redis.sock", "redis+sentinel://host/main/0"],
)
def test_an_option_that_no_connection_has(scheme: str) -> None:
    known = "client_name=jobs&health_check_interval=9&max_connections=5&protocol=3&socket_timeout=1"
    for make in (connect, connect_async):
        make(RedisConfig(url=f"{scheme}?{known}"))
        with pytest.raises(ConfigError, match=r"unknown option socket_tmeout; did you mean socket_timeout\?"):
            make(RedisConfig(url=f"{scheme}?socket_tmeout=1"))
        with pytest.raises(ConfigError, match=r"unknown option sentinel_user$"):
            make(RedisConfig(url=f"{scheme}?sentinel_user=1"))


@pytest.mark.parametrize("name", ["retry", "retry_on_error", "parser_class"])
def test_an_option_that_is_not_a_text(name: str) -> None:
    for make in (connect, connect_async):
        with pytest.raises(ConfigError, match=f"option {name} cannot be set in a URL"):
            make(RedisConfig(url=f"redis://host/0?{name}=1"))
        make(RedisConfig(url="rediss://host/0?port=7&encoding=utf-8&lib_name=jobs&ssl_cert_reqs=none"))


@pytest.mark.parametrize(
    "scheme", ["redis://host/0", "unix:///run/redis.sock", "redis+sentinel://host/main/0"]
)
def test_replies_are_bytes_also_where_other_clients_of_the_url_want_text(scheme: str) -> None:
    for make in (connect, connect_async):
        pool: Any = make(RedisConfig(url=f"{scheme}?decode_responses=True")).connection_pool
        assert pool.get_encoder().decode_responses is False
        assert pool.make_connection().encoder.decode_responses is False


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e300"])
@pytest.mark.parametrize("name", ["socket_timeout", "socket_connect_timeout"])
def test_a_time_limit_that_no_socket_takes(name: str, seconds: str) -> None:
    for make in (connect, connect_async):
        with pytest.raises(ConfigError, match=f"{name} must be above 0 and at most 1,000,000 seconds, not "):
            make(RedisConfig(url=f"redis://host/0?{name}={seconds}"))


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (redis.ConnectionError("Error 111"), RedisUnavailableError, "Redis cannot be reached: Error 111"),
        (ConnectionRefusedError(111, "no"), RedisUnavailableError, "Redis cannot be reached: [Errno 111] no"),
        (redis.TimeoutError("late"), RedisUnavailableError, "Redis did not answer in time: late"),
        (TimeoutError(), RedisUnavailableError, "Redis did not answer in time: TimeoutError"),
        (redis.AuthenticationError("WRONGPASS"), RedisUnavailableError, "Redis refused the login: WRONGPASS"),
        (redis.BusyLoadingError("loading"), RedisUnavailableError, "Redis is not ready: loading"),
        (
            redis.exceptions.OutOfMemoryError("command not allowed"),
            StoreError,
            "the server's memory is full (maxmemory): command not allowed",
        ),
        (
            redis.ResponseError("WRONGTYPE x"),
            StoreError,
            "a key has the wrong type: WRONGTYPE x",
        ),
        (redis.ResponseError("Command # 2 (LPUSH q secret) of pipeline caused error: NO"), StoreError, "NO"),
        (StoreError("ours"), StoreError, "ours"),
    ],
)
def test_translate(error: Exception, kind: type[PyworkersError], text: str) -> None:
    found = translate(error)
    assert (type(found), found.message) == (kind, text)


def test_only_errors_of_redis_and_the_system_are_translated() -> None:
    with pytest.raises(RedisUnavailableError) as caught, errors_translated():
        raise redis.ConnectionError("gone")
    assert isinstance(caught.value.__cause__, redis.ConnectionError)
    with pytest.raises(KeyError), errors_translated():
        raise KeyError("x")
