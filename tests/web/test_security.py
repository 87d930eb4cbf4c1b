"""Who may look and act: every rule from outside, over HTTP."""

from __future__ import annotations

import base64
import http.client
import re
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from pyworkers import Client
from pyworkers.api import Queue
from pyworkers.errors import ConfigError
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from pyworkers.web.security.attempts import OF_NAME_AT_ADDRESS
from pyworkers.web.security.bodies import HEAD_BYTES, MOST_BYTES
from pyworkers.web.security.sessions import LASTS_S
from tests.helpers.redises import OwnRedis
from tests.helpers.support import wait_for
from tests.integrations.web import served
from tests.web.test_users import line
from tests.web.visitor import Answer, Visitor

PAUSE = {"action": "pause", "name": "mail"}

Opened = Callable[..., Visitor]


@pytest.fixture
def opened(one_redis_url: str, namespace: str) -> Iterator[Opened]:
    """Serves a dashboard with these arguments of ``app``; there is a queue ``mail``."""
    with Client(one_redis_url, namespace=namespace) as client:
        client.enqueue("mail", "Send", [1])
    with ExitStack() as stack:

        def opened(
            around: Callable[[Starlette], Starlette] = lambda inner: inner, **arguments: Any
        ) -> Visitor:
            dashboard = app(one_redis_url, namespace=namespace, **{"token": "", **arguments})
            return Visitor(f"{stack.enter_context(served(around(dashboard)))}/")

        yield opened


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(f"{line('ann', 'operate')}\n{line('rita', 'read', 'other')}\n")
    return path


@pytest.fixture
def queue(one_redis_url: str, namespace: str) -> Queue:
    return Queue("mail", one_redis_url, namespace=namespace)


def with_session(visitor: Visitor, value: str) -> int:
    """The status of a page for this cookie of a session."""
    port = urllib.parse.urlsplit(visitor.root).port
    return visitor.ask("queues", Cookie=f"pyworkers_session_{port}={value}").status


def log_in(visitor: Visitor, name: str = "ann", password: str = "secret", **fields: str) -> Answer:
    """Fill in the form that the visitor is shown."""
    [form] = visitor.ask("login").page.posts
    return visitor.ask(form.action, {**form.hidden, "name": name, "password": password, **fields})


def token(visitor: Visitor) -> str:
    return visitor.ask("queues").page.posts[0].hidden["csrf"]


def basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def cookie(visitor: Visitor, kind: str) -> Any:
    [found] = [one for one in visitor.cookies if one.name.startswith(f"pyworkers_{kind}")]
    return found


# On the same machine, without users


def test_on_the_same_machine_everything_is_allowed_with_a_token(opened: Opened, queue: Queue) -> None:
    visitor = opened()
    assert visitor.ask("queues", PAUSE).status == 403
    assert visitor.ask("queues", {**PAUSE, "csrf": "x" * 43}).status == 403
    assert visitor.ask("queues", {**PAUSE, "csrf": "€\0"}).status == 403
    assert not queue.paused
    assert visitor.ask("queues", {**PAUSE, "csrf": token(visitor)}).status == 200
    assert queue.paused
    assert "127.0.0.1 (operate)" in visitor.get("queues").text


def test_a_token_is_of_one_browser(opened: Opened, queue: Queue) -> None:
    visitor = opened()
    other = Visitor(visitor.root)
    stolen = token(visitor)
    assert other.ask("queues", {**PAUSE, "csrf": stolen}).status == 403
    token(other)
    assert other.ask("queues", {**PAUSE, "csrf": stolen}).status == 403
    assert not queue.paused


