"""TLS: what a URL and the configuration say about it, and the contexts of its connections.

Used by every process that connects to Redis or to sentinels. Each new connection looks at the files, because
they are renewed while servers run. While new files do not fit together, connections use the earlier ones. It
never asks for the password of a key.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import redis

from pyworkers.config.fields import RedisConfig

_SCHEMES = ("rediss", "rediss+sentinel", "rediss+cluster")
_PREFIX = "ssl_"
_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

_Stamps = tuple[tuple[int, ...] | None, ...]


class TlsError(redis.ConnectionError):
    """TLS fails: by the files, by the certificate of the peer, or because the port does not speak it."""


def has_tls(url: str) -> bool:
    """True if connections to the server of a URL, and to its sentinels or nodes, are by TLS."""
    return url.partition("://")[0] in _SCHEMES


@dataclass(frozen=True, slots=True)
class Tls:
    """The settings of one URL. The names are the options in a URL, without ``ssl_``."""

    ca_certs: str = ""
    certfile: str = ""
    keyfile: str = ""
    ca_path: str = ""
    ca_data: str = ""
    password: str = field(default="", repr=False)
    cert_reqs: str = "required"
    check_hostname: bool = True
    min_version: int = 0
    ciphers: str = ""
    include_verify_flags: tuple[ssl.VerifyFlags, ...] = ()
    exclude_verify_flags: tuple[ssl.VerifyFlags, ...] = ()

    @classmethod
    def of(cls, config: RedisConfig, given: dict[str, Any]) -> Tls:
        """The settings of the configuration and of its URL, whose options, ``given``, go first.

        Raises ValueError.
        """
        files = {"ca_certs": config.ca_file, "certfile": config.cert_file, "keyfile": config.key_file}
        options = {name.removeprefix(_PREFIX): value for name, value in given.items()}
        # As a text by redis-py before 6.3.
        options["min_version"] = int(options.get("min_version", 0))
        for name in options.keys() & {"include_verify_flags", "exclude_verify_flags"}:
            options[name] = _flags(name, options[name])
        found = cls(**{**files, **options})
        found._check()
        return found

    def _check(self) -> None:
        if self.keyfile and not self.certfile:
            raise ValueError("key_file is set, and cert_file is not: set both")
        if self.cert_reqs not in _VERIFY:
            raise ValueError(f"ssl_cert_reqs must be one of {', '.join(_VERIFY)}, not {self.cert_reqs!r}")
        if self.min_version:
            ssl.TLSVersion(self.min_version)

    def context(self) -> ssl.SSLContext:
        """A new context, from what the files hold now. Raises ValueError, which names the file at fault."""
        files = {"ca_file": self.ca_certs, "cert_file": self.certfile, "key_file": self.keyfile}
        for name, file in files.items():
            _check_readable(name, file)
        context = self._trusting()
        context.check_hostname = self.check_hostname and self.cert_reqs != "none"
        context.verify_mode = _VERIFY[self.cert_reqs]
        self._identify(context)
        for flag in self.include_verify_flags:
            context.verify_flags |= flag
        for flag in self.exclude_verify_flags:
            context.verify_flags &= ~flag
        if self.min_version:
            context.minimum_version = ssl.TLSVersion(self.min_version)
        if self.ciphers:
            context.set_ciphers(self.ciphers)
        return context

    def _trusting(self) -> ssl.SSLContext:
        """A context that trusts these certificates alone; the ones of the system if none are named."""
        try:
            return ssl.create_default_context(
                cafile=self.ca_certs or None, capath=self.ca_path or None, cadata=self.ca_data or None
            )
        except ssl.SSLError:
            where = f"ca_file {self.ca_certs}" if self.ca_certs else "ssl_ca_data"
            raise ValueError(f"{where} has no complete certificates in PEM") from None

    def _identify(self, context: ssl.SSLContext) -> None:
        if not self.certfile:
            return
        try:
            # With a password, be it empty, OpenSSL does not ask the terminal.
            context.load_cert_chain(self.certfile, self.keyfile or None, self.password)
        except ssl.SSLError as error:
            key = f"key_file {self.keyfile}" if self.keyfile else "the key in the same file"
            if error.reason == "KEY_VALUES_MISMATCH":
                raise ValueError(f"cert_file {self.certfile} and {key} do not match") from None
            text = f"cert_file {self.certfile} and {key} are not both complete and in PEM without a password"
            raise ValueError(text) from None

    @property
    def places(self) -> tuple[str, ...]:
        """The files and folders that a context is made from."""
        if not (self.ca_certs or self.ca_path or self.ca_data):
            system = ssl.get_default_verify_paths()
            trusted = (system.cafile, system.capath)
        else:
            trusted = (self.ca_certs, self.ca_path)
        return tuple(filter(None, (*trusted, self.certfile, self.keyfile)))


def _flags(name: str, value: object) -> tuple[ssl.VerifyFlags, ...]:
    if not isinstance(value, list):
        # redis-py reads them since 6.3.
        raise ValueError(f"option {_PREFIX}{name} cannot be set in a URL")
    return tuple(value)


def _check_readable(name: str, file: str) -> None:
    # ``ssl`` leaves the name out of its errors.
    try:
        if file:
            Path(file).open("rb").close()
    except OSError as error:
        raise ValueError(f"{name} {file}: {error.strerror}") from None


_EXPIRED, _NOT_YET_VALID = 10, 9
_OTHER_NAME, _OTHER_ADDRESS = 62, 64
# OpenSSL's X509_V_ERR_…: the issuer is unknown, or signs itself.
_UNTRUSTED = (2, 18, 19, 20, 21)


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection; ``announced``: sentinels or nodes gave its host, and not the URL."""

    host: str
    port: int
    kind: str
    announced: bool

    def __str__(self) -> str:
        return spell(self.host, self.port)

    @property
    def speaks_plain(self) -> str:
        """The error of a port without TLS."""
        return (
            f"{self} does not speak TLS: use redis{self.kind}:// instead of rediss{self.kind}://, "
            "or the port of Redis' tls-port"
        )

    @property
    def speaks_tls(self) -> str:
        """The error of a port with TLS."""
        return f"{self} speaks TLS: use rediss{self.kind}:// instead of redis{self.kind}://"


