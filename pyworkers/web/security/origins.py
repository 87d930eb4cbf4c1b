"""Origins: whether a page of this dashboard has sent a request, as the browser says, and the tokens of forms.

Pure. Both must agree: the token proves it where a browser says nothing.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from urllib.parse import urlsplit

# "same-site" is another host of the same domain; "none" is the person, by the address bar.
_OWN_SITES = ("same-origin", "none")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_own(headers: Mapping[str, str]) -> bool:
    """False if the browser says that another site has sent the request.

    The origin is compared also where the browser calls the request its own: behind a proxy that sends its own
    name for the dashboard as ``Host``, the page is of a host that the dashboard does not know.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OWN_SITES:
        return False
    return _is_origin_own(headers)


def _is_origin_own(headers: Mapping[str, str]) -> bool:
    origin = headers.get("origin")
    if origin is None:
        return True
    # A proxy may have ended TLS: only the browser knows the scheme.
    own = _place(f"{origin.partition(':')[0]}://{headers.get('host', '')}")
    return own is not None and own == _place(origin)


def may_read(headers: Mapping[str, str]) -> bool:
    """False if a page of another site asks by a script, or embeds the answer; its links may lead here."""
    site = headers.get("sec-fetch-site")
    is_own_or_link = site is None or site in _OWN_SITES or headers.get("sec-fetch-mode") == "navigate"
    return is_own_or_link and _is_origin_own(headers)


def _place(address: str) -> tuple[str, int | None] | None:
    """The host and the port of an address; None for another text, ``null`` for example."""
    try:
        parts = urlsplit(address)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname else None


def token(secret: bytes, binding: str) -> str:
    """The token of the forms in one session; ``binding`` is what only this browser holds."""
    return urlsafe_b64encode(hmac.digest(secret, f"form\0{binding}".encode(), "sha256")).decode().rstrip("=")


def is_token(given: str, secret: bytes, binding: str) -> bool:
    """True for the token of this session."""
    return hmac.compare_digest(given.encode(errors="replace"), token(secret, binding).encode())
