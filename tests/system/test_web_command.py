"""``pyworkers web``: where it listens, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import RemoteDisconnected
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from click.testing import CliRunner

from pyworkers import Client
from pyworkers.cli import main
from pyworkers.protocol.keys import Keys
from pyworkers.store.acl import Role
from pyworkers.web.navigation import NAVIGATION
from pyworkers.web.security.attempts import OF_NAME_AT_ADDRESS
from tests.helpers import warm
from tests.helpers.acl import url_of
from tests.helpers.support import PATIENCE_S, ROOT, free_port, stretched, wait_for
from tests.web.openid import slow_provider
from tests.web.programs import Program, Reply
from tests.web.test_users import line
from tests.web.visitor import Visitor

NOWHERE = "redis://127.0.0.1:1/0"
PROVIDER = """
[web.oidc]
issuer = "https://id.example.com"
client_id = "pyworkers"
groups = {platform = "operate"}
"""
WEB = ("pyworkers.cli", "pyworkers.cli.web.serve", "pyworkers.web.serving", "uvicorn.protocols.http.h11_impl")
"""What the command imports in any case."""


class Command:
    """``pyworkers web`` with these words, and its log."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        ours = ("PYWORKERS_", "REDIS_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        env |= {"PYTHONPATH": str(ROOT), **environment}
        self._log = folder / "log"
        command = ["-m", "pyworkers", "web", "--log-format", "json", *words]
        with self._log.open("w") as log:
            fd = log.fileno()
            self.process = warm.start(command, cwd=folder, env=env, stdout=fd, stderr=fd, imports=WEB)

    def log(self) -> str:
        return self._log.read_text()

    def events(self) -> Mapping[str, Mapping[str, object]]:
        """The last line of each event."""
        lines = [json.loads(text) for text in self.log().splitlines() if text.startswith("{")]
        return {str(found["event"]): found for found in lines}

    def url(self) -> str:
        return str(self.events()["web.listening"]["url"])

    def wait_until_it_listens(self) -> None:
        wait_for(lambda: "web.listening" in self.log() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextmanager
def commanded(folder: Path, *words: str, **environment: str) -> Iterator[Command]:
    command = Command(folder, *words, **environment)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.wait()


def refused(folder: Path, *words: str) -> str:
    """What it prints when it ends with 2 at once."""
    with commanded(folder, "--url", NOWHERE, *words) as command:
        assert command.process.wait(PATIENCE_S) == 2, command.log()
        return command.log()


def asked(connection: socket.socket, request: str) -> bytes:
    """The answer up to the end of its headers, and what came with it."""
    connection.sendall(request.encode())
    found = b""
    while b"\r\n\r\n" not in found:
        part = connection.recv(65536)
        assert part, found
        found += part
    return found


def test_it_reads_nothing_of_the_package_once_it_listens(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    package = Path(shutil.copytree(ROOT / "pyworkers", tmp_path / "site/pyworkers"))
    words = ["--bind", f"127.0.0.1:{free_port()}", "--no-token", "--log-format", "json"]
    with (tmp_path / "log").open("w+") as log, subprocess.Popen(
        [sys.executable, "-m", "pyworkers", "web", *words, "--url", one_redis_url, "--namespace", namespace],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(package.parent)}, stdout=log, stderr=log,
    ) as process:  # fmt: skip
        try:
            wait_for(lambda: "web.listening" in (tmp_path / "log").read_text() or process.poll() is not None)
            for path in package.rglob("*"):
                if path.suffix in (".lua", ".html", ".css", ".js"):
                    path.write_text("of another release")
            visitor = Visitor(f"http://{words[1]}/")
            addresses = [*(path for path, _ in NAVIGATION), "find?q=nothing", "api/stats"]
            addresses += re.findall(r"static/[\w.]+", visitor.get().html)
            assert [path for path in addresses if "of another release" in visitor.get(path).html] == []
            assert len(addresses) > len(NAVIGATION) + 3
        finally:
            process.kill()


# Where it listens


@pytest.mark.parametrize("bind", ["0.0.0.0", "[::]", "192.0.2.1"])
def test_it_refuses_to_listen_for_other_machines_without_users(tmp_path: Path, bind: str) -> None:
    text = refused(tmp_path, "--bind", f"{bind}:{free_port()}")
    assert f"web.bind: refuses to listen on {bind}" in text
    assert "pyworkers web-user NAME ROLE >> users" in text and "--auth users" in text


def test_it_listens_for_other_machines_with_users(tmp_path: Path, one_redis_url: str, namespace: str) -> None:
    (tmp_path / "users").write_text(line("ann"))
    port = free_port()
    words = ["--bind", f"0.0.0.0:{port}", "--auth", "users", "--url", one_redis_url, "--namespace", namespace]
    with commanded(tmp_path, *words) as command:
        command.wait_until_it_listens()
        visitor = Visitor(f"http://127.0.0.1:{port}/")
        assert visitor.ask("queues").status == 401
        assert visitor.ask("queues", Authorization="Bearer secret").status == 200
        assert visitor.ask("queues", Host="evil.example").status == 400


def test_it_listens_for_other_machines_with_a_provider(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    port = free_port()
    (tmp_path / "workers.toml").write_text(PROVIDER)
    words = ["--config", "workers.toml", "--bind", f"0.0.0.0:{port}"]
    assert "web.oidc.client_secret: is missing" in refused(tmp_path, *words)
    words += ["--url", one_redis_url, "--namespace", namespace]
    with commanded(tmp_path, *words, PYWORKERS_WEB__OIDC__CLIENT_SECRET="hunter2") as command:
        command.wait_until_it_listens()
        assert "https://id.example.com" in command.log() and "hunter2" not in command.log()
        answer = Visitor(f"http://127.0.0.1:{port}/").ask("queues")
        assert (answer.status, "Log in with id.example.com" in answer.text) == (401, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--bind", "7440"], "web.bind: must be empty or host:port"),
        (["--bind", ""], "'--bind': is empty: give it a value, or leave it out"),
        (["--bind", "nonesuch.invalid:7440"], "cannot listen on nonesuch.invalid:7440: "),
        (["--bind", "unix:nowhere/socket"], "cannot listen on unix:nowhere/socket: No such file"),
        (["--bind", "unix:."], "cannot listen on unix:.: File exists"),
        (["--auth", "nonesuch"], "nonesuch: cannot be read: No such file"),
        (["--auth", "users"], "users:1: a line has three parts"),
        (["--config", "nonesuch.toml"], "nonesuch.toml: no such file"),
    ],
)
def test_invalid_words_are_errors_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], text: str
) -> None:
    (tmp_path / "users").write_text("broken")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["web", "--url", NOWHERE, *words], catch_exceptions=False)
    assert done.exit_code == 2 and text in done.output, done.output


