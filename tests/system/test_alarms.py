"""Alarms: a webhook, Slack and mail hear of each by one id until it is over; what hangs delays nothing."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from pyworkers.alarms import incident as incident_module
from pyworkers.alarms import sending
from pyworkers.alarms.conditions import look, wrong
from pyworkers.alarms.incident import Incident, advance
from pyworkers.alarms.sending import AlarmMessage, SendingError, send
from pyworkers.alarms.watching import Watcher
from pyworkers.api.cronjob import CronJob
from pyworkers.cli import main
from pyworkers.config.fields import AlarmConfig, AlarmsConfig, RedisConfig
from pyworkers.config.loading import load
from pyworkers.errors import ConfigError, StoreError
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.limits import LimitStats
from pyworkers.store.admin import Admin
from pyworkers.store.alarms import silenced_as
from tests.helpers.records import raw_job, register
from tests.helpers.support import free_port, running_server, wait_for


class Endpoint:
    """An HTTP server on loopback, which keeps what it gets, and answers ``status``."""

    def __init__(self) -> None:
        self.status = 200
        self.hangs = threading.Event()
        self.hangs.set()
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.got.append((self.path, dict(self.headers), body))
                endpoint.hangs.wait(60)
                self.send_response(endpoint.status)
                self.send_header("Location", f"{endpoint.url}/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Not on stderr."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[Endpoint]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.hangs.set()
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What was posted, as JSON."""
        return [json.loads(body) for _, _, body in self.got]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint().running() as running:
        yield running


@pytest.fixture
def configured(one_redis_url: str, namespace: str, tmp_path: Path, endpoint: Endpoint) -> Callable[..., Path]:
    """Write a configuration with these alarms and settings."""

    def write(alarms: str, settings: str = "") -> Path:
        path = tmp_path / "workers.toml"
        path.write_text(
            f'[redis]\nurl = "{one_redis_url}"\nnamespace = "{namespace}"\n'
            f'[alarms]\nprivate = ["127.0.0.0/8"]\n{settings}\n' + alarms.replace("URL", endpoint.url)
        )
        return path

    return write