def spell(host: str, port: int) -> str:
    """An address for people."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def explain(error: ssl.SSLError, peer: Peer, tls: Tls) -> str:
    """What is wrong, where, and the fix, in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_refusal(error.verify_code, error.verify_message, peer, tls)
    alert = (error.reason or "").partition("ALERT_")[2]
    if alert == "CERTIFICATE_REQUIRED" or (alert == "HANDSHAKE_FAILURE" and not tls.certfile):
        return f"{peer} demands a certificate of the client: set cert_file and key_file"
    if alert == "CERTIFICATE_EXPIRED":
        return f"{peer} refuses cert_file {tls.certfile}, which has expired: renew it"
    if alert == "UNKNOWN_CA":
        return (
            f"{peer} refuses cert_file {tls.certfile}: have it signed by an authority in its tls-ca-cert-file"
        )
    if "CERTIFICATE" in alert:
        return f"{peer} refuses cert_file {tls.certfile}: {_words(alert)}"
    if alert == "PROTOCOL_VERSION" or error.reason in ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE"):
        return f"{peer} speaks other versions of TLS: compare its tls-protocols with ssl_min_version"
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return peer.speaks_plain
    return f"{peer}: {_words(alert or error.reason or str(error))}"


def _explain_refusal(code: int, message: str, peer: Peer, tls: Tls) -> str:
    if code == _EXPIRED:
        return (
            f"the certificate of {peer}, or of its authority, has expired: "
            "renew it, there (tls-cert-file) or here (ca_file)"
        )
    if code == _NOT_YET_VALID:
        return f"the certificate of {peer} is not valid yet: compare the clocks of the two hosts"
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        announcer = "nodes" if peer.kind == "+cluster" else "sentinels"
        where = f"have the {announcer} announce" if peer.announced else "write in redis.url"
        return (
            f"the certificate of {peer} is not for {peer.host}: issue one that names it, "
            f"or {where} a name that the certificate has"
        )
    if code in _UNTRUSTED:
        trusted = f"ca_file {tls.ca_certs}" if tls.ca_certs else "the certificates of the system"
        fix = "add" if tls.ca_certs else "set ca_file to"
        return (
            f"the certificate of {peer} is not signed by an authority in {trusted}: "
            f"{fix} the certificate of its authority"
        )
    return f"the certificate of {peer} is refused: {message}"


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ")


class FilesState(NamedTuple):
    """The context in use, if there is one, and why it is not made from the files of now, if it is not."""

    context: ssl.SSLContext | None
    fault: str


class Contexts:
    """The context of one group of settings in this process, made again when its files have changed."""

    def __init__(self, tls: Tls) -> None:
        self.tls = tls
        self._stamps: _Stamps = ()
        self._state = FilesState(None, "")

    def current(self) -> ssl.SSLContext:
        """The context for a connection that is opened now.

        Raises TlsError if the files do not fit together, and did not since this process began.
        """
        state = self.look()
        if state.context is None:
            raise TlsError(state.fault)
        return state.context

    def look(self) -> FilesState:
        """Read the files if they have changed."""
        # Before the files are read: a change meanwhile is found by the next call.
        stamps = tuple(map(_stamp, self.tls.places))
        if stamps != self._stamps or self._state.context is None:
            try:
                self._state = FilesState(self.tls.context(), "")
            except (OSError, ValueError) as error:
                self._state = FilesState(self._state.context, str(error))
            self._stamps = stamps
        return self._state

    def explain(self, error: ssl.SSLError, peer: Peer) -> str:
        """What is wrong with a connection, where, and the fix."""
        fault = self._state.fault
        kept = f"; an earlier state of the files is in use, because {fault}" if fault else ""
        return explain(error, peer, self.tls) + kept


OPTIONS = frozenset(f"{_PREFIX}{option.name}" for option in fields(Tls))
"""The options of TLS that a URL may have."""


@cache
def contexts_of(tls: Tls) -> Contexts:
    """The contexts of these settings. All connections of the process share them."""
    return Contexts(tls)


def _stamp(place: str) -> tuple[int, ...] | None:
    """What changes with each write of a file, also with a change of its rights; None if it is missing."""
    try:
        found = Path(place).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
