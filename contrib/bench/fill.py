"""Jobs that are put into a queue without the peer's own producer: copies of one job that it made.

For the peers whose waiting jobs are JSON with a ``jid`` in a list (``Peer.queue_key``). Each copy has its
own jid.
"""

from __future__ import annotations

import json

from contrib.bench.peer import Peer
from contrib.bench.site import Site

_BATCH = 10_000

# KEYS[1] the queue. ARGV[1] how many, ARGV[2] and ARGV[3] the envelope around its jid, ARGV[4] the first jid.
_FILL = """
for i = 1, ARGV[1] do
  redis.call('LPUSH', KEYS[1], ARGV[2] .. string.format('%024d', ARGV[4] + i) .. ARGV[3])
end
"""


def fill(site: Site, peer: Peer, kind: str, count: int) -> int:
    """Put ``count`` jobs of this kind into the queue; return the number that is there then."""
    site.program(peer, "push", kind, 1, "one")
    raw = _waiting(site, peer)
    before, after = raw.split(json.loads(raw)["jid"].encode())
    for first in range(0, count - 1, _BATCH):
        some = min(_BATCH, count - 1 - first)
        site.broker.client.eval(_FILL, 1, peer.queue_key, some, before, after, first)
    return site.broker.waiting(peer.queue_key)


class Stamps:
    """Copies of one "stamp" job, each with its own time."""

    def __init__(self, site: Site, peer: Peer) -> None:
        site.program(peer, "pace", 1, 0)
        raw = _waiting(site, peer)
        job = json.loads(raw)
        self._raw, self._jid, self._ns = raw, job["jid"].encode(), str(job["args"][1]).encode()
        self._client, self._key, self._number = site.broker.client, peer.queue_key, 0
        self._client.delete(self._key)

    def push(self, ns: int) -> None:
        """Enqueue one whose time is ``ns``."""
        self._number += 1
        raw = self._raw.replace(self._ns, b"%d" % ns).replace(self._jid, b"%024d" % self._number)
        self._client.lpush(self._key, raw)


def _waiting(site: Site, peer: Peer) -> bytes:
    raw = site.broker.client.lindex(peer.queue_key, 0)
    assert isinstance(raw, bytes)
    return raw