def test_a_token_may_stand_in_a_header(opened: Opened, queue: Queue) -> None:
    visitor = opened()
    assert visitor.ask("queues", PAUSE, X_CSRF_Token=token(visitor)).status == 200
    assert queue.paused


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://[bad"}, 403),
        ({"Origin": "{root}"}, 200),
        ({"Sec_Fetch_Site": "same-origin", "Origin": "{root}"}, 200),
        # The page of a proxy that sends its own name for the dashboard as Host.
        ({"Sec_Fetch_Site": "same-origin", "Origin": "http://jobs.example.com"}, 403),
        ({"Sec_Fetch_Site": "none", "Origin": "null"}, 403),
    ],
)
def test_a_form_of_another_site_is_refused_even_with_a_token(
    opened: Opened, queue: Queue, headers: dict[str, str], status: int
) -> None:
    visitor = opened()
    given = {name: value.replace("{root}", visitor.root.rstrip("/")) for name, value in headers.items()}
    assert visitor.ask("queues", {**PAUSE, "csrf": token(visitor)}, follow=True, **given).status == status
    assert queue.paused == (status == 200)


@pytest.mark.parametrize("path", ["queues", "api/queues", "events"])
@pytest.mark.parametrize("mode", ["no-cors", "cors"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_reads_nothing(opened: Opened, path: str, site: str, mode: str) -> None:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(opened().root).netloc)
    connection.request("GET", f"/{path}", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode})
    # An event stream would not end: only the status is read.
    assert connection.getresponse().status == 403
    connection.close()


@pytest.mark.parametrize(
    ("site", "mode"),
    [("cross-site", "navigate"), ("same-site", "navigate"), ("same-origin", "cors"), ("none", "navigate")],
)
def test_a_link_of_another_site_leads_to_a_page(opened: Opened, site: str, mode: str) -> None:
    assert opened().ask("queues", Sec_Fetch_Site=site, Sec_Fetch_Mode=mode).status == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_every_method_that_may_change_something_needs_a_token(opened: Opened, method: str) -> None:
    visitor = opened()
    place = urllib.parse.urlsplit(visitor.root)
    connection = http.client.HTTPConnection(place.netloc)
    connection.request(method, "/queues")
    assert connection.getresponse().status == 403
    connection.close()


def test_a_large_request_is_refused_before_it_is_read(opened: Opened) -> None:
    visitor = opened()
    given = token(visitor)
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(visitor.root).netloc)
    connection.putrequest("POST", "/queues")
    connection.putheader("Content-Length", str(MOST_BYTES + 1))
    connection.endheaders()
    # Nothing more is sent: the length alone is enough.
    assert connection.getresponse().status == 413
    connection.close()
    assert (
        visitor.ask("queues", {"csrf": given, **{f"f{number}": "" for number in range(1001)}}).status == 413
    )


def test_the_login_reads_little_of_a_stranger(opened: Opened, users: Path) -> None:
    visitor = opened(auth=users)
    given = visitor.ask("login").page.posts[0].hidden
    for padding, status in ((HEAD_BYTES // 2, 401), (HEAD_BYTES, 413)):
        fields = {**given, "name": "ann", "password": "wrong", "x": "x" * padding}
        assert visitor.ask("login", fields).status == status
    assert visitor.ask("queues", {"x": "x" * HEAD_BYTES}).status == 401


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"x=" + b"x" * HEAD_BYTES, "application/x-www-form-urlencoded"),
        (b"x=" + b"x" * HEAD_BYTES + b"&csrf={token}", "application/x-www-form-urlencoded"),
        (b"x", "application/json"),
    ],
)
def test_without_a_token_the_rest_of_a_body_is_not_read(opened: Opened, body: bytes, kind: str) -> None:
    visitor = opened()
    given = token(visitor)
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(visitor.root).netloc)
    connection.putrequest("POST", "/queues")
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in visitor.cookies)
    for name, value in {"Cookie": cookies, "Content-Type": kind, "Content-Length": "1000000"}.items():
        connection.putheader(name, value)
    connection.endheaders(body.replace(b"{token}", given.encode()))
    # Nothing more is sent.
    assert connection.getresponse().status == 403
    connection.close()


def test_another_machine_is_refused(opened: Opened) -> None:
    def from_elsewhere(inner: Starlette) -> Any:
        async def moved(scope: Scope, receive: Receive, send: Send) -> None:
            await inner({**scope, "client": ("10.0.0.9", 1)}, receive, send)

        return moved

    answer = opened(around=from_elsewhere).ask("queues")
    assert answer.status == 403
    assert "Without --auth" in answer.text


