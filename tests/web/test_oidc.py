"""Logins by a provider of OpenID Connect, over HTTP, with a provider that a test makes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest
from joserfc import jws
from starlette.applications import Starlette
from starlette.routing import Mount

from pyworkers import Client
from pyworkers.api import AuditLog
from pyworkers.api.target import admin_of
from pyworkers.errors import ConfigError, MissingExtraError
from pyworkers.web import app
from pyworkers.web.security import oidc
from pyworkers.web.security.attempts import OF_NAME_AT_ADDRESS
from pyworkers.web.security.oidc import PendingLogin
from pyworkers.web.security.sessions import encoded
from tests.helpers.support import free_port, wait_for
from tests.integrations.web import served
from tests.web.chromium import Chromium
from tests.web.openid import CLIENT, OpenIdProvider, key, open_id_provider, slow_provider
from tests.web.test_security import PAUSE, log_in, with_session
from tests.web.test_users import line
from tests.web.visitor import Answer, Visitor

GROUPS = {"platform": "operate", "support": "operate@mail*", "billing": "operate@billing", "all": "read"}

Opened = Callable[..., Visitor]


@pytest.fixture
def provider() -> Iterator[OpenIdProvider]:
    with open_id_provider() as found:
        yield found


@pytest.fixture
def opened(one_redis_url: str, namespace: str, provider: OpenIdProvider) -> Iterator[Opened]:
    """Serves a dashboard with this provider, and these keys of ``[web.oidc]``; there is a queue ``mail``."""
    with Client(one_redis_url, namespace=namespace) as client:
        client.enqueue("mail", "Send", [1])
    with ExitStack() as stack:

        def opened(
            prefix: str = "", auth: Path | None = None, hosts: Sequence[str] = (), **keys: Any
        ) -> Visitor:
            oidc = {**keys_of(provider), **keys}
            dashboard = app(one_redis_url, namespace=namespace, auth=auth, hosts=hosts, oidc=oidc)
            whole = Starlette(routes=[Mount(prefix, dashboard)]) if prefix else dashboard
            return Visitor(f"{stack.enter_context(served(whole))}{prefix}/")

        yield opened


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(f"{line('rita', 'read')}\n")
    return path


def keys_of(provider: OpenIdProvider) -> dict[str, Any]:
    """The keys of ``[web.oidc]`` for this provider."""
    return {"issuer": provider.issuer, "client_id": CLIENT[0], "client_secret": CLIENT[1], "groups": GROUPS}


def session_of(visitor: Visitor) -> str:
    [found] = [one.value for one in visitor.cookies if one.name.startswith("pyworkers_session")]
    return str(found)


def sent(visitor: Visitor, **headers: str) -> dict[str, str]:
    """The parameters with which a login is sent to the provider."""
    answer = visitor.ask("login/oidc", None, follow=False, **headers)
    return {name: value for name, [value] in parse_qs(urlsplit(answer.headers["location"]).query).items()}


def logged_in(visitor: Visitor, path: str = "login/oidc") -> Answer:
    """Press the button of the login page; the provider sends back at once."""
    return visitor.ask(path)


def who(visitor: Visitor) -> str:
    """The name and the role in the head of a page; empty without a session."""
    answer = visitor.ask("queues")
    [found] = re.findall(r"\S+ \((?:operate|read)[^)]*\)", answer.text) or [""]
    return str(found)


# A login


def test_a_person_logs_in_and_acts_with_the_rights_of_the_group(
    opened: Opened, one_redis_url: str, namespace: str, provider: OpenIdProvider
) -> None:
    visitor = opened()
    assert provider.asked == []
    page = visitor.ask("queues?q=mail")
    assert page.status == 401
    assert page.page.posts == []
    assert f"Log in with {urlsplit(provider.issuer).netloc}" in page.text
    [link] = [link for link in page.page.links if "/login/oidc?" in link]
    found = visitor.ask(link)
    assert found.status == 200
    assert found.page.url == f"{visitor.root}queues?q=mail"
    assert "ann (operate)" in found.text
    csrf = found.page.posts[0].hidden["csrf"]
    assert visitor.ask("queues", {**PAUSE, "csrf": csrf}).status == 200
    [entry] = AuditLog(one_redis_url, namespace=namespace).page().actions
    assert (entry.who, entry.action) == ("ann", "queue.pause")


def test_a_person_logs_in_with_a_browser(
    opened: Opened, provider: OpenIdProvider, chromium: Chromium, users: Path
) -> None:
    # Another name of this machine is another site: its links send fewer cookies.
    provider.issuer = provider.issuer.replace("127.0.0.1", "localhost")
    visitor = opened(auth=users, name="Our company")
    chromium.open(f"{visitor.root}dead")
    assert chromium.violations() == []
    chromium.press("Log in with Our company")
    wait_for(lambda: chromium.url == f"{visitor.root}dead")
    assert "ann (operate)" in chromium.text


def test_the_users_of_the_file_log_in_as_well(opened: Opened, users: Path, provider: OpenIdProvider) -> None:
    visitor = opened(auth=users, name="Our company")
    assert "Log in with Our company" in visitor.ask("login").text
    assert log_in(visitor, "rita").status == 200
    assert who(visitor) == "rita (read)"
    logged_in(visitor)
    assert who(visitor) == "ann (operate)"
    assert visitor.ask("queues", Authorization="Bearer rita:secret").status == 200


def test_without_a_file_no_password_is_right(opened: Opened) -> None:
    visitor = opened()
    assert visitor.ask("queues", Authorization="Bearer rita:secret").status == 401


@pytest.mark.parametrize(
    ("groups", "shown"),
    [
        (["other", "all"], "ann (read)"),
        (["all", "support", "billing"], "ann (operate@mail*,billing)"),
        (["support", "platform"], "ann (operate)"),
        ("platform", "ann (operate)"),
    ],
)
def test_a_person_has_the_rights_of_all_groups(
    opened: Opened, provider: OpenIdProvider, groups: object, shown: str
) -> None:
    provider.claims["groups"] = groups
    visitor = opened()
    logged_in(visitor)
    assert who(visitor) == shown


def test_a_claim_may_be_inside_of_others_and_in_the_answer_about_the_person(
    opened: Opened, provider: OpenIdProvider
) -> None:
    provider.claims = {"https://id.example/name": "ann é"}
    provider.userinfo = {"realm": {"roles": ["all"]}, "https://id.example/name": "eve"}
    visitor = opened(name_claim="https://id.example/name", groups_claim="realm.roles")
    assert "ann é (read)" in logged_in(visitor).text
    provider.userinfo["sub"] = "8"
    answer = logged_in(Visitor(visitor.root))
    assert (answer.status, "sends no claim realm.roles" in answer.text) == (403, True)


def test_the_secret_is_in_the_form_where_the_provider_wants_it(
    opened: Opened, provider: OpenIdProvider
) -> None:
    provider.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    visitor = opened()
    logged_in(visitor)
    assert who(visitor) == "ann (operate)"


def test_a_login_below_a_prefix_and_behind_a_proxy_comes_back_there(opened: Opened) -> None:
    visitor = opened("/jobs", hosts=["jobs.example.com"])
    answer = logged_in(visitor, "login/oidc?next=/dead%3Fq%3Dx")
    assert (answer.status, answer.page.url) == (200, f"{visitor.root}dead?q=x")
    given = sent(visitor, Host="jobs.example.com:8443", X_Forwarded_Proto="https")
    assert given["redirect_uri"] == "https://jobs.example.com:8443/jobs/login/oidc/callback"


def test_a_redirect_url_of_the_configuration_is_sent_as_it_is(opened: Opened) -> None:
    url = "https://jobs.example.com/jobs/login/oidc/callback"
    assert sent(opened(redirect_url=url))["redirect_uri"] == url


def test_a_login_begun_at_another_redis_leads_there(
    one_redis_url: str, namespace: str, provider: OpenIdProvider
) -> None:
    others = {"archive": admin_of(one_redis_url, f"{namespace}archive:")}
    with served(app(one_redis_url, namespace=namespace, oidc=keys_of(provider), others=others)) as root:
        visitor = Visitor(f"{root}/")
        answer = logged_in(visitor, "redis/archive/login/oidc?next=/queues")
        assert (answer.status, answer.page.url) == (200, f"{root}/redis/archive/queues")


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", "/login/oidc", "/logout", "x"]
)
def test_no_login_leads_elsewhere(opened: Opened, target: str) -> None:
    visitor = opened()
    answer = logged_in(visitor, f"login/oidc?next={quote(target)}")
    assert (answer.status, answer.page.url) == (200, visitor.root)
    # Nor one whose cookie another page has written.
    location = visitor.ask("login/oidc", follow=False).headers["location"]
    [kept] = [one for one in visitor.cookies if one.name.startswith("pyworkers_login")]
    begun = PendingLogin.parse(str(kept.value))
    assert begun is not None
    kept.value = str(replace(begun, target=target))
    answer = visitor.ask(location)
    assert (answer.status, answer.page.url) == (200, visitor.root)


# A session


def test_a_logout_ends_the_session(opened: Opened, provider: OpenIdProvider) -> None:
    visitor = opened()
    found = logged_in(visitor)
    kept = session_of(visitor)
    assert with_session(visitor, kept) == 200
    form = next(form for form in found.page.posts if form.action.endswith("/logout"))
    assert "Log in with" in visitor.ask(form.action, form.hidden).text
    assert with_session(visitor, kept) == 401


def test_a_session_ends_after_its_time(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyworkers.web.security.sessions.LASTS_S", -1)
    visitor = opened()
    assert logged_in(visitor).status == 401


def test_a_session_has_no_other_rights_and_no_other_name(opened: Opened, provider: OpenIdProvider) -> None:
    provider.claims["groups"] = ["all"]
    visitor = opened()
    logged_in(visitor)
    name, rights, *rest = session_of(visitor).split(".")
    assert with_session(visitor, ".".join([name, rights, *rest])) == 200
    for forged in (
        [name, encoded("operate"), *rest],
        [encoded("eve"), rights, *rest],
        [name, *rest],
        [name, "_", *rest],
    ):
        assert with_session(visitor, ".".join(forged)) == 401


@pytest.mark.parametrize("change", [{"groups": {"platform": "read"}}, {"client_secret": "another"}])
def test_other_settings_end_the_sessions(opened: Opened, change: dict[str, Any]) -> None:
    visitor = opened()
    logged_in(visitor)
    kept = session_of(visitor)
    assert with_session(visitor, kept) == 200
    assert with_session(opened(), kept) == 200
    assert with_session(opened(**change), kept) == 401


def test_a_session_of_the_provider_is_none_of_the_file(
    opened: Opened, users: Path, one_redis_url: str, namespace: str
) -> None:
    visitor = opened()
    logged_in(visitor)
    with served(app(one_redis_url, namespace=namespace, auth=users)) as root:
        assert with_session(Visitor(f"{root}/"), session_of(visitor)) == 401


# Refusals


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"aud": "another"}, "aud"),
        ({"aud": ["another"], "azp": CLIENT[0]}, "aud"),
        ({"aud": [CLIENT[0], "another"], "azp": "another"}, "azp"),
        ({"iss": "https://another.example"}, "iss"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"iat": 1 << 40}, "issued in the future"),
    ],
)
def test_an_id_token_for_somebody_else_is_refused(
    opened: Opened,
    provider: OpenIdProvider,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    reason: str,
) -> None:
    provider.claims |= change
    visitor = opened()
    answer = logged_in(visitor)
    assert answer.status == 403
    assert "The ID token of" in answer.text
    assert who(visitor) == ""
    [event] = [text for text in capsys.readouterr().out.splitlines() if "web.oidc_failed" in text]
    assert reason in event


@pytest.mark.parametrize(
    ("signing", "header"),
    [
        ("two", {"alg": "RS256", "kid": "one"}),
        ("two", {"alg": "RS256", "kid": "two"}),
        ("secret", {"alg": "none"}),
        ("secret", {"alg": "HS256"}),
    ],
)
def test_an_id_token_with_another_signature_is_refused(
    opened: Opened, provider: OpenIdProvider, signing: str, header: dict[str, str]
) -> None:
    provider.signing, provider.header = signing, header
    visitor = opened()
    answer = logged_in(visitor)
    assert (answer.status, "The ID token of" in answer.text) == (403, True)
    assert who(visitor) == ""


def test_a_login_with_another_state_is_refused(opened: Opened, provider: OpenIdProvider) -> None:
    visitor = opened()
    given = sent(visitor)
    for state in ("x", "é", "", given["state"][:-1]):
        answer = visitor.ask(f"login/oidc/callback?{urlencode({'code': 'c', 'state': state})}")
        assert (answer.status, "has expired, or another one has begun since" in answer.text) == (403, True)
    stranger = Visitor(visitor.root)
    assert (
        stranger.ask(f"login/oidc/callback?{urlencode({'code': 'c', 'state': given['state']})}").status == 403
    )
    assert "/token" not in provider.asked


def test_a_login_of_another_provider_is_refused(opened: Opened, provider: OpenIdProvider) -> None:
    visitor = opened()
    given = sent(visitor)
    fields = {"code": "c", "state": given["state"], "iss": "https://another.example"}
    assert "Another provider has answered" in visitor.ask(f"login/oidc/callback?{urlencode(fields)}").text
    assert "/token" not in provider.asked


@pytest.mark.parametrize(
    ("error", "word"), [("access_denied", "(access_denied)"), ("Call 0800", "(an error)")]
)
def test_a_login_that_the_provider_refuses_leads_back(
    opened: Opened, provider: OpenIdProvider, error: str, word: str
) -> None:
    provider.error = error
    answer = logged_in(opened())
    assert answer.status == 403
    assert f"has refused the login {word}." in answer.text
    assert any(link.endswith("/login/oidc?next=%2F") for link in answer.page.links)


def test_a_code_is_used_once_and_by_few_tries(opened: Opened, provider: OpenIdProvider) -> None:
    visitor = opened()
    statuses: list[int] = []
    # One more try is allowed every six seconds, which a busy machine can take for some of them.
    while 429 not in statuses and len(statuses) < 3 * OF_NAME_AT_ADDRESS.burst:
        given = sent(visitor)
        answer = visitor.ask(f"login/oidc/callback?{urlencode({'code': 'expired', 'state': given['state']})}")
        statuses.append(answer.status)
        assert ("perhaps its code has expired" in answer.text) == (answer.status == 403)
    assert set(statuses[: OF_NAME_AT_ADDRESS.burst]) == {403}
    assert statuses[-1] == 429


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        (
            {"preferred_username": "ann", "groups": ["staff", 7, None]},
            "no group in your claim groups has a role here",
        ),
        (
            {"preferred_username": "ann", "groups": {"platform": 1}},
            "no group in your claim groups has a role here",
        ),
        ({"preferred_username": "ann"}, "sends no claim groups"),
        ({"groups": ["platform"]}, "the claim preferred_username is missing"),
        (
            {"preferred_username": "a\nn", "groups": ["platform"]},
            "the claim preferred_username is missing, or is no text",
        ),
        (
            {"preferred_username": "x" * 129, "groups": ["platform"]},
            "or is no text of 1 to 128 printable characters",
        ),
    ],
)
def test_a_person_without_a_group_or_a_name_has_no_access(
    opened: Opened, provider: OpenIdProvider, claims: dict[str, Any], text: str
) -> None:
    provider.claims = claims
    visitor = opened()
    answer = logged_in(visitor)
    assert answer.status == 403
    assert text in answer.text
    assert who(visitor) == ""


def test_rights_that_no_cookie_holds_are_refused(opened: Opened, provider: OpenIdProvider) -> None:
    provider.claims["groups"] = ["platform", *map(str, range(9))]
    many = {
        str(number): "operate@" + ",".join(f"{number}q{n}" + "x" * 40 for n in range(9))
        for number in range(9)
    }
    answer = logged_in(opened(groups=many))
    assert (answer.status, "Your groups have roles for too many queues" in answer.text) == (403, True)


# A provider that is away


def test_a_provider_that_is_away_leaves_the_users_of_the_file(
    opened: Opened, users: Path, provider: OpenIdProvider, capsys: pytest.CaptureFixture[str]
) -> None:
    visitor = opened(auth=users, issuer=f"http://127.0.0.1:{free_port()}", name="Away")
    answer = logged_in(visitor, "login/oidc?next=/dead")
    assert answer.status == 503
    assert "Away does not answer as a provider of OpenID Connect does. Try again later." in answer.text
    assert "refused" in capsys.readouterr().out
    [form] = answer.page.posts
    answer = visitor.ask(form.action, {**form.hidden, "name": "rita", "password": "secret"})
    assert (answer.status, answer.page.url) == (200, f"{visitor.root}dead")


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"issuer": "https://another.example"}, "another issuer: 'https://another.example'"),
        (
            {"token_endpoint": "http://id.example/token"},
            "token_endpoint of the discovery document is not an https",
        ),
        ({"jwks_uri": "file:///etc/passwd"}, "jwks_uri of the discovery document is not an https"),
        (
            {"authorization_endpoint": None},
            "authorization_endpoint of the discovery document is not an https",
        ),
    ],
)
def test_a_discovery_document_is_checked(
    opened: Opened,
    provider: OpenIdProvider,
    capsys: pytest.CaptureFixture[str],
    metadata: dict[str, Any],
    reason: str,
) -> None:
    provider.metadata = metadata
    visitor = opened()
    assert logged_in(visitor).status == 503
    assert reason in capsys.readouterr().out
    # It is read again, not kept.
    provider.metadata = {}
    logged_in(visitor)
    assert who(visitor) == "ann (operate)"


def test_the_discovery_document_is_kept_and_the_keys_are_read_at_each_login(
    opened: Opened, provider: OpenIdProvider
) -> None:
    visitor = opened()
    for _ in range(2):
        logged_in(visitor)
    assert provider.asked.count("/.well-known/openid-configuration") == 1
    assert provider.asked.count("/keys") == 2


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/keys"])
@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"[]", b"9" * 5_000, b"\xff", b""])
def test_other_answers_than_a_provider_gives_are_refused(
    opened: Opened, provider: OpenIdProvider, path: str, body: bytes
) -> None:
    provider.instead[path] = body
    assert logged_in(opened()).status == 503


def test_an_id_token_that_is_nested_too_deep_is_refused(opened: Opened, provider: OpenIdProvider) -> None:
    provider.instead["/token"] = {
        "id_token": jws.serialize_compact(provider.header, "[" * 90_000, key("one"))
    }
    assert logged_in(opened()).status == 503


@pytest.mark.parametrize("methods", [7, True, {}, "none", []])
def test_other_methods_than_a_list_are_the_usual_one(
    opened: Opened, provider: OpenIdProvider, methods: object
) -> None:
    provider.metadata["token_endpoint_auth_methods_supported"] = methods
    assert logged_in(opened()).status == 200


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: ", b"H"]
)
def test_a_login_does_not_wait_for_a_slow_provider(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(oidc, "_PATIENCE_S", 0.5)
    monkeypatch.setattr(oidc, "_MOST_WAITING", 1)
    with slow_provider(head) as (issuer, _):
        visitor = opened(issuer=issuer)
        # The second one gets the thread of the first.
        assert [logged_in(visitor).status for _ in range(2)] == [503, 503]
        assert "does not answer as a provider" in logged_in(visitor).text


def test_a_redirection_of_the_provider_is_not_followed(opened: Opened, provider: OpenIdProvider) -> None:
    provider.metadata["jwks_uri"] = f"{provider.issuer}/authorize?state=x&redirect_uri=http://127.0.0.1:1/"
    assert logged_in(opened()).status == 503


# The configuration


def test_a_function_excludes_a_provider(provider: OpenIdProvider) -> None:
    with pytest.raises(ConfigError, match="auth or oidc, and authorize exclude each other"):
        app(authorize=lambda _request: "read", oidc=keys_of(provider))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"isuer": "x"}, "app(oidc=…): unknown key web.oidc.isuer"),
        ({"groups": {"all": "admin"}}, "app(oidc=…): web.oidc.groups: 'all': the role is neither read nor"),
        ({"client_secret": ""}, "web.oidc.client_secret: is missing"),
    ],
)
def test_the_keys_of_a_program_are_checked(
    provider: OpenIdProvider, change: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        app(oidc={**keys_of(provider), **change})
    assert str(caught.value).startswith(error)


def test_without_the_package_the_dashboard_says_what_to_install(
    provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "authlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "authlib", None)
    with pytest.raises(MissingExtraError, match="needs the package authlib") as caught:
        app(oidc=keys_of(provider))
    assert caught.value.hint == "install the extra: pip install 'pyworkers-server[oidc]'"


def test_a_dashboard_without_a_provider_does_not_import_the_package() -> None:
    program = "import sys, pyworkers.web.serving, pyworkers.web; pyworkers.web.app(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert "pyworkers.web.security.oidc" in found
    assert {"authlib", "joserfc"}.isdisjoint(found)
