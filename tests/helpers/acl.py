"""Users with the rights that ``pyworkers acl`` prints, and what they did. Read by tests alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

import redis

from pyworkers.store import acl
from pyworkers.store.acl import Role, Version
from tests.helpers.support import PATIENCE_S, wait_for

PASSWORD = "correct-horse"
# redis-py sends its name and version; a server and ``check`` ask for two things, and do without an answer.
OPTIONAL = frozenset({"client|setinfo", "client|tracking", "config|get"})
_CONTAINERS = ("client", "config", "acl")


def url_of(url: str, role: Role, namespace: str) -> str:
    """The URL of a new user with just the rights of a role; ``url`` is of a user with all rights."""
    user = f"{role.value}-{namespace.rstrip(':') or 'all'}"
    with redis.Redis.from_url(url) as connection:
        version = Version.SIX if is_six(connection) else Version.SEVEN
        words = acl.line(role, namespace, user, version).replace("CHANGE-ME", PASSWORD).split()
        connection.execute_command("ACL SETUSER", *words[2:])
    return urlsplit(url)._replace(netloc=f"{user}:{PASSWORD}@{urlsplit(url).netloc}").geturl()


def refused(connection: redis.Redis) -> list[tuple[str, str]]:
    """The refusals of Redis, to any user: the reason and the command or key."""
    optional = set(OPTIONAL)
    if is_six(connection):
        optional.update(command.partition("|")[0] for command in OPTIONAL)
    entries = [(str(entry["reason"]), str(entry["object"]).lower()) for entry in connection.acl_log()]
    return [entry for entry in entries if entry[1] not in optional]


def is_six(connection: redis.Redis) -> bool:
    """True for Redis 6.2, which logs and counts all of CLIENT as one command, and hides it from MONITOR."""
    version: str = connection.info("server")["redis_version"]
    return version.startswith("6.")


class Watch:
    """The commands of all users but the default one, those inside scripts included."""

    def __init__(self) -> None:
        self.commands: set[str] = set()

    def wait_for(self, rights: Iterable[str]) -> None:
        """Wait until all of these were sent."""
        wanted = set(rights)
        try:
            wait_for(lambda: self.commands >= wanted)
        except AssertionError:
            raise AssertionError(f"never sent: {sorted(wanted - self.commands)}") from None

    def note(self, command: str) -> None:
        words = command.lower().split()
        self.commands.add("|".join(words[:2]) if words[0] in _CONTAINERS else words[0])


@contextlib.contextmanager
def watching(url: str, own: redis.Redis) -> Iterator[Watch]:
    """Listen with MONITOR in a thread. ``own`` is the test's client, whose commands do not count."""
    watch = Watch()
    stop = threading.Event()

    def listen() -> None:
        with contextlib.suppress(redis.ConnectionError), monitor:
            started.set()
            for about in monitor.listen():
                if stop.is_set():
                    return
                address = f"{about['client_address']}:{about['client_port']}"
                if about["client_type"] == "lua" or address not in ours:
                    watch.note(about["command"])

    # A pipeline of the client has its own connection, which the next one uses again.
    with own.pipeline() as pipe:
        pipe.ping()
        pipe.execute()
    ours = {client["addr"] for client in own.client_list() if client["user"] == "default"}
    # redis-py's own limit would end the thread where nothing is sent for 5 s: while a server starts, slowly.
    monitor = redis.Redis.from_url(url, socket_timeout=None).monitor()
    started = threading.Event()
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert started.wait(PATIENCE_S)
    try:
        yield watch
    finally:
        stop.set()
        own.ping()
        thread.join(10)