@pytest.mark.parametrize(
    "header",
    ["X_Forwarded_For", "X_Forwarded_Host", "X_Forwarded", "Forwarded", "X_Real_IP", "Via", "CF_Ray"],
)
def test_what_a_proxy_of_this_machine_passes_on_is_refused(opened: Opened, header: str) -> None:
    assert opened().ask("queues", None, follow=True, **{header: "127.0.0.1"}).status == 403


# Hosts


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:99", 200),
        ("127.0.0.1", 200),
        ("127.9.9.9:7440", 200),
        ("[::1]:7440", 200),
        ("jobs.example.com", 200),
        ("Jobs.Example.com:8443", 200),
        ("evil.example", 400),
        ("localhost.evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("jobs.example.com@evil.example", 400),
        ("evil.example/127.0.0.1", 400),
        ("10.1.2.3", 400),
        ("", 400),
    ],
)
def test_only_known_hosts_are_answered(opened: Opened, host: str, status: int) -> None:
    visitor = opened(hosts=["jobs.example.com"])
    answer = visitor.ask("queues", Host=host)
    assert answer.status == status
    if status == 400:
        assert "add its name to hosts in [web]" in answer.text
        assert visitor.ask("static/style.css", Host=host).status == 400


def test_the_application_around_it_checks_the_host(opened: Opened) -> None:
    visitor = opened(authorize=lambda _request: "read")
    assert visitor.ask("queues", Host="anything.example").status == 200


# Headers


def test_every_answer_has_the_headers_of_a_safe_page(opened: Opened, users: Path) -> None:
    visitor = opened(auth=users)
    for path in ("queues", "nothing", "login"):
        headers = visitor.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "base-uri 'none'" in policy and "form-action 'self'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-opener-policy"] == "same-origin"


def test_static_files_may_be_kept(opened: Opened, users: Path) -> None:
    visitor = opened(auth=users)
    [name] = re.findall(r"static/style\.\w+\.css", visitor.ask("queues").page.html)
    answer = visitor.ask(name)
    assert answer.status == 200
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["x-content-type-options"] == "nosniff"


# Users


def test_a_page_without_a_login_is_the_form_that_leads_back_to_it(opened: Opened, users: Path) -> None:
    visitor = opened(auth=users)
    answer = visitor.ask("queues?sort=size")
    assert answer.status == 401
    assert "mail" not in answer.text
    [form] = answer.page.posts
    answer = visitor.ask(form.action, {**form.hidden, "name": "ann", "password": "secret"})
    assert answer.status == 200
    assert answer.page.url == f"{visitor.root}queues?sort=size"
    assert "ann (operate)" in answer.text


def test_the_cookie_is_the_browsers_alone(opened: Opened, users: Path) -> None:
    visitor = opened(auth=users)
    assert log_in(visitor).status in (200, 404)
    found = cookie(visitor, "session")
    assert found.path == "/"
    assert found.has_nonstandard_attr("HttpOnly")
    assert found.get_nonstandard_attr("SameSite") == "lax"
    assert found.secure is False


@pytest.mark.parametrize(
    ("name", "password"), [("ann", "Secret"), ("ann", ""), ("carl", "secret"), ("", ""), ("ann:secret", "x")]
)
def test_a_wrong_login_says_so_and_not_what_was_wrong(
    opened: Opened, users: Path, name: str, password: str
) -> None:
    visitor = opened(auth=users)
    answer = log_in(visitor, name, password)
    assert answer.status == 401
    assert "The name or the password is wrong." in answer.text
    assert f'name="name" value="{name}"' in answer.page.html and 'value="Secret"' not in answer.page.html
    assert visitor.ask("queues").status == 401


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil",
        "javascript:alert(1)",
        "/\n/x",
        "",
    ],
)
def test_a_login_leads_to_pages_of_the_dashboard_alone(opened: Opened, users: Path, target: str) -> None:
    visitor = opened(auth=users)
    [form] = visitor.ask(f"login?{urllib.parse.urlencode({'next': target})}").page.posts
    assert form.hidden["next"] == "/"
    fields = {**form.hidden, "name": "ann", "password": "secret", "next": target}
    answer = visitor.ask("login", fields, follow=False)
    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_a_login_needs_a_token_too(opened: Opened, users: Path) -> None:
    visitor = opened(auth=users)
    assert visitor.ask("login", {"name": "ann", "password": "secret"}).status == 403
    assert visitor.ask("queues").status == 401


