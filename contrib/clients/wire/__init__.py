"""Wire: the files from which clients in other languages are built: scripts and test vectors.

``python -m contrib.clients.wire`` writes them. A test holds them equal to what Python's own clients and
servers use.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from contrib.clients.wire import batches, canonicals, envelopes, failures, keyed, pushes, runs, states
from pyworkers.protocol.wire import VERSION
from pyworkers.store import scripts

FOLDER = Path(__file__).parent
SCRIPTS = {"push.lua": "push", "batch.lua": "batches/enlist", "cancel.lua": "cancel"}
"""The scripts of producers, by file."""
FOR_WORKERS = {
    "exchange.lua": "exchange",
    "renew.lua": "renew",
    "deregister.lua": "deregister",
    "recover.lua": "recover",
    "limited.lua": "limits/take",
    "ask.lua": "limits/ask",
    "ordered.lua": "ordered/take",
    "release.lua": "ordered/release",
}
"""The scripts of workers, by file."""
COPIES = ("go", "node/src", "ruby/lib/pyworkers")
"""The folders of clients with a copy of each script of producers: a published client is complete."""
WITH_WORKER = ("go",)
"""The ones of these that have a worker, with a copy of each script that it calls."""
_OF_WORKERS = tuple(name for name in FOR_WORKERS if name != "recover.lua")
_SECTIONS: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
    "canonical": canonicals.cases,
    "unique_keys": keyed.key_cases,
    "sealed": keyed.sealed_cases,
    "digests": keyed.digest_cases,
    "envelopes": envelopes.cases,
    "pushes": pushes.cases,
    "batches": batches.cases,
    "following": batches.following_cases,
    "statuses": states.status_cases,
    "answers": states.answer_cases,
    "starts": runs.start_cases,
    "ends": runs.end_cases,
    "failures": failures.cases,
}


def files() -> dict[str, str]:
    """The text of each published file, by its name."""
    found = {name: scripts.load(script).text for name, script in (SCRIPTS | FOR_WORKERS).items()}
    # Each text is ASCII, so that no program on the way changes it.
    lines = [f'{{\n"wire": {VERSION}']
    for section, cases in _SECTIONS.items():
        rows = ",\n".join(json.dumps(case) for case in cases())
        lines.append(f'"{section}": [\n{rows}\n]')
    return {**found, "vectors.json": ",\n".join(lines) + "\n}\n"}


def copies() -> dict[str, str]:
    """The copies of the scripts in the clients, by their names from this folder."""
    texts = files()
    own = [(folder, name) for folder in COPIES for name in SCRIPTS]
    own += [(folder, name) for folder in WITH_WORKER for name in _OF_WORKERS]
    return {f"../{folder}/{name}": texts[name] for folder, name in own}
