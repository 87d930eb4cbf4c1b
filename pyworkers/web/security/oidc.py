"""OpenID Connect: logins by a provider, with an authorization code, PKCE, a state and a nonce.

The provider is asked in threads, at a login only. What it answers is checked here: its addresses, the
signature of the ID token, its issuer, audience, times and nonce. Needs the extra ``oidc``.
"""

from __future__ import annotations

import asyncio
import hmac
import http.client
import json
import re
import secrets
import socket
import threading
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit
from urllib.request import HTTPErrorProcessor, HTTPHandler, HTTPSHandler, Request, build_opener

from pyworkers import logs
from pyworkers.config.checks import is_safe_url
from pyworkers.config.fields import OidcConfig
from pyworkers.config.rights import Rights
from pyworkers.errors import ConfigError, MissingExtraError
from pyworkers.web.security.attempts import Attempts
from pyworkers.web.security.sessions import encoded, open_session

_DISCOVERY = "/.well-known/openid-configuration"
_ADDRESSES = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_READ_AGAIN_S = 3600.0
_PATIENCE_S = 5.0
# A login asks for up to four documents.
_LONGEST_S = 15.0
_MOST_BYTES = 1 << 20
_MOST_WAITING = 20
_LEEWAY_S = 60
_LONGEST_NAME = 128
# Browsers keep a cookie of 4,096 bytes, its name included.
_LONGEST_COOKIE = 3500
_LONGEST_TARGET = 2000
_USUAL_METHODS = ("client_secret_basic",)
# Only those whose keys are public: with another one, the client's secret would sign.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_PENDING = re.compile(r"([\w-]{22})\.([\w-]{22})\.([\w-]{64})\.([\w-]{1,2700})", re.ASCII)

T = TypeVar("T")
log = logs.get_logger()


class OidcError(Exception):
    """A login fails; the text is for the person, ``reason`` for the log."""

    def __init__(self, status: int, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.reason = reason or text


class Person(NamedTuple):
    """A person whom the provider knows, with the rights of the groups."""

    name: str
    rights: Rights


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """A login on its way to the provider and back; the browser keeps it in a cookie.

    It is not signed: a page that can write the cookie can begin a login as well.
    """

    state: str
    nonce: str
    verifier: str
    target: str
    """The address below the dashboard to which the login leads, not checked."""

    @classmethod
    def to(cls, target: str) -> PendingLogin:
        """A new one, which leads to ``target``."""
        kept = target if len(target) <= _LONGEST_TARGET else "/"
        return cls(secrets.token_urlsafe(16), secrets.token_urlsafe(16), secrets.token_urlsafe(48), kept)

    @classmethod
    def parse(cls, text: str) -> PendingLogin | None:
        """Read a cookie; None for other text."""
        found = _PENDING.fullmatch(text)
        try:
            return found and cls(found[1], found[2], found[3], urlsafe_b64decode(f"{found[4]}==").decode())
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.state}.{self.nonce}.{self.verifier}.{encoded(self.target)}"


