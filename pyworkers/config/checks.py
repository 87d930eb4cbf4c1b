"""Checks: the rules for single values of the configuration, and how secrets are displayed.

Pure; used by ``fields``, and for every URL that is displayed. Each check raises ValueError with the rule; no
error quotes a secret.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
from urllib.parse import parse_qs, unquote, urlsplit
from zoneinfo import ZoneInfo, available_timezones

from pyworkers.config.directories import ESCAPES, DirectoryUrl, is_cluster, is_directory
from pyworkers.http.hosts import is_loopback
from pyworkers.protocol.cronlines import check_schedule
from pyworkers.protocol.keys import hash_tag

_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:pass|auth|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)
# From the first colon after the scheme to the *last* @: real passwords hold @ and /, and a sentinel URL may
# have one password per host. For a URL with an @ further right, the host is masked, too, but no secret is
# shown. No possessive quantifier: with one, Python 3.11.2 leaves secrets unmasked.
_USERINFO = re.compile(r"\A(?!embedded:)([^/?#]*?://|(?![^/?#]*?://))([^:]*):.*@", re.DOTALL)
_SCHEMES = (
    *("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"),
    *("redis+cluster", "rediss+cluster"),
)
_PREFIX = re.compile(r"(/(?!\.\.?(/|\Z))[A-Za-z0-9._~-]+)+")
OIDC_CALLBACK = "/login/oidc/callback"
"""The path below the dashboard to which a provider of OpenID Connect sends people back."""
_HOST = re.compile(r"\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]]+")


def mask_url(url: str) -> str:
    """The URL with every password replaced by ``***``. For display; the URL may be malformed."""
    return _USERINFO.sub(r"\1\2:***@", _SECRET_PARAMETER.sub(r"\1***", url))


def mask_text(secret: str) -> str:
    """A secret as it is displayed."""
    return "***" if secret else ""


def check_app(app: str) -> None:
    """Check the place of an application: ``module:attribute``."""
    if not re.fullmatch(r"[\w.]+:[\w.]+", app):
        raise ValueError(f"must be module:attribute, e.g. tasks:worker, not {app!r}{_app_meant(app)}")


def _app_meant(path: str) -> str:
    """The application in a file whose path was given; empty for any other text."""
    file, _, attribute = path.partition(":")
    module = file.removeprefix("./").removesuffix(".py").replace("/", ".")
    near = f"{module}:{attribute or 'worker'}"
    return f"; did you mean {near}?" if module != file and re.fullmatch(r"\w+(\.\w+)*:\w+", near) else ""


def check_url(url: str) -> None:
    """Check the URL of a Redis, of sentinels, of a cluster or of an embedded server."""
    scheme, _, rest = url.partition(":" if url.startswith("embedded:") else "://")
    if scheme not in (*_SCHEMES, "embedded") or not rest:
        schemes = f"{', '.join(f'{known}://' for known in _SCHEMES)}, embedded:DIR"
        raise ValueError(f"{mask_url(url)!r} is not a Redis URL: use {schemes}")
    if scheme in ("redis", "rediss") and not _has_valid_port(url):
        raise ValueError(f"{mask_url(url)!r} has an invalid port {ESCAPES}")
    if scheme in ("redis", "rediss", "unix") and not _has_valid_database(url):
        # The rest of a password with a slash is read as the path.
        in_password = "@" in rest.partition("/")[2].partition("?")[0]
        fix = ESCAPES if in_password else "(a number, e.g. 0; for a name use a namespace)"
        raise ValueError(f"{mask_url(url)!r} has an invalid database {fix}")
    if is_directory(url):
        DirectoryUrl.of(url)


def _has_valid_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:  # not passed on: its text may quote a part of the password
        return False


def _has_valid_database(url: str) -> bool:
    """True if redis-py finds a number; for another path it would take the database 0."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket in a user name of unix://, of which the connection says more
        return True
    path = "" if parts.scheme == "unix" else unquote(parts.path).strip("/")
    database = parse_qs(parts.query).get("db", [path])[0]
    return not database or bool(re.fullmatch(r"[0-9]+", database))


def check_namespace(namespace: str) -> None:
    """Check the prefix of every key."""
    if not re.fullmatch(r"(\S*:)?", namespace):
        raise ValueError(f"must be empty or end with a colon, without white space, not {namespace!r}")


def check_slot(url: str, namespace: str) -> None:
    """Check that all keys are in one slot, if the URL is of a cluster."""
    if is_cluster(url) and not hash_tag(namespace):
        name = re.sub(r"[{}]|:\Z", "", namespace) or "app"
        raise ValueError(
            "a cluster needs a namespace with a hash tag, which puts all keys into one slot: "
            f'write namespace = "{{{name}}}:"'
        )