def test_an_address_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        bind = f"127.0.0.1:{other.getsockname()[1]}"
        assert f"cannot listen on {bind}: Address already in use" in refused(tmp_path, "--bind", bind)


def test_a_unix_socket_is_of_its_user_and_replaces_one_that_was_left(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    words = ["--bind", "unix:socket", "--url", one_redis_url, "--namespace", namespace]
    with commanded(tmp_path, *words) as command:
        command.wait_until_it_listens()
        path_of_url, _, opened = command.url().partition(" ")
        assert path_of_url == "unix:socket"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            refusal = asked(connection, "GET /queues HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            request = f"GET /api/queues?{urlsplit(opened).query} HTTP/1.1\r\nHost: localhost\r\n"
            answer = asked(connection, f"{request}Connection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        assert refusal.startswith(b"HTTP/1.1 401")
        assert "cannot listen on unix:socket: Address already in use" in refused(
            tmp_path, "--bind", "unix:socket"
        )
        assert command.end() == 0
    assert not path.exists()


def test_the_section_web_of_the_configuration_counts(tmp_path: Path, one_redis_url: str) -> None:
    port = free_port()
    (tmp_path / "workers.toml").write_text(
        f'[redis]\nurl = "{one_redis_url}"\n[web]\nbind = "localhost:{port}"\nhosts = ["jobs.example.com"]\n'
        'prefix = "/jobs"\n'
    )
    with commanded(tmp_path, "--config", "workers.toml", "--no-token") as command:
        command.wait_until_it_listens()
        visitor = Visitor(f"http://127.0.0.1:{port}/")
        for path in ("queues", "jobs/queues"):
            answer = visitor.ask(path, Host="jobs.example.com")
            assert answer.status == 200 and 'href="/jobs/queues"' in answer.page.html
        assert command.url() == f"http://localhost:{port}/jobs/"


# Without users


def test_the_printed_url_opens_the_dashboard_until_it_ends(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    words = ["--bind", f"127.0.0.1:{free_port()}", "--url", one_redis_url, "--namespace", namespace]
    found = []
    for _ in range(2):
        with commanded(tmp_path, *words) as command:
            command.wait_until_it_listens()
            found.append(command.url())
            visitor = Visitor(found[-1].partition("?")[0])
            assert visitor.ask("queues").status == 401
            assert visitor.get(f"?{urlsplit(found[-1]).query}").url == visitor.root
            assert visitor.ask("queues").status == 200
            assert Visitor(visitor.root).ask(f"queues?{urlsplit(found[0]).query}").status == (
                200 if len(found) == 1 else 401
            )
            command.end()
    assert found[0] != found[1]


# Behind a proxy


def test_a_proxy_on_this_machine_says_who_asks(tmp_path: Path, one_redis_url: str, namespace: str) -> None:
    port = free_port()
    words = ["--bind", f"127.0.0.1:{port}", "--url", one_redis_url, "--namespace", namespace]
    with commanded(tmp_path, *words, "--no-token") as command:
        command.wait_until_it_listens()
        visitor = Visitor(f"http://127.0.0.1:{port}/")
        assert visitor.ask("queues").status == 200
        assert visitor.ask("queues", X_Forwarded_For="192.0.2.7").status == 403
        assert visitor.ask("queues", X_Forwarded_For="127.0.0.1, 192.0.2.7").status == 403


def test_behind_a_unix_socket_the_address_is_the_one_that_the_proxy_has_written(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    (tmp_path / "users").write_text(line("ann"))
    words = ["--bind", "unix:socket", "--auth", "users", "--url", one_redis_url, "--namespace", namespace]
    with commanded(tmp_path, *words) as command:
        command.wait_until_it_listens()
        statuses = []
        for number in range(2 * OF_NAME_AT_ADDRESS.burst):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(tmp_path / "socket"))
                answer = asked(
                    connection,
                    "GET /queues HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                    f"X-Forwarded-For: 10.0.0.{number}, 192.0.2.7\r\nAuthorization: Bearer wrong\r\n\r\n",
                )
            statuses.append(int(answer.split(b" ")[1]))
    assert set(statuses) == {401, 429}


def test_behind_https_the_cookies_are_secure(tmp_path: Path, one_redis_url: str, namespace: str) -> None:
    (tmp_path / "users").write_text(line("ann"))
    port = free_port()
    words = [
        "--bind",
        f"127.0.0.1:{port}",
        "--auth",
        "users",
        "--url",
        one_redis_url,
        "--namespace",
        namespace,
    ]
    with commanded(tmp_path, *words) as command:
        command.wait_until_it_listens()
        answer = Visitor(f"http://127.0.0.1:{port}/").ask("queues", X_Forwarded_Proto="https")
        assert "; Secure" in answer.headers["set-cookie"]


# Clients that hang


def test_clients_that_hang_are_closed_and_keep_no_other_out(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    (tmp_path / "users").write_text(line("ann"))
    port = free_port()
    words = ["--bind", f"127.0.0.1:{port}", "--auth", "users", "--url", one_redis_url]
    with commanded(tmp_path, *words, "--namespace", namespace) as command, ExitStack() as stack:
        command.wait_until_it_listens()
        visitor = Visitor(f"http://127.0.0.1:{port}/")
        assert visitor.ask("queues", Authorization="Bearer secret").status == 200
        connect = partial(socket.create_connection, ("127.0.0.1", port), PATIENCE_S)
        viewer = stack.enter_context(connect())
        host = f"Host: 127.0.0.1:{port}\r\n"
        assert b" 200 " in asked(
            viewer, f"GET /events HTTP/1.1\r\n{host}Authorization: Bearer secret\r\n\r\n"
        )
        before = memory_kb(command.process.pid)
        head = f"POST /login HTTP/1.1\r\n{host}Content-Length: 16000\r\n"
        form = "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
        beginnings = ["", "GET /que", head, f"{head}{form}{'x' * 15_000}"]
        hanging = []
        for number in range(1300):
            hanging.append(stack.enter_context(connect()))
            hanging[-1].sendall(beginnings[number % 4].encode())
        # The oldest of them made room.
        assert visitor.ask("queues", Authorization="Bearer secret").status == 200
        assert memory_kb(command.process.pid) - before < 60_000
        # And ten seconds later, the others are closed as well; a viewer stays.
        wait_for(lambda: connections_of(command.process.pid) < 20, message="they are closed")
        viewer.settimeout(PATIENCE_S)
        assert viewer.recv(10)


def memory_kb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def connections_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


# Redis away


def test_it_starts_without_redis_and_says_so(tmp_path: Path) -> None:
    port = free_port()
    words = ["--bind", f"127.0.0.1:{port}", "--url", "redis://:hidden@127.0.0.1:1/0", "--no-token"]
    with commanded(tmp_path, *words) as command:
        command.wait_until_it_listens()
        wait_for(lambda: "redis.down" in command.log())
        assert "hidden" not in command.log()
        answer = Visitor(f"http://127.0.0.1:{port}/").ask("queues")
        assert answer.status == 503
        assert "Redis does not answer" in answer.text
        assert command.end() == 0


def test_a_user_who_only_reads_is_no_outage(tmp_path: Path, one_redis_url: str, namespace: str) -> None:
    url = url_of(one_redis_url, Role.READ_ONLY, namespace)
    words = ["--bind", f"127.0.0.1:{free_port()}", "--url", url, "--namespace", namespace, "--no-token"]
    with commanded(tmp_path, *words) as command:
        command.wait_until_it_listens()
        assert Visitor(command.url()).get("queues").text
        wait_for(lambda: "web.secret_unshared" in command.log())
        assert command.end() == 0
        # On a busy machine, Redis may be late.
        assert "permit" not in str(command.events().get("redis.down"))


# The end


def test_it_ends_while_a_login_waits_for_a_slow_provider(tmp_path: Path, one_redis_url: str) -> None:
    port = free_port()
    with slow_provider() as (issuer, asked), socket.socket() as connection:
        (tmp_path / "workers.toml").write_text(PROVIDER.replace("https://id.example.com", issuer))
        words = ["--config", "workers.toml", "--bind", f"127.0.0.1:{port}", "--url", one_redis_url]
        with commanded(tmp_path, *words, PYWORKERS_WEB__OIDC__CLIENT_SECRET="hunter2") as command:
            command.wait_until_it_listens()
            connection.connect(("127.0.0.1", port))
            connection.sendall(f"GET /login/oidc HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert asked.wait(PATIENCE_S)
            assert command.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_viewers_or_not(
    tmp_path: Path, one_redis_url: str, namespace: str, number: int
) -> None:
    port = free_port()
    words = ["--bind", f"127.0.0.1:{port}", "--url", one_redis_url, "--namespace", namespace]
    with commanded(tmp_path, *words, "--no-token") as command:
        command.wait_until_it_listens()
        viewers = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
        host = f"Host: 127.0.0.1:{port}\r\n"
        with Client(one_redis_url, namespace=namespace) as client:
            jid = client.enqueue("mail", "Send", [1], track=60)
        viewers[3].sendall(f"GET /api/jobs/{jid}?wait=30 HTTP/1.1\r\n{host}\r\n".encode())
        assert b" 200 " in asked(viewers[0], f"GET /events HTTP/1.1\r\n{host}\r\n")
        assert b" 200 " in asked(viewers[1], f"GET /queues HTTP/1.1\r\n{host}\r\n")
        viewers[2].sendall(b"GET /que")
        command.process.send_signal(number)
        assert command.process.wait(stretched(3.0)) == 0
        # A program that waits for the end of a job gets its state.
        answer = viewers[3].makefile().read()
        assert answer.startswith("HTTP/1.1 200 ") and '"state":"waiting"' in answer
        for viewer in viewers:
            viewer.close()
        assert "rror" not in command.log()


@pytest.mark.parametrize("missing", ["jinja2", "markupsafe"])
def test_without_the_extra_it_names_it_and_shows_its_help(tmp_path: Path, missing: str) -> None:
    (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError('gone', name={missing!r})")
    command = [
        sys.executable,
        "-c",
        "import sys; sys.path.insert(0, '.'); from pyworkers.cli import main; main()",
    ]
    for words in (["web"], ["web-user", "ann", "read"]):
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 2
        assert (
            done.stderr == "Error: the dashboard needs the extra web: pip install 'pyworkers-server[web]'\n"
        )
        helped = subprocess.run(
            [*command, words[0], "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert helped.returncode == 0
        assert "Example: pyworkers web" in helped.stdout


@pytest.mark.fault("Q4")
def test_a_request_whose_dashboard_is_killed_is_sent_again(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    (tmp_path / "users").write_text(line("program", "enqueue"))
    words = ["--bind", f"127.0.0.1:{free_port()}", "--auth", "users"]
    words += ["--url", one_redis_url, "--namespace", namespace]
    body = {"queue": "mail", "class": "send", "args": [7]}

    def ask(command: Command) -> Reply:
        program = Program(command.url(), Authorization="Bearer program:secret")
        return program.ask("POST", "/jobs", body, Idempotency_Key="k")

    with commanded(tmp_path, *words, PYWORKERS_FAILPOINTS="request_pushed=kill") as command:
        command.wait_until_it_listens()
        with pytest.raises((ConnectionError, RemoteDisconnected)):
            ask(command)
        assert command.process.wait(PATIENCE_S) == -signal.SIGKILL
    with commanded(tmp_path, *words) as command:
        command.wait_until_it_listens()
        reply = ask(command)
    assert (reply.status, reply.headers["idempotent-replayed"]) == (201, "true")
    with redis.Redis.from_url(one_redis_url) as db:
        [job] = db.lrange(Keys(namespace).queue("mail"), 0, -1)
    assert json.loads(job)["jid"] == reply.value["jid"]