class Provider:
    """The provider that ``[web.oidc]`` describes. Raises ConfigError and MissingExtraError."""

    def __init__(self, config: OidcConfig) -> None:
        try:
            import authlib.oidc.core  # noqa: F401
        except ModuleNotFoundError as error:
            hint = "install the extra: pip install 'pyworkers-server[oidc]'"
            raise MissingExtraError(f"[web.oidc] needs the package {error.name}", hint=hint) from error
        if not config.client_secret:
            hint = "set PYWORKERS_WEB__OIDC__CLIENT_SECRET, or client_secret in [web.oidc]"
            raise ConfigError("web.oidc.client_secret: is missing", hint=hint)
        self._config = config
        self._issuer, self._client_id = config.issuer or "", config.client_id or ""
        self.name = config.name or urlsplit(self._issuer).netloc
        self.redirect_url = config.redirect_url
        # Other settings end the sessions. The secret of the client is not in Redis.
        self._key = f"oidc\0{config}\0{config.client_secret}"
        self._groups = {group: Rights.parse(text) for group, text in (config.groups or {}).items()}
        self._found: tuple[float, Mapping[str, Any]] | None = None
        self._attempts = Attempts()
        self._room = threading.BoundedSemaphore(_MOST_WAITING)

    def open_session(self, person: Person, secret: bytes) -> str:
        """The cookie of a new session. Raises OidcError for rights that a cookie cannot hold."""
        cookie = open_session(person.name, self._key, secret, time.time(), str(person.rights))
        if len(cookie) > _LONGEST_COOKIE or self.holder(str(person.rights)) is None:
            text = "Your groups have roles for too many queues: write patterns, mail*, in [web.oidc.groups]."
            raise OidcError(403, text, f"{person.name}: {text}")
        return cookie

    def holder(self, rights: str) -> tuple[object, Rights] | None:
        """What the signature of a session depends on, and the rights that it says; None for other text."""
        try:
            return self._key, Rights.parse(rights)
        except ValueError:
            return None

    async def address(self, login: PendingLogin, redirect_url: str) -> str:
        """Where a login begins. Raises OidcError."""
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        found = await self._in_thread(self._discovered)
        query = urlencode({
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_url,
            "scope": " ".join(self._config.scopes),
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": create_s256_code_challenge(login.verifier),
            "code_challenge_method": "S256",
        })  # fmt: skip
        start: str = found["authorization_endpoint"]
        return f"{start}{'&' if '?' in start else '?'}{query}"

    async def person(
        self, login: PendingLogin | None, given: Mapping[str, str], redirect_url: str, address: str
    ) -> Person:
        """Who comes back with these parameters; ``address`` is the client's. Raises OidcError."""
        if login is None or not hmac.compare_digest(login.state.encode(), given.get("state", "").encode()):
            raise OidcError(403, "This login has expired, or another one has begun since. Log in again.")
        if given.get("iss", self._issuer) != self._issuer:
            raise OidcError(403, "Another provider has answered this login. Log in again.")
        if error := given.get("error", ""):
            word = error if re.fullmatch(r"[a-z_]{1,40}", error) else "an error"
            raise OidcError(403, f"{self.name} has refused the login ({word}).")
        # Each try costs a request to the provider, which limits the requests of the dashboard.
        if wait_s := self._attempts.begin(address, "", time.monotonic()):
            raise OidcError(429, f"Too many failed attempts. Try again in {wait_s} s.")
        claims = await self._in_thread(lambda: self._claims(login, given.get("code", ""), redirect_url))
        self._attempts.succeed(address, "")
        return self._person(claims)

    async def _in_thread(self, ask: Callable[[], T]) -> T:
        if not self._room.acquire(blocking=False):
            raise OidcError(503, f"Too many logins wait for {self.name}. Try again in a minute.")
        answer: Future[T] = Future()
        answer.add_done_callback(lambda _: self._room.release())

        def run() -> None:
            answer.set_running_or_notify_cancel()
            try:
                answer.set_result(ask())
            except BaseException as error:
                answer.set_exception(error)

        # At its end, the dashboard would wait for the threads of an executor.
        threading.Thread(target=run, name="oidc", daemon=True).start()
        try:
            async with asyncio.timeout(_LONGEST_S):
                return await asyncio.wrap_future(answer)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            text = f"{self.name} does not answer as a provider of OpenID Connect does. Try again later."
            raise OidcError(503, text, str(error) or type(error).__name__) from error

    def _discovered(self) -> Mapping[str, Any]:
        """The discovery document, an hour old at most. Raises as ``_ask``."""
        if self._found is None or time.monotonic() - self._found[0] > _READ_AGAIN_S:
            found = _ask(Request(self._issuer.removesuffix("/") + _DISCOVERY))
            if found.get("issuer") != self._issuer:
                raise ValueError(f"the discovery document has another issuer: {found.get('issuer')!r}")
            for key in _ADDRESSES:
                if not is_safe_url(str(found.get(key, ""))):
                    raise ValueError(
                        f"{key} of the discovery document is not an https:// URL: {found.get(key)!r}"
                    )
            self._found = time.monotonic(), found
        return self._found[1]

    def _claims(self, login: PendingLogin, code: str, redirect_url: str) -> Mapping[str, Any]:
        """The claims of a person, checked."""
        found = self._discovered()
        tokens = self._tokens(found, login, code, redirect_url)
        claims = self._checked(tokens.get("id_token"), _ask(Request(found["jwks_uri"])), login.nonce)
        wanted = (self._config.name_claim, self._config.groups_claim)
        more = str(found.get("userinfo_endpoint", ""))
        # Some providers have the groups there alone.
        if is_safe_url(more) and any(_claim(claims, name) is None for name in wanted):
            more_claims = _ask(
                Request(more, headers={"Authorization": f"Bearer {tokens.get('access_token')}"})
            )
            if more_claims.get("sub") == claims["sub"]:
                return {**more_claims, **claims}
        return claims

    def _tokens(
        self, found: Mapping[str, Any], login: PendingLogin, code: str, redirect_url: str
    ) -> Mapping[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_url,
            "code_verifier": login.verifier,
        }
        secret, headers = self._config.client_secret or "", {}
        methods = found.get("token_endpoint_auth_methods_supported")
        if "client_secret_basic" in (methods if methods and isinstance(methods, list) else _USUAL_METHODS):
            pair = f"{quote_plus(self._client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self._client_id, "client_secret": secret}
        try:
            return _ask(Request(found["token_endpoint"], urlencode(form).encode(), headers))
        except _StatusError as error:
            if error.status >= 500:
                raise
            text = f"{self.name} does not accept this login: perhaps its code has expired. Log in again."
            raise OidcError(403, text, str(error)) from error

    def _checked(self, token: object, keys: Any, nonce: str) -> Mapping[str, Any]:
        """The claims of an ID token with a valid signature, for this client and this login."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet
        from joserfc.jws import JWSRegistry

        required = {"iss": self._issuer, "aud": self._client_id}
        options = {name: {"essential": True, "value": value} for name, value in required.items()}
        try:
            registry = JWSRegistry(algorithms=list(_ALGORITHMS), strict_check_header=False)
            read = jwt.decode(str(token), KeySet.import_key_set(keys), registry=registry)
            about = {"nonce": nonce, "client_id": self._client_id}
            claims = CodeIDToken(read.claims, read.header, options, about)
            claims.validate(leeway=_LEEWAY_S)
        except (JoseError, LookupError, TypeError, ValueError) as error:
            text = f"The ID token of {self.name} is invalid: the log of the dashboard says why."
            raise OidcError(403, text, f"ID token: {error}") from error
        return dict(claims)

    def _person(self, claims: Mapping[str, Any]) -> Person:
        name = _claim(claims, self._config.name_claim)
        if not _is_name(name):
            raise OidcError(
                403,
                f"{self.name} sends no name: the claim {self._config.name_claim} is missing, or is no text "
                f"of 1 to {_LONGEST_NAME} printable characters. name_claim in [web.oidc] names another one.",
            )
        claim = self._config.groups_claim
        held = _claim(claims, claim)
        if held is None:
            raise OidcError(
                403, f"You have no access to this dashboard: {self.name} sends no claim {claim}.", name
            )
        groups = [held] if isinstance(held, str) else held if isinstance(held, list) else []
        rights = Rights.union(rights for group, rights in self._groups.items() if group in groups)
        if rights is None:
            text = f"You have no access to this dashboard: no group in your claim {claim} has a role here."
            raise OidcError(403, text, f"{name}: no group in the claim {claim} has a role")
        return Person(name, rights)


class _AnyStatus(HTTPErrorProcessor):
    """Follows no redirection, and raises nothing."""

    def http_response(self, request: Request, response: http.client.HTTPResponse) -> Any:
        return response

    https_response = http_response


class _Deadline(HTTPSHandler, HTTPHandler):
    """Cuts the connection of a request after a time: each byte of an answer has a limit, not their sum."""

    def __init__(self) -> None:
        super().__init__()
        self._expired = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(_PATIENCE_S, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for sock in self._sockets:
            sock.close()

    def check(self) -> None:
        """Raise TimeoutError if the time was over."""
        if self._expired:
            raise TimeoutError(f"the answer takes more than {_PATIENCE_S:g} s")

    def do_open(self, http_class: Any, req: Request, **about: Any) -> Any:
        """Open the connection of a request, so that it can be cut: urllib's hook."""

        def made(*given: Any, **more: Any) -> Any:
            connection = http_class(*given, **more)
            connect = connection._create_connection

            def connected(*where: Any) -> socket.socket:
                sock: socket.socket = connect(*where)
                # A second descriptor: TLS takes the other one before its handshake.
                self._sockets.append(sock.dup())
                self.check()
                return sock

            connection._create_connection = connected
            return connection

        return super().do_open(made, req, **about)

    def _cut(self) -> None:
        self._expired = True
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class _StatusError(OSError):
    """An answer has another status than 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:200]}")
        self.status = status


def _ask(request: Request) -> dict[str, Any]:
    """The JSON object of an answer. Raises OSError, HTTPException, ValueError and RecursionError."""
    request.add_header("Accept", "application/json")
    deadline = _Deadline()
    try:
        with deadline, build_opener(_AnyStatus, deadline).open(request, timeout=_PATIENCE_S) as answer:
            status, text = answer.status, answer.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException):
        deadline.check()
        raise
    deadline.check()
    if status != 200:
        raise _StatusError(status, text.decode(errors="replace"))
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("the answer is not a JSON object")
    return found


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim; with dots in its name, also one inside of others."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _is_name(name: object) -> bool:
    return (
        isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable() and not name.isspace()
    )