@pytest.fixture
def server(one_redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(one_redis_url) as connection:
        yield connection


LATE = '[[alarm]]\nname = "late"\nwhen = "latency"\nmatch = "m*"\nwebhook = "URL/hook?a=1"\n'


def test_an_alarm_is_told_once_with_a_signature_and_ends_by_the_same_id(
    configured: Callable[..., Path], endpoint: Endpoint, server: redis.Redis, keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    config = load(configured(LATE, 'secret = "s3cret"'), env={})
    watcher = Watcher(config)
    server.sadd(keys.queues, "mail", "other")
    for queue in ("mail", "other"):
        server.lpush(keys.queue(queue), raw_job("late", queue=queue, enqueued_at=time.time() - 1000))
    assert watcher.look()
    # Another process does not watch, and nothing is told twice.
    assert not Watcher(config).look()
    assert watcher.look()
    [(path, headers, body)] = endpoint.got
    assert path == "/hook?a=1"
    at, digest = (part.partition("=")[2] for part in headers["Pyworkers-Signature"].split(","))
    assert digest == hmac.new(b"s3cret", f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    begun = endpoint.bodies[0]
    assert (begun["alarm"], begun["state"], begun["when"]) == ("late", "begun", "latency")
    assert begun["message"].startswith("mail: the next job has waited for 16m")
    server.delete(keys.queue("mail"))
    assert watcher.look()
    # It is not over while it may come back at once.
    assert len(endpoint.got) == 1
    monkeypatch.setattr(incident_module, "_CALM_S", 0.0)
    assert watcher.look()
    ended = endpoint.bodies[-1]
    assert (ended["id"], ended["state"], len(endpoint.got)) == (begun["id"], "ended", 2)
    assert server.hgetall(keys.alarms) == {}
    assert [json.loads(text)["state"] for text in server.lrange(keys.alarms_sent, 0, -1)] == [
        "ended",
        "begun",
    ]


def test_a_redis_that_is_away_neither_blinds_the_others_nor_ends_an_alarm(
    configured: Callable[..., Path], endpoint: Endpoint, server: redis.Redis, keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(incident_module, "_CALM_S", 0.0)
    archive = f'[redis.archive]\nurl = "redis://127.0.0.1:{free_port()}/0"\n'
    watcher = Watcher(load(configured(LATE, archive), env={}))
    server.sadd(keys.queues, "mail")
    server.lpush(keys.queue("mail"), raw_job("late", queue="mail", enqueued_at=time.time() - 1000))
    with capture_logs() as lines:
        assert watcher.look()
    assert [(line["event"], line["redis"]) for line in lines if "redis" in line] == [
        ("alarms.blind", "archive")
    ]
    assert [body["state"] for body in endpoint.bodies] == ["begun"]
    # The archive may have such a queue, too.
    server.delete(keys.queue("mail"))
    assert watcher.look() and watcher.look()
    assert [body["state"] for body in endpoint.bodies] == ["begun"]
    there = Watcher(load(configured(LATE), env={}))
    server.delete(keys.alarming)
    assert there.look() and there.look()
    assert [body["state"] for body in endpoint.bodies] == ["begun", "ended"]


def test_a_key_without_an_end_and_a_fault_do_not_end_the_watch(
    configured: Callable[..., Path], server: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = Watcher(load(configured(DEAD), env={}))
    server.set(keys.alarming, json.dumps({"holder": "another"}), ex=60)
    assert not watcher.look()
    server.persist(keys.alarming)
    assert watcher.look()
    assert server.ttl(keys.alarming) > 0
    stop, looks = threading.Event(), []

    def failing() -> bool:
        looks.append(1)
        if len(looks) == 2:
            stop.set()
        raise RuntimeError("a fault")

    monkeypatch.setattr(watcher, "look", failing)
    monkeypatch.setattr(stop, "wait", lambda _s: stop.is_set())
    watcher.run(stop)
    assert len(looks) == 2


def test_what_was_not_taken_is_sent_again_also_by_another_process(
    configured: Callable[..., Path], endpoint: Endpoint, server: redis.Redis, keys: Keys
) -> None:
    config = load(configured(DEAD), env={})
    server.zadd(keys.dead, {raw_job("dead"): time.time()})
    endpoint.status = 500
    assert Watcher(config).look()
    stored = Incident.load("dead", server.hget(keys.alarms, "dead"))  # type: ignore[arg-type]
    assert stored is not None
    assert (stored.pending, stored.tries) == ((("webhook", "begun"),), 1)
    assert stored.error == "webhook: 127.0.0.1 answers 500"
    assert stored.next_at > time.time()
    # The first process is gone, and its time is over.
    server.delete(keys.alarming)
    server.hset(keys.alarms, "dead", stored.dump().replace(f"{stored.next_at}", "0"))
    endpoint.status = 200
    assert Watcher(config).look()
    assert [body["id"] for body in endpoint.bodies] == [stored.id] * 2
    told = Incident.load("dead", server.hget(keys.alarms, "dead"))  # type: ignore[arg-type]
    assert told is not None
    assert told.pending == ()


DEAD = '[[alarm]]\nname = "dead"\nwhen = "dead"\nwebhook = "URL"\n'


@pytest.mark.parametrize(
    "change",
    [{"name": "other"}, {"tries": 1e9}, {"ended": "x"}, {"first_try": []}, {"since": 1e300}, {"text": 3}],
)
def test_what_another_program_wrote_is_forgotten(
    configured: Callable[..., Path],
    endpoint: Endpoint,
    server: redis.Redis,
    keys: Keys,
    change: dict[str, Any],
) -> None:
    stored = advance(None, "dead", "text", ["webhook"], time.time())
    assert stored is not None
    server.hset(keys.alarms, "dead", json.dumps({**json.loads(stored.dump()), **change}))
    assert Watcher(load(configured(DEAD), env={})).look()
    assert server.hgetall(keys.alarms) == {}
    assert endpoint.got == []


def test_a_silenced_alarm_is_told_when_the_silence_ends(
    configured: Callable[..., Path], endpoint: Endpoint, server: redis.Redis, keys: Keys
) -> None:
    config = load(configured(DEAD), env={})
    watcher = Watcher(config)
    server.zadd(keys.dead, {raw_job("dead"): time.time()})
    server.set(keys.web_muted(silenced_as("dead")), 1)
    watcher.look()
    assert endpoint.got == []
    server.delete(keys.web_muted(silenced_as("dead")))
    watcher.look()
    assert len(endpoint.got) == 1


def test_a_target_that_hangs_delays_no_other_one(
    configured: Callable[..., Path],
    endpoint: Endpoint,
    server: redis.Redis,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "LONGEST_S", 1.0)
    server.zadd(keys.dead, {raw_job("dead"): time.time()})
    endpoint.hangs.clear()
    with Endpoint().running() as other:
        watcher = Watcher(load(configured(DEAD + f'slack = "{other.url}/services/T"\n'), env={}))
        watcher.look()
        assert [body["text"] for body in other.bodies] == [
            "[ALARM] dead: 1 job died in the last five minutes"
        ]
    stored = Incident.load("dead", server.hget(keys.alarms, "dead"))  # type: ignore[arg-type]
    assert stored is not None
    assert stored.pending == (("webhook", "begun"),)


MESSAGE = AlarmMessage("1", "late", "begun", "latency", "mail\n.\nRCPT TO:<x@y>", 0.0)


@pytest.mark.parametrize(
    ("status", "private", "error"),
    [
        (302, ("127.0.0.0/8",), "127.0.0.1 redirects, which are not followed"),
        (500, ("127.0.0.0/8",), "127.0.0.1 answers 500"),
        (200, (), "127.0.0.1 has the address 127.0.0.1, which is not public: add its network to private"),
        (200, ("10.0.0.0/8",), "127.0.0.1 has the address 127.0.0.1, which is not public"),
    ],
)
def test_an_address_that_is_not_allowed_and_an_answer_that_is_no_yes_are_errors(
    endpoint: Endpoint, status: int, private: tuple[str, ...], error: str
) -> None:
    endpoint.status = status
    alarm = AlarmConfig(name="a", when="dead", webhook=endpoint.url)
    with pytest.raises(SendingError) as caught:
        send("webhook", alarm, AlarmsConfig(private=private), MESSAGE)
    assert str(caught.value).startswith(error)
    assert all(path != "/elsewhere" for path, _, _ in endpoint.got)


@pytest.mark.parametrize(
    "host",
    ["[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "169.254.169.254", "0.0.0.0", "localhost", "0x7f.1"],
)
def test_no_spelling_of_an_inner_address_is_reached(host: str) -> None:
    alarm = AlarmConfig(name="a", when="dead", webhook=f"http://{host}:1/")
    with pytest.raises(SendingError, match="which is not public"):
        send("webhook", alarm, AlarmsConfig(), MESSAGE)


def test_an_error_has_no_address_of_a_target() -> None:
    alarm = AlarmConfig(name="a", when="dead", slack="http://127.0.0.1:1/services/secret x")
    with pytest.raises(SendingError) as caught:
        send("slack", alarm, AlarmsConfig(private=("127.0.0.1/32",)), MESSAGE)
    assert "secret" not in str(caught.value)


class Mails(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs; the server has ``mails``."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        mail, in_data = b"", False
        for line in self.rfile:
            if in_data:
                if line == b".\r\n":
                    in_data = False
                    self.server.mails.append(mail)  # type: ignore[attr-defined]
                    self.wfile.write(b"250 taken\r\n")
                else:
                    mail += line
            elif line.upper().startswith(b"DATA"):
                in_data, mail = True, b""
                self.wfile.write(b"354 go on\r\n")
            else:
                self.wfile.write(b"221 bye\r\n" if line.upper().startswith(b"QUIT") else b"250 yes\r\n")


@pytest.fixture
def mails() -> Iterator[tuple[int, list[bytes]]]:
    """The port of a mail server, and what it gets."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mails) as listener:
        listener.mails = []  # type: ignore[attr-defined]
        listener.daemon_threads = True
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        yield listener.server_address[1], listener.mails  # type: ignore[attr-defined]
        listener.shutdown()
        thread.join()


def test_a_mail_has_the_text_and_no_header_of_it(mails: tuple[int, list[bytes]]) -> None:
    port, got = mails
    settings = AlarmsConfig(
        smtp=f"smtp://127.0.0.1:{port}", sender="jobs@example.com", private=("127.0.0.1/32",)
    )
    alarm = AlarmConfig(name="late", when="latency", mail="ops@example.com")
    send("mail", alarm, settings, MESSAGE)
    [mail] = got
    assert b"\r\nTo: ops@example.com\r\n" in mail
    assert b"Subject: [ALARM] late: mail\\n.\\nRCPT TO:<x@y>\r\n" in mail
    assert b"\r\nMessage-ID: <1@pyworkers>\r\n" in mail


def test_a_password_is_not_sent_in_plain_text(mails: tuple[int, list[bytes]]) -> None:
    settings = AlarmsConfig(
        smtp=f"smtp://me:secret@127.0.0.1:{mails[0]}", sender="a@b.example", private=("127.0.0.1/32",)
    )
    with pytest.raises(SendingError, match="no STARTTLS"):
        send("mail", AlarmConfig(name="a", when="dead", mail="o@x.example"), settings, MESSAGE)


def test_messages_of_a_target_keep_their_order_and_are_given_up_after_an_hour() -> None:
    begun = advance(None, "a", "text", ["webhook", "mail"], 100.0)
    assert begun is not None
    assert advance(None, "a", None, ["mail"], 100.0) is None
    assert advance(begun, "a", "worse", ["mail"], 110.0).text == "worse"  # type: ignore[union-attr]
    ended = advance(begun, "a", None, ["webhook", "mail"], 200.0)
    assert ended is not None
    assert ended.due(200.0) == [("mail", "begun"), ("webhook", "begun")]
    tried = ended.told([("mail", "begun")], 200.0)
    assert tried.due(201.0) == []
    assert tried.due(tried.next_at) == [("mail", "ended"), ("webhook", "begun")]
    # A clock that is put forward by an hour gives up nothing.
    assert not tried.hopeless(4000.0)
    for _ in range(10):
        tried = tried.told([], tried.next_at, "webhook: refused")
    assert not tried.hopeless(3000.0)
    assert tried.hopeless(4000.0)
    assert tried.error == "webhook: refused"
    assert tried.told(tried.due(tried.next_at), tried.next_at).error == ""
    assert Incident.load("a", tried.dump().encode()) == tried
    # The next message has all its tries.
    later = replace(tried.without_messages(), pending=(("mail", "ended"),)).told([], 5000.0)
    assert (later.tries, later.next_at, later.hopeless(9000.0)) == (1, 5010.0, False)


def test_a_full_redis_blinds_no_alarm(tmp_path: Path, one_binary: str, endpoint: Endpoint) -> None:
    with running_server(one_binary, tmp_path, free_port()) as url, redis.Redis.from_url(url) as server:
        path = tmp_path / "workers.toml"
        alarms = '[alarms]\nprivate = ["127.0.0.0/8"]\n' + DEAD.replace("URL", endpoint.url)
        path.write_text(f'[redis]\nurl = "{url}"\n{alarms}')
        server.zadd("dead", {raw_job("dead"): time.time()})
        server.config_set("maxmemory", 1)
        watcher = Watcher(load(path, env={}))
        assert watcher.look() and watcher.look()
        assert [body["state"] for body in endpoint.bodies] == ["begun"]
        assert server.llen(Keys().alarms_sent) == 1


def test_a_clock_that_is_put_back_delays_no_message() -> None:
    begun = advance(None, "a", "text", ["mail"], 1e9)
    assert begun is not None
    tried = begun.told([], 1e9)
    assert tried.due(1e9 + 1) == []
    assert tried.due(1e9 - 3600) == [("mail", "begun")]
    calm = advance(begun, "a", None, ["mail"], 1e9 - 3600)
    assert calm is not None
    ended = advance(calm, "a", None, ["mail"], 1e9 - 3500)
    assert ended is not None
    assert ended.ended == 1e9 - 3500


def test_a_list_of_sent_messages_of_another_type_sends_none_again(
    configured: Callable[..., Path], endpoint: Endpoint, server: redis.Redis, keys: Keys
) -> None:
    watcher = Watcher(load(configured(DEAD + DEAD.replace('"dead"', '"deaths"', 1)), env={}))
    server.zadd(keys.dead, {raw_job("dead"): time.time()})
    server.set(keys.alarms_sent, "x")
    with pytest.raises(StoreError):
        watcher.look()
    assert watcher.look()
    assert sorted(body["alarm"] for body in endpoint.bodies) == ["dead", "deaths"]


@pytest.mark.parametrize(
    ("alarm", "error"),
    [
        ('when = "dead"', "alarm.a.webhook: is missing"),
        ('when = "dead"\nmatch = "x"\nmail = "a@b.c"', "alarm.a.match: does not apply to dead jobs"),
        ('when = "cron"\nover = 1\nmail = "a@b.c"', "alarm.a.over: does not apply to cron"),
        ('when = "dead"\nwebhook = "ftp://x"', "alarm.a.webhook: must be a URL"),
        ('when = "dead"\nwebhook = "http://"', "alarm.a.webhook: must be a URL"),
        ('when = "dead"\nmail = "a b@c"', "alarm.a.mail: must be an address"),
        ('when = "never"\nmail = "a@b.c"', "alarm.a.when: must be one of latency, dead, silent, cron, limit"),
    ],
)
def test_a_bad_alarm_is_named(configured: Callable[..., Path], alarm: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(configured(f'[[alarm]]\nname = "a"\n{alarm}\n'), env={})
    assert error in str(caught.value)


def test_the_command_tests_a_target_and_looks_once(
    configured: Callable[..., Path], endpoint: Endpoint, server: redis.Redis, keys: Keys,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = configured(DEAD)
    main(["alarms", "--test", "dead", "--config", str(path)], standalone_mode=False)
    assert capsys.readouterr().out == "webhook: sent\n"
    assert endpoint.bodies[0]["state"] == "test"
    endpoint.status = 404
    with pytest.raises(SystemExit) as ended:
        main(["alarms", "--test", "dead", "--config", str(path)], standalone_mode=False)
    assert ended.value.code == 1
    assert capsys.readouterr().out == "webhook: 127.0.0.1 answers 404\n"
    endpoint.status = 200
    server.zadd(keys.dead, {raw_job("dead"): time.time()})
    main(["alarms", "--once", "--config", str(path)], standalone_mode=False)
    assert endpoint.bodies[-1]["state"] == "begun"


def test_it_watches_until_its_signal(
    configured: Callable[..., Path], endpoint: Endpoint, server: redis.Redis, keys: Keys
) -> None:
    stop = threading.Event()
    watcher = Watcher(load(configured(DEAD, "interval = 1"), env={}))
    thread = threading.Thread(target=watcher.run, args=(stop,))
    thread.start()
    server.zadd(keys.dead, {raw_job("dead"): time.time()})
    wait_for(lambda: endpoint.got)
    stop.set()
    thread.join()


def test_each_kind_of_reason_is_seen(
    one_redis_url: str, namespace: str, server: redis.Redis, keys: Keys
) -> None:
    now = time.time()
    register(server, keys, "web:1:a", {"queues": ["q"], "concurrency": 1}, beat=now - 600, busy=0)
    limit = AlarmConfig(name="a", when="limit", match="queue/*", webhook="x")
    config = RedisConfig(url=one_redis_url, namespace=namespace)
    silent = AlarmConfig(name="b", when="silent", webhook="x")
    cron = AlarmConfig(name="c", when="cron", webhook="x")
    server.zadd(keys.dead, {raw_job("dead"): now - 299, raw_job("before"): now - 301})
    dead = AlarmConfig(name="d", when="dead", over=1.0, webhook="x")
    alarms = [limit, silent, cron, dead]
    seen = look(Admin(config), alarms)
    assert [wrong(alarm, {"default": seen}) for alarm in alarms] == [
        None,
        "web:1:a: the last heartbeat was 10m ago",
        None,
        None,
    ]
    full, free = LimitStats("queue/pay", 2, 0.0, 2, 3), LimitStats("queue/free", 2, 0.0, 1, 3)
    stored = {b"60 jid": b'{"state": "dead", "error": "ValueError: no"}'}
    job = CronJob(CronEntry("nightly", "@daily", "q", "A"), False, False, None, stored)
    assert wrong(limit, {"default": seen._replace(limits=[full, free])}) == "queue/pay: 3 jobs wait for it"
    assert wrong(dead, {"a": seen._replace(died=3), "b": seen}) == "3 jobs died in the last five minutes (a)"
    assert (
        wrong(cron, {"default": seen._replace(cron=[job])}) == "nightly: the last run is dead: ValueError: no"
    )