def test_a_logout_ends_the_session_for_who_has_kept_the_cookie(
    opened: Opened, users: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    visitor = opened(auth=users)
    log_in(visitor)
    kept = cookie(visitor, "session")
    [form] = [form for form in visitor.get("queues").posts if form.action.endswith("/logout")]
    assert visitor.ask(form.action, form.hidden).status == 200
    assert visitor.ask("queues").status == 401
    visitor.cookies.set_cookie(kept)
    assert visitor.ask("queues").status == 401
    assert "web.logout_unshared" not in capsys.readouterr().out


def test_a_logout_ends_the_session_in_other_processes_and_after_a_restart(
    opened: Opened, users: Path, one_redis_url: str, namespace: str
) -> None:
    one, other = opened(auth=users), opened(auth=users)
    log_in(one)
    given = cookie(one, "session").value
    assert with_session(other, given) == 200
    [form] = [form for form in one.get("queues").posts if form.action.endswith("/logout")]
    assert one.ask(form.action, form.hidden).status == 200
    assert with_session(opened(auth=users), given) == 401
    # What it has read before is valid for a moment.
    wait_for(lambda: with_session(other, given) == 401)
    with redis.Redis.from_url(one_redis_url) as client:
        [key] = client.keys(f"{Keys(namespace).web_ended('*')}")
        assert 0 < client.ttl(key) <= LASTS_S
    assert given.split(".")[2] not in key.decode()


def test_a_logout_ends_that_session_alone(opened: Opened, users: Path) -> None:
    one = opened(auth=users)
    other = Visitor(one.root)
    log_in(one)
    log_in(other)
    [form] = [form for form in one.get("queues").posts if form.action.endswith("/logout")]
    assert one.ask(form.action, form.hidden).status == 200
    assert other.ask("queues").status == 200


def test_a_logout_while_redis_is_away_counts_in_this_process(users: Path, own_redis: OwnRedis) -> None:
    with served(app(own_redis.url, auth=users)) as root:
        one, other = Visitor(f"{root}/"), Visitor(f"{root}/")
        log_in(one)
        log_in(other)
        kept = cookie(one, "session")
        [form] = [form for form in one.get("queues").posts if form.action.endswith("/logout")]
        own_redis.kill()
        assert one.ask(form.action, form.hidden).status == 200
        one.cookies.set_cookie(kept)
        assert one.ask("queues").status == 401
        assert other.ask("queues").status == 503
        own_redis.start()
        assert one.ask("queues").status == 401
        assert other.ask("queues").status == 200


def test_a_logout_needs_a_token(opened: Opened, users: Path) -> None:
    visitor = opened(auth=users)
    log_in(visitor)
    assert visitor.ask("logout", {}).status == 403
    assert visitor.ask("queues").status == 200


def test_a_changed_or_removed_user_is_out_at_the_next_request(opened: Opened, users: Path) -> None:
    visitor = opened(auth=users)
    log_in(visitor)
    assert visitor.ask("queues").status == 200
    users.write_text(line("ann", "operate", "changed"))
    assert visitor.ask("queues").status == 401
    log_in(visitor, password="changed")
    assert visitor.ask("queues").status == 200
    users.write_text(line("rita"))
    answer = visitor.ask("queues")
    assert answer.status == 401
    assert "Your session has ended." in answer.text


def test_a_session_that_ends_between_form_and_click(opened: Opened, users: Path, queue: Queue) -> None:
    visitor = opened(auth=users)
    log_in(visitor)
    given = token(visitor)
    visitor.cookies.clear()
    answer = visitor.ask("queues?match=ma&order=size", {**PAUSE, "csrf": given})
    assert answer.status == 401
    assert "Nothing was done: log in, and try again." in answer.text
    assert not queue.paused
    [form] = answer.page.posts
    answer = visitor.ask(form.action, {**form.hidden, "name": "ann", "password": "secret"})
    assert answer.page.url == f"{visitor.root}queues?match=ma&order=size"
    assert not queue.paused


def test_an_expired_session_says_that_nothing_was_done(
    opened: Opened, users: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyworkers.web.security.sessions.LASTS_S", -1)
    visitor = opened(auth=users)
    log_in(visitor)
    answer = visitor.ask("queues", {**PAUSE, "csrf": "x"})
    assert answer.status == 401
    assert "Nothing was done" not in visitor.ask("logout", {"csrf": "x"}).text
    assert "Your session has ended. Nothing was done: log in, and try again." in answer.text
    assert not queue.paused


@pytest.mark.parametrize("change", [0, 5, -1])
def test_a_forged_cookie_is_no_session(opened: Opened, users: Path, change: int) -> None:
    visitor = opened(auth=users)
    log_in(visitor)
    found = cookie(visitor, "session")
    letters = list(found.value)
    letters[change] = "A" if letters[change] != "A" else "B"
    found.value = "".join(letters)
    visitor.cookies.set_cookie(found)
    assert visitor.ask("queues").status == 401


@pytest.mark.parametrize("value", ["", "x", "....", "\u00e9", "a" * 3000, "YW5u.1.x.y"])
def test_a_cookie_of_any_text_is_no_session(opened: Opened, users: Path, value: str) -> None:
    visitor = opened(auth=users)
    assert with_session(visitor, value) == 401


def test_processes_and_restarts_share_sessions(opened: Opened, users: Path) -> None:
    one, other = opened(auth=users), opened(auth=users)
    log_in(one)
    assert with_session(other, cookie(one, "session").value) == 200


def test_a_lost_secret_ends_sessions_and_is_made_again(
    opened: Opened, users: Path, one_redis_url: str, namespace: str
) -> None:
    key = Keys(namespace).web_secret
    with redis.Redis.from_url(one_redis_url) as client:
        log_in(opened(auth=users))
        assert 0 < client.ttl(key) <= 30 * 86400
        client.delete(key)
        client.lpush(key, "of another program")
        visitor = opened(auth=users)
        log_in(visitor)
        assert visitor.ask("queues").status == 200


# Roles


def test_read_sees_no_button_and_may_not_act(opened: Opened, users: Path, queue: Queue) -> None:
    visitor = opened(auth=users)
    log_in(visitor, "rita", "other")
    page = visitor.get("queues")
    assert [form.action for form in page.posts] == [f"{visitor.root}logout"]
    answer = visitor.ask("queues", {**PAUSE, "csrf": page.posts[0].hidden["csrf"]})
    assert answer.status == 403
    assert "Your role is read" in answer.text
    assert not queue.paused
    assert "only the role operate enqueues jobs" in visitor.get("enqueue").text
    assert visitor.ask("logout", page.posts[0].hidden).status == 200


# The sentence after an action


@pytest.fixture
def told(opened: Opened, users: Path) -> tuple[Visitor, str]:
    """A visitor through a proxy with HTTPS that has paused a queue, and the cookie of the answer."""
    visitor = opened(auth=users)
    headers = {"Authorization": "Bearer ann:secret", "X_Forwarded_Proto": "https"}
    return visitor, visitor.ask("queues", PAUSE, follow=False, **headers).headers["set-cookie"]


def test_the_sentence_after_an_action_is_in_a_cookie_of_this_dashboard(told: tuple[Visitor, str]) -> None:
    visitor, set_by = told
    assert set_by.startswith(f"pyworkers_flash_{urllib.parse.urlsplit(visitor.root).port}=")
    assert {"Secure", "HttpOnly", "SameSite=lax", "Max-Age=60"} <= set(set_by.split("; "))


def test_only_the_dashboard_writes_the_sentence(told: tuple[Visitor, str]) -> None:
    visitor, set_by = told
    name, _, value = set_by.partition(";")[0].partition("=")
    other = base64.urlsafe_b64encode(b".Pay here.").decode()
    for given in ("", other, f"{other}.{value.partition('.')[2]}", f"\xe9.\xe9{value}", value):
        answer = visitor.ask("queues", Authorization="Bearer ann:secret", Cookie=f"{name}={given}")
        assert answer.status == 200
        assert ("mail is paused." in answer.text) == (given == value)
        assert "Pay here." not in answer.text


# Programs


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (basic("ann", "secret"), 403),
        (basic("rita", "other"), 403),
        (basic("ann", "wrong"), 401),
        ("Bearer ann:secret", 200),
        ("bearer secret", 200),
        ("Bearer other", 403),
        ("Bearer wrong", 401),
        ("Bearer", 401),
        ("Basic !!!", 401),
        ("Basic", 401),
        ("Digest x", 401),
        ("", 401),
    ],
)
def test_a_header_acts_without_a_token(
    opened: Opened, users: Path, queue: Queue, header: str, status: int
) -> None:
    visitor = opened(auth=users)
    answer = visitor.ask("queues", PAUSE, follow=False, Authorization=header)
    assert answer.status == (303 if status == 200 else status)
    assert queue.paused == (status == 200)
    if status == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_password_by_basic_needs_the_origin_or_a_token(opened: Opened, users: Path, queue: Queue) -> None:
    visitor = opened(auth=users)
    given = {"Authorization": basic("ann", "secret")}
    assert visitor.ask("queues", PAUSE, follow=True, **given, Origin="http://evil.example").status == 403
    assert not queue.paused
    own = visitor.root.rstrip("/")
    assert visitor.ask("queues", PAUSE, follow=True, **given, Origin=own).status == 200
    assert queue.paused
    token_of_form = visitor.ask("queues", **given).page.posts[0].hidden["csrf"]
    resume = {"action": "resume", "name": "mail", "csrf": token_of_form}
    assert visitor.ask("queues", resume, **given).status == 200
    assert not queue.paused