def check_bind(bind: str) -> None:
    """Check an address for the HTTP endpoint, or nothing."""
    host, _, port = bind.rpartition(":")
    valid_port = re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535
    if bind and not (valid_port and _HOST.fullmatch(host)):
        raise ValueError(f"must be empty or host:port with a port from 1 to 65535, not {bind!r}")


def check_web_bind(bind: str) -> None:
    """Check an address of the dashboard."""
    if bind.startswith("unix:"):
        if not bind.removeprefix("unix:"):
            raise ValueError("unix: needs a path, e.g. unix:/run/pyworkers/web.sock")
    elif not bind:
        raise ValueError("must be host:port or unix:PATH, not empty")
    else:
        check_bind(bind)


def check_web_prefix(prefix: str) -> None:
    """Check the path below which a proxy shows the dashboard."""
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ValueError(f'must be empty or a path without a slash at its end, e.g. "/jobs", not {prefix!r}')


def check_hosts(names: tuple[object, ...]) -> None:
    """Check the names of ``[web] hosts``: without scheme, port or path."""
    for name in names:
        if not isinstance(name, str) or not _HOST.fullmatch(name) or "/" in name:
            raise ValueError(f"must be names without port, e.g. jobs.example.com, not {name!r}")


def check_mask(names: tuple[object, ...]) -> None:
    """Check the names of ``[web] mask``."""
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(f"must be names of keys, not {name!r}")


def check_label(text: str) -> None:
    """Check a text for people."""
    if not text or not text.isprintable():
        raise ValueError(f"must be printable and not empty, not {text!r}")


def check_timezone(name: str) -> None:
    """Check a name of the tz database."""
    try:
        ZoneInfo(name)
    except (LookupError, ValueError, OSError) as exc:  # OSError: "Europe" is a folder
        close = difflib.get_close_matches(name, available_timezones(), n=1)
        near = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(f"{name!r} is not a time zone{near}") from exc


def check_every(period: str) -> None:
    """Check a period such as ``5m``."""
    check_schedule(f"every {period}")


def check_args(args: tuple[object, ...]) -> None:
    """Check the arguments of a job."""
    try:
        json.dumps(args, allow_nan=False)
    except TypeError as exc:  # a TOML date
        raise ValueError(f"must be JSON values: {exc}") from exc


def mask_path(url: str) -> str:
    """The URL with its path replaced by ``***``: the URL alone allows to post."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}/***"


def check_alarm_url(url: str) -> None:
    """Check the URL of a webhook."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"must be a URL, https://host/path, not {mask_url(url)!r}")


def is_safe_url(url: str) -> bool:
    """True for a URL by HTTPS, or by HTTP to this machine: others could read and change the rest."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        fits = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
        return fits and bool(host) and parts.port != 0 and url.isascii() and url.isprintable()
    except ValueError:
        return False


def check_issuer(url: str) -> None:
    """Check the URL of a provider of OpenID Connect, or nothing."""
    if url and (not is_safe_url(url) or re.search(r"[\s?#@]", url)):
        raise ValueError(f"must be https://host or https://host/path (http:// on this machine), not {url!r}")


def check_redirect_url(url: str) -> None:
    """Check the URL to which a provider of OpenID Connect sends people back, or nothing."""
    if url and not (is_safe_url(url) and url.endswith(OIDC_CALLBACK) and not re.search(r"[\s?#@]", url)):
        raise ValueError(f"must be https://host…{OIDC_CALLBACK}, not {url!r}")


def check_scopes(names: tuple[object, ...]) -> None:
    """Check the scopes of OpenID Connect."""
    if "openid" not in names or not all(
        isinstance(name, str) and re.fullmatch(r"[!#-\[\]-~]+", name) for name in names
    ):
        raise ValueError(f'must be names without spaces, "openid" among them, not {list(names)!r}')


def check_smtp(url: str) -> None:
    """Check the URL of a mail server, or nothing."""
    if not url:
        return
    parts = urlsplit(url)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or not _has_valid_port(url):
        raise ValueError(f"must be smtp://host:port or smtps://host:port {ESCAPES}, not {mask_url(url)!r}")


def check_mail(address: str) -> None:
    """Check an address of mail, or nothing."""
    if address and not re.fullmatch(r"[^\s@<>,;:\"]+@[^\s@<>,;:\"]+", address):
        raise ValueError(f"must be an address, ops@example.com, not {address!r}")


def check_networks(networks: tuple[object, ...]) -> None:
    """Check the networks of ``[alarms] private``."""
    for network in networks:
        try:
            ipaddress.ip_network(str(network))
        except ValueError as exc:
            raise ValueError(f"must be networks, 10.0.0.0/8: {exc}") from exc
