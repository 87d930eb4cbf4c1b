"""Keyed: the vectors of lock keys and of sealed arguments.

``args`` and ``by`` are JSON texts. A sealed case has the bytes that the sealing needs; one with ``refused``
cannot be opened.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any
from unittest.mock import patch

from pyworkers.protocol.flow.canonical import canonical
from pyworkers.protocol.flow.unique import BY_TIME, key_of
from pyworkers.protocol.sealing import Keyring

KEYS = [bytes(range(32)), bytes(range(100, 132)), b"\xff" * 32]
_LONG = "Very" * 16
_KEYS_OF: list[tuple[str, str, str, str, str | None, str]] = [
    ("plain", "Add", "mail", "[1,2]", None, "success"),
    ("no arguments", "Add", "mail", "[]", None, "success"),
    ("numbers that are equal", "Add", "mail", "[1.0,2e0]", None, "start"),
    ("ends by time", "Add", "mail", "[1,2]", None, "expiry"),
    ("an object in another order", "Mail::Send", "default", '[{"b":1,"a":"\\u00e9"}]', None, "success"),
    ("a large integer", "Add", "mail", "[123456789012345678901234567890]", None, "success"),
    ("by one argument", "Add", "mail", '[7,"x"]', "7", "success"),
    ("by a list", "Add", "mail", '[7,"x"]', '["x"]', "success"),
    ("by a text", "Add", "mail", '[7,"x"]', '"x"', "success"),
    ("by false", "Add", "mail", '[7,"x"]', "false", "success"),
    ("64 characters", _LONG, "q", "[]", None, "success"),
    ("65 characters", _LONG + "x", "q", "[]", None, "success"),
    ("a long queue", "C", "q" * 128, "[]", None, "success"),
    ("characters are no bytes", "é" * 64, "ü" * 65, "[]", None, "expiry"),
    ("characters are no code units", "😀" * 64, "q", "[]", None, "success"),
    ("a bar in a foreign class", "A|B", "q", "[]", None, "success"),
]


def key_cases() -> list[dict[str, Any]]:
    """Class, queue and arguments, to the key; ``by`` is what counts instead of the arguments."""
    found = []
    for name, job_class, queue, args, by, until in _KEYS_OF:
        subject = None if by is None else json.loads(by)
        key = key_of(job_class, queue, json.loads(args), subject, "args")
        case = {"name": name, "class": job_class, "queue": queue, "args": args, "unique_until": until}
        found.append(
            {**case, **({} if by is None else {"by": by}), "key": key + BY_TIME * (until == "expiry")}
        )
    return found


def digest_cases() -> list[dict[str, Any]]:
    """The digest in the key of a sealed job: HMAC-SHA-256 of the canonical arguments."""
    found = []
    for number, args in enumerate(("[]", "[1.0,2]", '[{"b":1,"a":"é"}]')):
        for newest in (0, 1):
            text = canonical(json.loads(args))
            digest = Keyring(KEYS[newest:]).digest(text)
            case = {
                "name": f"digest {number} with key {newest}",
                "key": as_base64(KEYS[newest]),
                "args": args,
            }
            plain = hashlib.sha256(text).hexdigest()
            found.append(
                {**case, "canonical": text.decode(), "sha256": plain[:32], "hmac": digest.hex()[:32]}
            )
    return found


def sealed_cases() -> list[dict[str, Any]]:
    """Arguments that are sealed with a given nonce, and sealed ones that cannot be opened."""
    found = []
    for number, (args, jid, job_class) in enumerate(
        (
            ("[]", "c0ffee000000000000000001", "Add"),
            ('[1,2.5,"a",null,{"b":[true]}]', "c0ffee000000000000000002", "Mail::Send"),
            ('["é😀\\u2028<"]', 'a jid "with" quotes', "Été\\n"),
        )
    ):
        for newest in (0, 2):
            nonce = hashlib.sha256(f"{number} {newest}".encode()).digest()[:12]
            found.append(
                _sealed(f"sealed {number} with key {newest}", KEYS[newest], nonce, args, jid, job_class)
            )
    return [*found, *_refused(found[0])]


def _sealed(name: str, key: bytes, nonce: bytes, args: str, jid: str, job_class: str) -> dict[str, Any]:
    with patch("os.urandom", lambda size: nonce):
        sealed = Keyring([key]).seal(args, jid, job_class)
    packed = base64.b64decode(sealed)
    about = packed[:9] + json.dumps([jid, job_class], separators=(",", ":"), ensure_ascii=False).encode()
    return {
        "name": name,
        "keys": [as_base64(key)],
        "key_name": packed[1:9].hex(),
        "nonce": nonce.hex(),
        "jid": jid,
        "class": job_class,
        "args": args,
        "authenticated": about.hex(),
        "sealed": sealed,
    }


def _refused(case: dict[str, Any]) -> list[dict[str, Any]]:
    packed = base64.b64decode(case["sealed"])
    same = {field: case[field] for field in ("keys", "jid", "class", "sealed")}
    changes: dict[str, dict[str, Any]] = {
        "the job has another id": {"jid": "other"},
        "the job has another class": {"class": "Other"},
        "the key is missing": {"keys": [as_base64(KEYS[1])]},
        "a byte of the text was changed": {"sealed": as_base64(packed[:-1] + bytes([packed[-1] ^ 1]))},
        "another version": {"sealed": as_base64(b"\x02" + packed[1:])},
        "too short": {"sealed": as_base64(packed[:36])},
        "no base64": {"sealed": "not sealed"},
        "an empty text": {"sealed": ""},
    }
    found: list[dict[str, Any]] = [
        {"name": f"refused: {why}", **same, **change, "refused": why} for why, change in changes.items()
    ]
    both = {**same, "keys": [as_base64(KEYS[1]), *case["keys"]]}
    return [*found, {"name": "opened by an older key", **both, "args": case["args"]}]


def as_base64(data: bytes) -> str:
    """The bytes as a text."""
    return base64.b64encode(data).decode()