def test_a_header_is_not_mixed_with_a_session(opened: Opened, users: Path, queue: Queue) -> None:
    visitor = opened(auth=users)
    log_in(visitor)
    assert visitor.ask("queues", PAUSE).status == 403
    assert visitor.ask("queues", Authorization=basic("ann", "wrong")).status == 401
    assert not queue.paused


def test_a_password_that_a_browser_sends_by_itself_is_no_proof(
    opened: Opened, users: Path, queue: Queue
) -> None:
    headers = {"Authorization": basic("ann", "secret"), "Sec_Fetch_Site": "cross-site"}
    assert opened(auth=users).ask("queues", PAUSE, follow=True, **headers).status == 403
    assert not queue.paused


def test_programs_are_answered_in_json(opened: Opened, users: Path) -> None:
    answer = opened(auth=users).ask("api/queues")
    assert answer.status == 401
    assert answer.headers["content-type"] == "application/json"
    assert "www-authenticate" in answer.headers


def test_guesses_are_limited(opened: Opened, users: Path) -> None:
    visitor = opened(auth=users)

    def until_refused(guess: Callable[[], Answer]) -> list[Answer]:
        """One more try is allowed every six seconds, which a busy machine can take for some of them."""
        answers = [guess()]
        while answers[-1].status != 429 and len(answers) < 3 * OF_NAME_AT_ADDRESS.burst:
            answers.append(guess())
        return answers

    by_token = until_refused(lambda: visitor.ask("api/queues", Authorization="Bearer rita:no"))
    assert {answer.status for answer in by_token[: OF_NAME_AT_ADDRESS.burst]} == {401}
    assert by_token[-1].status == 429
    assert int(by_token[-1].headers["retry-after"]) in range(1, 7)
    by_form = until_refused(lambda: log_in(visitor, "rita"))
    assert by_form[-1].status == 429 and len(by_form) < OF_NAME_AT_ADDRESS.burst
    assert "Too many failed attempts." in by_form[-1].text
    # Others behind the same address are not shut out.
    assert log_in(visitor).status == 200


