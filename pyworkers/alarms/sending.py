"""Sending: one message to a webhook, to Slack or by mail, to an address that may be reached.

Run in threads of ``pyworkers alarms``. The address is checked when it is connected, not before: a name may
have another one a moment later. No redirect is followed, and no proxy is used.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote, urlsplit

import simplejson

from pyworkers.alarms.incident import BEGUN
from pyworkers.config.fields import AlarmConfig, AlarmsConfig
from pyworkers.text import printable
from pyworkers.version import __version__

LONGEST_S = 15.0
"""The time for one message, with its connection."""
_CONNECT_S = 5.0
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class SendingError(Exception):
    """A message was not taken; the text says why."""


@dataclass(frozen=True, slots=True)
class AlarmMessage:
    """What is told: an alarm that has begun or ended. ``id`` is the same in all messages of one incident."""

    id: str
    alarm: str
    state: str
    """``begun``, ``ended``, or ``test``."""
    when: str
    text: str
    since: float
    """Its begin, in epoch seconds."""
    ended: float | None = None

    @property
    def title(self) -> str:
        """The message in one line."""
        word = {BEGUN: "ALARM", "ended": "over", "test": "TEST"}[self.state]
        return printable(f"[{word}] {self.alarm}: {self.text}")

    def as_dict(self) -> dict[str, Any]:
        """The JSON of a webhook."""
        return {
            "id": self.id,
            "alarm": self.alarm,
            "state": self.state,
            "when": self.when,
            "message": self.text,
            "since": self.since,
            "ended": self.ended,
        }


def send(target: str, alarm: AlarmConfig, settings: AlarmsConfig, message: AlarmMessage) -> None:
    """Send a message to a target of the alarm, ``webhook``, ``slack`` or ``mail``. Raises SendingError."""
    path = _Path(settings.private)
    try:
        with path.within(LONGEST_S):
            if target == "webhook":
                body = simplejson.dumps(message.as_dict()).encode()
                _post(alarm.webhook or "", body, _signed(body, settings.secret), path)
            elif target == "slack":
                _post(alarm.slack or "", simplejson.dumps({"text": message.title}).encode(), {}, path)
            else:
                _mail(alarm.mail or "", message, settings, path)
    except http.client.InvalidURL as error:
        # Its text has the address, which people who only read must not see.
        raise SendingError("the address has a space or a control character") from error
    except (OSError, http.client.HTTPException, smtplib.SMTPException, ValueError) as error:
        if path.expired:
            raise SendingError(f"no answer within {LONGEST_S:g} s") from error
        raise SendingError(str(error) or type(error).__name__) from error


def _signed(body: bytes, secret: str) -> Mapping[str, str]:
    """The header with the time and the HMAC-SHA256 of ``TIME.BODY``."""
    if not secret:
        return {}
    at = str(int(time.time()))
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Pyworkers-Signature": f"t={at},v1={digest}"}


def _post(url: str, body: bytes, headers: Mapping[str, str], path: _Path) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = _Http(path, host, port, parts.scheme == "https")
    where = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    about = {
        "Content-Type": "application/json",
        "User-Agent": f"pyworkers/{__version__}",
        "Connection": "close",
    }
    connection.request("POST", where, body, {**about, "Host": parts.netloc.rpartition("@")[2], **headers})
    status = connection.getresponse().status
    if not 200 <= status < 300:
        what = "redirects, which are not followed" if 300 <= status < 400 else f"answers {status}"
        raise SendingError(f"{host} {what}")


def _mail(address: str, message: AlarmMessage, settings: AlarmsConfig, path: _Path) -> None:
    if not settings.smtp or not settings.sender:
        raise SendingError("mail needs smtp and sender in [alarms]")
    parts = urlsplit(settings.smtp)
    host, tls = parts.hostname or "", parts.scheme == "smtps"
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = settings.sender, address, message.title[:200]
    mail["Date"] = formatdate()
    # The messages of one incident are one thread.
    thread = f"<{message.id}@pyworkers>"
    mail["Message-ID"] = thread if message.state == BEGUN else f"<{message.id}.{message.state}@pyworkers>"
    if message.state != BEGUN:
        mail["References"] = mail["In-Reply-To"] = thread
    mail.set_content(
        f"{message.text}\n\nAlarm {message.alarm}, {message.id}, since {formatdate(message.since)}\n"
    )
    with _Smtp(path, host, parts.port or (465 if tls else 587), tls) as server:
        if not tls and server.has_extn("starttls"):
            server.starttls(context=ssl.create_default_context())
            server.ehlo()
        elif not tls and parts.username:
            raise SendingError(f"{host} has no STARTTLS: the password would be sent in plain text")
        if parts.username:
            server.login(unquote(parts.username), unquote(parts.password or ""))
        server.send_message(mail)


class _Http(http.client.HTTPConnection):
    """A connection to a web server over a checked path."""

    def __init__(self, path: _Path, host: str, port: int, tls: bool) -> None:
        super().__init__(host, port)
        self._path, self._tls = path, tls

    def connect(self) -> None:
        """Connect, if the address may be reached."""
        self.sock = self._path.connect(self.host, self.port, tls=self._tls)


class _Smtp(smtplib.SMTP):
    """A connection to a mail server over a checked path."""

    def __init__(self, path: _Path, host: str, port: int, tls: bool) -> None:
        self._path, self._tls = path, tls
        super().__init__(host, port, timeout=LONGEST_S)
        self.ehlo()

    def _get_socket(self, host: str, port: int, _timeout: float) -> socket.socket:
        return self._path.connect(host, port, tls=self._tls)


@dataclass(slots=True)
class _Path:
    """Connections to public addresses, and to those in the ``private`` networks, for a limited time."""

    private: Sequence[str]
    expired: bool = False
    _open: list[socket.socket] = field(default_factory=list)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Cut the connections after this time: each byte of a slow answer has a time limit, not their sum."""
        done = threading.Event()
        threading.Thread(target=self._expire, args=(done, seconds), daemon=True).start()
        try:
            yield
        finally:
            done.set()
            for sock in self._open:
                sock.close()

    def _expire(self, done: threading.Event, seconds: float) -> None:
        if done.wait(seconds):
            return
        self.expired = True
        for sock in self._open:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                # It has been closed meanwhile.
                continue

    def connect(self, host: str, port: int, *, tls: bool) -> socket.socket:
        """A connection. Raises SendingError for an address that may not be reached."""
        refused: list[str] = []
        failed: OSError | None = None
        for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
            if not self._allows(ip):
                refused.append(str(ip))
                continue
            try:
                sock = socket.create_connection((str(ip), port), _CONNECT_S)
            except OSError as error:
                failed = error
                continue
            self._open.append(sock)
            sock.settimeout(LONGEST_S)
            return self._secured(sock, host) if tls else sock
        if failed is not None:
            raise failed
        raise SendingError(
            f"{host} has the address {', '.join(refused)}, which is not public: "
            "add its network to private in [alarms]"
        )

    def _secured(self, sock: socket.socket, host: str) -> socket.socket:
        secured = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        self._open.append(secured)
        return secured

    def _allows(self, ip: _Address) -> bool:
        inner = _inner(ip)
        if any(inner in ipaddress.ip_network(network) for network in self.private):
            return True
        return inner.is_global and not inner.is_multicast


def _inner(ip: _Address) -> _Address:
    """The IPv4 address that an IPv6 address leads to, else the address itself."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    if ip in _TRANSLATED:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip
