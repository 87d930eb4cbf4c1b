"""A small provider of OpenID Connect on loopback: one person, whose claims and faults a test chooses."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import Key, OctKey, RSAKey

from pyworkers.web.security.sessions import encoded

CLIENT = ("dashboard", "a long secret/+ of a client")


def key(name: str) -> Key:
    """A key of this test run, or the secret of the client as a key."""
    if name == "secret":
        return OctKey.import_key(CLIENT[1])
    return rsa_key(name)


@cache
def rsa_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name}, auto_kid=False)


@dataclass
class OpenIdProvider:
    """What the provider answers; its person is Ann of the group ``platform``."""

    issuer: str = ""
    claims: dict[str, Any] = field(
        default_factory=lambda: {"preferred_username": "ann", "groups": ["platform"]}
    )
    """The claims of the ID token, over the usual ones."""
    userinfo: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    """The error with which a login comes back."""
    signing: str = "one"
    """The name of the key that signs; that of ``one`` is published."""
    header: dict[str, str] = field(default_factory=lambda: {"alg": "RS256", "kid": "one"})
    instead: dict[str, Any] = field(default_factory=dict)
    """The answers to these paths, whatever is asked."""
    asked: list[str] = field(default_factory=list)
    """The paths of the requests."""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def answer(
        self, path: str, query: Mapping[str, str], form: Mapping[str, str], headers: Mapping[str, str]
    ) -> Any:
        """The JSON of an answer, or its bytes; a text is an address to redirect to; a number is a status."""
        self.asked.append(path)
        if path in self.instead:
            return self.instead[path]
        if path == "/.well-known/openid-configuration":
            return self._discovery()
        if path == "/authorize":
            return self._authorized(query)
        if path == "/keys":
            return {"keys": [rsa_key("one").as_dict(private=False), {"kty": "unheard of"}]}
        if path == "/userinfo":
            return {"sub": "7", **self.userinfo} if headers.get("authorization") == "Bearer access" else 401
        return self._tokens(form, headers) if path == "/token" else 404

    def _discovery(self) -> dict[str, Any]:
        places = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
        found = {f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in places.items()}
        return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", **found, **self.metadata}

    def _authorized(self, query: Mapping[str, str]) -> str:
        answer = {"state": query["state"], "iss": self.issuer}
        if self.error:
            return f"{query['redirect_uri']}?{urlencode({**answer, 'error': self.error})}"
        code = secrets.token_urlsafe(8)
        self._codes[code] = dict(query)
        return f"{query['redirect_uri']}?{urlencode({**answer, 'code': code})}"

    def _tokens(self, form: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        kind, _, pair = headers.get("authorization", "").partition(" ")
        client = (form.get("client_id", ""), form.get("client_secret", ""))
        if kind == "Basic":
            name, _, secret = b64decode(pair).decode().partition(":")
            client = (unquote_plus(name), unquote_plus(secret))
        begun = self._codes.pop(form["code"], None)
        fits = (
            client == CLIENT
            and begun is not None
            and begun["redirect_uri"] == form["redirect_uri"]
            and begun["code_challenge_method"] == "S256"
            and create_s256_code_challenge(form["code_verifier"]) == begun["code_challenge"]
        )
        if not fits or begun is None:
            return 400
        now = int(time.time())
        usual = {"iss": self.issuer, "sub": "7", "aud": CLIENT[0], "iat": now, "exp": now + 60}
        claims = {**usual, "nonce": begun["nonce"], **self.claims}
        return {"access_token": "access", "token_type": "Bearer", "id_token": self._signed(claims)}

    def _signed(self, claims: Mapping[str, Any]) -> str:
        if self.header["alg"] == "none":
            return ".".join(encoded(json.dumps(part)) for part in (self.header, claims)) + "."
        return str(jwt.encode(self.header, dict(claims), key(self.signing), [self.header["alg"]]))


def _handler(provider: OpenIdProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length", 0))
            query, form = (_fields(text) for text in (parts.query, self.rfile.read(length).decode()))
            given = {name.lower(): value for name, value in self.headers.items()}
            answer = provider.answer(parts.path, query, form, given)
            self.send_response(302 if isinstance(answer, str) else answer if isinstance(answer, int) else 200)
            if isinstance(answer, str):
                self.send_header("Location", answer)
            body = b"" if isinstance(answer, str) else answer
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _fields(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}


@contextmanager
def open_id_provider() -> Iterator[OpenIdProvider]:
    """The provider, which a thread serves."""
    provider = OpenIdProvider()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(provider)) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"


@contextmanager
def slow_provider(head: bytes = _HEAD) -> Iterator[tuple[str, threading.Event]]:
    """The issuer of a provider that never ends its answer, and an event: it has been asked.

    ``head`` is sent at once, and then a byte at a time.
    """
    asked, ended = threading.Event(), threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            asked.set()
            connection.sendall(head)
            while not ended.wait(0.05):
                connection.sendall(b" ")

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