# An application's own function


@pytest.mark.parametrize(
    ("returned", "status"),
    [("operate", 200), ("read", 403), (None, 403), ("admin", 403), (7, 403), (True, 403)],
)
def test_a_function_says_the_role(opened: Opened, queue: Queue, returned: Any, status: int) -> None:
    visitor = opened(authorize=lambda _request: returned)
    page = visitor.ask("queues")
    assert page.status == (200 if returned in ("operate", "read") else 403)
    given = token(visitor) if returned == "operate" else ""
    assert visitor.ask("queues", {**PAUSE, "csrf": given}).status == status
    assert queue.paused == (status == 200)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer x"}, 303),
        ({"Authorization": basic("ann", "secret")}, 403),
        ({"Authorization": basic("ann", "secret"), "Origin": "{root}"}, 303),
        ({"Authorization": basic("ann", "secret"), "Origin": "https://evil.example"}, 403),
        ({"Authorization": basic("ann", "secret"), "Origin": "null"}, 403),
        ({"Authorization": basic("ann", "secret"), "Origin": "{root}", "Sec_Fetch_Site": "cross-site"}, 403),
        ({"Authorization": "Digest x"}, 403),
        ({"Authorization": "Bearerx"}, 403),
        ({"Authorization": ""}, 403),
        ({"Cookie": "session=x", "Origin": "{root}"}, 403),
    ],
)
def test_with_a_function_a_bearer_token_or_the_origin_acts_without_a_form(
    opened: Opened, queue: Queue, headers: dict[str, str], status: int
) -> None:
    visitor = opened(authorize=lambda _request: "operate")
    sent = {name: value.format(root=visitor.root.rstrip("/")) for name, value in headers.items()}
    assert visitor.ask("queues", PAUSE, follow=False, **sent).status == status
    assert queue.paused == (status == 303)


