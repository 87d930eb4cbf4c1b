"""What an error of TLS says: the fault, the place and the fix, in one line, for both kinds of client."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyworkers import AsyncClient, Client
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import RedisUnavailableError
from pyworkers.store.transport.tls import Peer, Tls, explain
from tests.conftest import missing
from tests.helpers.certificates import Certificates
from tests.helpers.redises import OwnRedis


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[OwnRedis]:
    """A Redis that demands a certificate."""
    with OwnRedis(_binary(), folder / "redis", certificates=Certificates(folder / "valid")) as server:
        yield server.start()


def _binary() -> str:
    return shutil.which("redis-server") or missing("redis-server is not installed")


def error_of(config: RedisConfig, *, blocking: bool) -> str:
    """The error of an enqueue, without the address."""

    async def enqueue() -> None:
        async with AsyncClient.from_config(config) as client:
            await client.enqueue("q", "Add")

    with pytest.raises(RedisUnavailableError) as caught:
        if blocking:
            with Client.from_config(config) as client:
                client.enqueue("q", "Add")
        else:
            asyncio.run(enqueue())
    assert caught.value.code == "TLS"
    place = config.url.removeprefix("rediss://").partition("/")[0]
    return caught.value.message.removeprefix("Redis cannot be reached, because of TLS: ").replace(
        place, "HOST"
    )


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "asyncio"])
def test_the_files_of_a_client(folder: Path, server: OwnRedis, blocking: bool) -> None:
    good, other = server.certificates, Certificates(folder / "other")
    assert good is not None
    of_system = "the certificates of the system: set ca_file to the certificate of its authority"
    cases = {
        "the certificate of HOST is not signed by an authority in ca_file "
        f"{other.ca}: add the certificate of its authority": {"ca_file": str(other.ca)},
        f"the certificate of HOST is not signed by an authority in {of_system}": {"ca_file": ""},
        "HOST demands a certificate of the client: set cert_file and key_file": {
            "cert_file": "",
            "key_file": "",
        },
        f"HOST refuses cert_file {other.client}: have it signed by an authority in its tls-ca-cert-file": {
            "cert_file": str(other.client),
            "key_file": str(other.client_key),
        },
        f"ca_file {folder}/nope: No such file or directory": {"ca_file": f"{folder}/nope"},
        f"cert_file {good.client} and key_file {other.client_key} do not match": {
            "key_file": str(other.client_key)
        },
        f"ca_file {good.client_key} has no complete certificates in PEM": {"ca_file": str(good.client_key)},
    }
    config = RedisConfig(server.url, **good.of_clients)
    found = {error_of(replace(config, **fields), blocking=blocking) for fields in cases.values()}
    assert found == cases.keys()


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "asyncio"])
@pytest.mark.parametrize(
    ("names", "expired", "expected"),
    [
        (
            ["other.example"],
            False,
            "the certificate of HOST is not for 127.0.0.1: issue one that names it, "
            "or write in redis.url a name that the certificate has",
        ),
        (
            [],
            True,
            "the certificate of HOST, or of its authority, has expired: "
            "renew it, there (tls-cert-file) or here (ca_file)",
        ),
    ],
    ids=["name", "expired"],
)
def test_the_certificate_of_redis(
    tmp_path: Path, names: list[str], expired: bool, expected: str, blocking: bool
) -> None:
    files = Certificates(tmp_path / "files", *names, expired=expired)
    with OwnRedis(_binary(), tmp_path / "redis", certificates=files) as server:
        server.start()
        assert error_of(RedisConfig(server.url, **files.of_clients), blocking=blocking) == expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "h:1 refuses cert_file c.pem, which has expired: renew it"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "h:1 refuses cert_file c.pem: bad certificate"),
        (
            "TLSV1_ALERT_PROTOCOL_VERSION",
            "h:1 speaks other versions of TLS: compare its tls-protocols with ssl_min_version",
        ),
        (
            "WRONG_VERSION_NUMBER",
            "h:1 does not speak TLS: use redis+sentinel:// instead of rediss+sentinel://, "
            "or the port of Redis' tls-port",
        ),
        ("TLSV1_ALERT_INTERNAL_ERROR", "h:1: internal error"),
    ],
)
def test_an_alert(reason: str, expected: str) -> None:
    error = ssl.SSLError(1, "text")
    error.reason = reason
    assert explain(error, Peer("h", 1, "+sentinel", announced=True), Tls(certfile="c.pem")) == expected


def test_a_certificate_for_another_host_than_the_one_that_sentinels_give() -> None:
    error = ssl.SSLCertVerificationError(1, "text")
    error.verify_code, error.verify_message = 62, "text"
    found = explain(error, Peer("fd00::2", 1, "+sentinel", announced=True), Tls())
    assert found == (
        "the certificate of [fd00::2]:1 is not for fd00::2: issue one that names it, "
        "or have the sentinels announce a name that the certificate has"
    )
