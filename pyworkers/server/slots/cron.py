"""Cron: enqueues the jobs of the cron entries at their slots.

Runs in the master's event loop, in every master. All of them may fire a slot; the script lets one do it, so
that no leader is needed. The meaning of a line is decided in ``pyworkers.protocol.cronlines``.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import simplejson

from pyworkers import logs
from pyworkers.config.cron_entries import dump, load
from pyworkers.config.fields import Config, CronConfig
from pyworkers.errors import (
    ConfigError,
    PyworkersError,
    StoreError,
)
from pyworkers.ipc.control import Manifest
from pyworkers.protocol.cron import HIDDEN, CronEntry, check
from pyworkers.protocol.envelope import encode
from pyworkers.protocol.keys import Keys
from pyworkers.server.changes import Follow
from pyworkers.server.health import Health
from pyworkers.server.parts import Part
from pyworkers.server.slots.firing import Slots, WatchedEntry
from pyworkers.server.slots.questions import MakeSlots
from pyworkers.store import cron as slots
from pyworkers.store.store import Store

# The longest sleep, because timers do not notice a change of the clock, or a suspend of the machine.
_LOOK_S = 3.0
# Timers and the clock agree to the millisecond; waking a little late saves a check that finds nothing due.
_SLACK_S = 0.001
# The entries of a killed server are shown for this long.
_DECLARED_S = 60

log = logs.get_logger()


class Cron(Part):
    """Fires the entries of the last ``use``, and the entries that are added at run time."""

    name = "cron"

    def __init__(
        self,
        store: Store,
        identity: Callable[[], str],
        health: Health,
        rng: random.Random,
        make_slots: MakeSlots,
    ) -> None:
        """``make_slots`` has a worker make the jobs that the master cannot make (slots/questions.py)."""
        super().__init__(health)
        self._client_middleware = False
        self._store = store
        self._keys = store.keys
        self._identity = identity
        self._slots = Slots(store, identity, rng, make_slots, self.nudge)
        self._declared: list[CronEntry] = []
        self._added: dict[bytes, bytes] = {}
        self._paused: set[bytes] = set()
        self._version: bytes | None = None
        self._watched: list[WatchedEntry] = []
        self._seen = -math.inf
        self._stale = True
        self._declare_at = -math.inf

    def follows(self, keys: Keys, _identity: str) -> dict[str, Follow]:
        """The keys to read, each with the function that takes its reply."""
        return {keys.cron_version: Follow("text", self.see)}

    def see(self, version: Any) -> None:
        """Take the version of the changes at run time, or the error in its place."""
        if isinstance(version, PyworkersError) or version != self._version:
            self._stale = True
            self.nudge()

    def use(self, entries: Iterable[CronEntry], *, client_middleware: bool = False) -> None:
        """Fire these entries from now on. Redis holds the last slots of unchanged ones.

        ``client_middleware``: the application has some, so workers make the jobs of all entries.
        """
        self._declared = list(entries)
        self._client_middleware = client_middleware
        self._declare_at = -math.inf
        self._watch()
        self.nudge()

    def _watch(self) -> None:
        """Watch all declared and added entries that are not paused; unchanged ones keep their slots."""
        entries = [(entry, b"") for entry in self._declared]
        names = {entry.name.encode() for entry in self._declared}
        for name, definition in self._added.items():
            try:
                entry = load(definition, "run time")
            except ValueError as error:
                log.error("cron.refused", name=name.decode(errors="replace"), error=str(error))
                continue
            if name in names:
                log.warning(
                    "cron.shadowed", name=entry.name, hint="the code or the configuration has it, too"
                )
            elif name == entry.name.encode():
                entries.append((entry, definition))
        before = {(one.entry.name, one.definition): one for one in self._watched}
        watched = []
        for entry, definition in entries:
            if entry.name.encode() not in self._paused:
                one = before.get((entry.name, definition))
                watched.append(one if one and one.entry == entry else WatchedEntry(entry, definition))
        self._watched = watched

    @property
    def is_idle(self) -> bool:
        """True if the entries are read, and no slot is due."""
        now = time.time()
        return not self._stale and all(
            one.last is not None and one.question is None and one.next > now for one in self._watched
        )

    async def look(self) -> float:
        """Fire the due slots. Returns the seconds until the next slot, or until a check of the clock."""
        await self._keep_up(time.monotonic())
        await self.fire_due(time.time())
        slot = min((one.next for one in self._watched), default=math.inf)
        return min(slot + _SLACK_S - time.time(), _LOOK_S)

    def failed(self, backoff_s: float) -> float:
        """Read Redis again at the next call, even if nothing is due by then."""
        self._stale = True
        return backoff_s

    async def _keep_up(self, now: float) -> None:
        """Read the changes at run time, and show the entries that are declared here."""
        if self._stale:
            await self.refresh()
        if self._declared and now >= self._declare_at:
            entries = encode([_row(entry) for entry in self._declared]).encode()
            await self._store.arun(slots.declare(self._keys, self._identity(), entries, _DECLARED_S))
            self._declare_at = now + _DECLARED_S / 3

    async def refresh(self) -> None:
        """Read the entries that were added, changed, removed or paused at run time. Raises PyworkersError."""
        self._stale = False
        try:
            await self._refresh()
        except PyworkersError:
            self._stale = True
            raise

    async def _refresh(self) -> None:
        version = await self._store.arun(slots.version(self._keys))
        if version != self._version:
            changed = await self._store.arun(slots.changed(self._keys))
            self._added, self._paused = changed.entries, changed.paused
            self._watch()
            self._version = version

    async def fire_due(self, now: float) -> bool:
        """Fire the slots due at ``now``. True if anything was sent to Redis.

        Raises PyworkersError; slots that could not be fired stay due.
        """
        self._notice(now)
        watched = self._watched  # `use` may replace them meanwhile
        asked = await self._recall([one for one in watched if one.last is None], now)
        refused: StoreError | None = None
        for one in watched:
            if one.next <= now or one.question:
                try:
                    asked |= await self._slots.go_on(one, now, self._client_middleware)
                except StoreError as error:  # may concern this entry only: a key of another type
                    refused = error
        if refused is not None:
            raise refused
        return asked

    def _notice(self, now: float) -> None:
        """If the clock was set back, slots are due again; the keys of fired slots prevent a second job."""
        if now < self._seen:
            for one in self._watched:
                if not one.question:
                    one.look_again()
        self._seen = now

    async def _recall(self, newcomers: Sequence[WatchedEntry], now: float) -> bool:
        """Read the last slots from before this master started. A new entry has missed no slots."""
        if not newcomers:
            return False
        known = await self._store.arun(slots.last_slots(self._keys))
        if new := [one.entry.name for one in newcomers if one.entry.name not in known]:
            await self._store.arun(slots.register(self._keys, new, int(now)))
        for one in newcomers:
            # A later one comes from a clock that was ahead, or from another program.
            one.begin_at(min(known.get(one.entry.name, now), now))
        return True


def _row(entry: CronEntry) -> dict[str, Any]:
    """The entry as Redis lists it: without arguments that are encrypted in its jobs."""
    if entry.args and entry.options.get("encrypt"):
        entry = replace(entry, args=(HIDDEN,))
    row: dict[str, Any] = simplejson.loads(dump(entry))
    return row | {"origin": entry.origin}


def entries_of(manifest: Manifest, config: Config) -> list[CronEntry]:
    """The entries of the application, then of the configuration, whose queues other servers may serve.

    Raises ConfigError for an entry that cannot be fired, and for two entries with the same name.
    """
    declared = [CronEntry(**row | {"args": tuple(row["args"])}) for row in manifest["cron"]]
    entries: dict[str, CronEntry] = {}
    for entry in [*declared, *(_configured(section, manifest) for section in config.cron)]:
        location = f"cron {entry.name!r}"
        if entry.name in entries:
            hint = "names tell the entries of application and configuration apart"
            raise ConfigError("two cron entries have this name", location=location, hint=hint)
        try:
            check(entry)
        except ValueError as error:
            raise ConfigError(str(error), location=location) from error
        entries[entry.name] = entry
    return list(entries.values())


def _configured(section: CronConfig, manifest: Manifest) -> CronEntry:
    """An entry of the configuration, with the options that its job declares, as if enqueued in code."""
    queue, job = manifest["queues"].get(section.queue), manifest["jobs"].get(section.job_class)
    owned = queue is not None and queue["kind"] == "process"
    options = {} if job is None or owned else dict(job["envelope"])
    return CronEntry(
        name=section.name,
        schedule=section.schedule or f"every {section.every}",
        queue=section.queue,
        job_class=section.job_class,
        args=section.args,
        timezone=section.timezone,
        misfire=section.misfire,
        grace_s=section.grace,
        retry=options.pop("retry", None),
        options=options,
        origin="configuration",
    )