def test_a_function_may_be_async_and_name_the_user(opened: Opened) -> None:
    async def authorize(request: Request) -> str:
        request.state.user = "ann@example.com"
        return "read"

    assert "ann@example.com (read)" in opened(authorize=authorize).get("queues").text


def test_an_error_of_the_function_is_no_access(opened: Opened) -> None:
    def authorize(_request: Request) -> str:
        raise ZeroDivisionError

    assert opened(authorize=authorize).ask("queues").status == 403


def test_a_function_may_answer_by_itself(opened: Opened) -> None:
    from starlette.exceptions import HTTPException

    def authorize(_request: Request) -> str:
        raise HTTPException(302, headers={"Location": "/elsewhere"})

    answer = opened(authorize=authorize).ask("queues", follow=False)
    assert (answer.status, answer.headers["location"]) == (302, "/elsewhere")


def test_users_and_a_function_exclude_each_other(users: Path) -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        app(auth=users, authorize=lambda _request: "read")


def test_bytes_in_which_nothing_can_be_hidden_are_for_those_who_act(
    opened: Opened, one_redis_url: str, keys: Keys
) -> None:
    stored = [
        b'[{"password":"hunter2"}]',
        b'{"password":"hunter2"',
        b"[" * 600 + b'{"password":"hunter2"}' + b"]" * 600,
    ]
    stored.append(b'{"args":[{"password":"hunter2"},"' + b"x" * 400_000 + b'"]}')
    with redis.Redis.from_url(one_redis_url) as db:
        db.zadd(keys.dead, {raw: place for place, raw in enumerate(stored)})
    for role, most in (("read", 0), ("operate", 2)):
        visitor = opened(authorize=lambda request, role=role: role)
        rows = visitor.get("api/dead").text
        assert rows.count("hunter2") <= most
        jobs = {link.removeprefix(visitor.root) for link in visitor.get("dead").links if "/jobs/" in link}
        pages = [visitor.get(path).html for path in jobs]
        shown = [page for page in pages if "hunter2" in page]
        assert (len(pages), bool(shown)) == (4, role == "operate")
        assert len(shown) <= most
