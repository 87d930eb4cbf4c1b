"""Watching: the loop of ``pyworkers alarms``: looks, begins and ends alarms, and has their messages sent.

Runs in the process of ``pyworkers alarms``, or in a thread of ``pyworkers web``. An incident is stored before
its messages leave, and they are pending until they are taken, so each arrives at least once. One process
watches at a time; another one continues with the same incidents.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import simplejson

from pyworkers import logs
from pyworkers.alarms.conditions import Looked, look, wrong
from pyworkers.alarms.incident import Incident, advance
from pyworkers.alarms.sending import LONGEST_S, AlarmMessage, SendingError, send
from pyworkers.config.alarming import TARGETS
from pyworkers.config.fields import AlarmConfig, Config
from pyworkers.config.stores import DEFAULT, Stores
from pyworkers.errors import ConfigError, PyworkersError, text_with_class
from pyworkers.store import alarms as store
from pyworkers.store import scripts
from pyworkers.store.admin import Admin
from pyworkers.store.muting import read_muted

# The process is taken for dead after three looks and the longest time for messages.
_LOOKS_PER_LIFE = 3
_SPARE_S = 5.0
_GRACE_S = 1.0

log = logs.get_logger()


def targets_of(alarm: AlarmConfig) -> list[str]:
    """Where an alarm goes, by the keys of its table."""
    return [target for target in TARGETS if getattr(alarm, target)]


@dataclass
class _Sent:
    """What became of a message; ``error`` is None until it was taken."""

    alarm: str
    target: str
    state: str
    error: str | None = f"no answer within {LONGEST_S:g} s"
    done: threading.Event = field(default_factory=threading.Event)

    def end(self, error: str | None) -> None:
        """Note the result."""
        self.error = error
        self.done.set()


class Watcher:
    """The alarms of a configuration. Raises ConfigError if it has none."""

    def __init__(self, config: Config) -> None:
        if not config.alarm:
            hint = "write a table [[alarm]] with name, when, and webhook, slack or mail"
            raise ConfigError("the configuration has no alarms", hint=hint, location=str(config.path or ""))
        self._alarms = {alarm.name: alarm for alarm in config.alarm}
        self._settings = config.alarms
        self._log = (config.log.level, config.log.format)
        self._admins = {name: Admin(redis) for name, redis in Stores.of(config).by_name.items()}
        self._admin = self._admins[DEFAULT]
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._true_since: dict[str, float] = {}

    def run(self, stop: threading.Event) -> None:
        """Look at each interval until ``stop`` is set; what goes wrong is logged."""
        scripts.keep()
        log.info("alarms.watching", alarms=list(self._alarms))
        while not stop.is_set():
            try:
                self.look()
            except PyworkersError as error:
                log.error("alarms.blind", error=str(error))
            except Exception:
                # The next look may succeed, and no other part restarts this thread.
                log.exception("alarms.look_failed")
            stop.wait(self._settings.interval)

    def run_until_signal(self) -> None:
        """Run in this process until TERM or INT."""
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        logs.configure(*self._log)
        self.run(stop)

    def look(self) -> bool:
        """Look once, and send what is due. False if another process watches. Raises PyworkersError."""
        about = {
            "alarms": [
                {"name": alarm.name, "when": alarm.when, "match": alarm.match or "*", "to": targets_of(alarm)}
                for alarm in self._alarms.values()
            ]
        }
        life_s = int(_LOOKS_PER_LIFE * self._settings.interval + LONGEST_S + _SPARE_S)
        keys = self._admin.keys
        if not self._admin.run(store.take_watch(keys, self._holder, about, life_s)):
            return False
        seen = self._looked()
        now = time.time()
        begun = self._begun()
        silenced = self._admin.run(read_muted(keys, [store.silenced_as(name) for name in self._alarms]))
        for name, alarm in self._alarms.items():
            before = begun.get(name)
            text = wrong(alarm, seen)
            if text is None and len(seen) < len(self._admins):
                # It may be wrong where nothing could be read: it neither ends nor begins anew.
                continue
            text = self._lasting(alarm, text, before is not None)
            if before is None and store.silenced_as(name) in silenced:
                continue
            after = advance(before, name, text, targets_of(alarm), now)
            if after is not None and after != before:
                self._note(before, after)
                begun[name] = after
        self._send([begun[name] for name in begun], now)
        return True

    def test(self, name: str) -> dict[str, str | None]:
        """Send a test to the targets of an alarm; what went wrong by target, None if it was taken.

        Raises ConfigError if there is no such alarm.
        """
        alarm = self._alarms.get(name)
        if alarm is None:
            hint = f"known here: {', '.join(self._alarms)}"
            raise ConfigError(f"there is no alarm {name!r}", hint=hint)
        text = "this is a test of pyworkers alarms --test"
        message = AlarmMessage(secrets.token_hex(8), name, "test", alarm.when, text, time.time())
        tries = [(_Sent(name, target, message.state), alarm, message) for target in targets_of(alarm)]
        return {sent.target: sent.error for sent in self._deliver(tries)}

    def _begun(self) -> dict[str, Incident]:
        """The incidents of our alarms. Incidents of alarms that are not configured any more are forgotten."""
        found: dict[str, Incident] = {}
        for name, raw in self._admin.run(store.read_begun(self._admin.keys)).items():
            incident = Incident.load(name, raw)
            if incident is None or name not in self._alarms:
                log.warning("alarm.forgotten", alarm=name)
                self._admin.run(store.forget_begun(self._admin.keys, name))
            else:
                found[name] = incident
        return found

    def _looked(self) -> dict[str, Looked]:
        """What each Redis says, without those that are away. Raises PyworkersError if the default one is."""
        seen: dict[str, Looked] = {}
        for name, admin in self._admins.items():
            try:
                seen[name] = look(admin, self._alarms.values())
            except PyworkersError as error:
                if name == DEFAULT:
                    # It has the incidents.
                    raise
                log.error("alarms.blind", error=str(error), redis=name)
        return seen

    def _lasting(self, alarm: AlarmConfig, text: str | None, begun: bool) -> str | None:
        """What is wrong, once it has been for as long as the alarm says."""
        if text is None:
            self._true_since.pop(alarm.name, None)
            return None
        since = self._true_since.setdefault(alarm.name, time.monotonic())
        return text if begun or time.monotonic() - since >= alarm.lasts else None

    def _note(self, before: Incident | None, after: Incident) -> None:
        if before is None:
            log.warning("alarm.begun", alarm=after.name, id=after.id, message=after.text)
        elif after.ended is not None:
            log.info("alarm.ended", alarm=after.name, id=after.id)
        self._admin.run(store.write_begun(self._admin.keys, after.name, after.dump()))

    # Messages

    def _send(self, incidents: Sequence[Incident], now: float) -> None:
        due = {incident.name: incident.due(now) for incident in incidents}
        results = self._deliver(
            [
                (
                    _Sent(incident.name, target, state),
                    self._alarms[incident.name],
                    self._message(incident, state),
                )
                for incident in incidents
                for target, state in due[incident.name]
            ]
        )
        for incident in incidents:
            mine = [sent for sent in results if sent.alarm == incident.name]
            self._settle(incident, mine, now)
        # Last: if Redis refuses it, no message is sent again for that.
        by_name = {incident.name: incident for incident in incidents}
        for sent in results:
            if sent.error is None:
                self._keep(by_name[sent.alarm], sent, now)

    def _settle(self, incident: Incident, results: Sequence[_Sent], now: float) -> None:
        """Store what was sent of an incident, and forget it once it has ended and all is told."""
        keys = self._admin.keys
        for sent in results:
            if sent.error is not None:
                log.warning("alarm.unsent", alarm=sent.alarm, to=sent.target, error=sent.error)
        after = incident
        if results:
            taken = [(sent.target, sent.state) for sent in results if sent.error is None]
            failed = (f"{sent.target}: {sent.error}" for sent in results if sent.error is not None)
            after = incident.told(taken, now, "; ".join(failed))
        if after.hopeless(now):
            log.error(
                "alarm.given_up", alarm=after.name, pending=[list(message) for message in after.pending]
            )
            after = after.without_messages()
        if after.over:
            self._admin.run(store.forget_begun(keys, after.name))
        elif after != incident:
            self._admin.run(store.write_begun(keys, after.name, after.dump()))

    def _keep(self, incident: Incident, sent: _Sent, now: float) -> None:
        about = {"id": incident.id, "alarm": incident.name, "state": sent.state, "to": sent.target}
        text = simplejson.dumps({**about, "message": incident.text, "at": now})
        self._admin.run(store.note_sent(self._admin.keys, text))

    def _message(self, incident: Incident, state: str) -> AlarmMessage:
        when = self._alarms[incident.name].when
        ended = incident.ended if state == "ended" else None
        return AlarmMessage(incident.id, incident.name, state, when, incident.text, incident.since, ended)

    def _deliver(self, tries: Sequence[tuple[_Sent, AlarmConfig, AlarmMessage]]) -> list[_Sent]:
        """Send messages at the same time: a target that hangs delays no other one."""
        for sent, alarm, message in tries:
            threading.Thread(target=self._try, args=(sent, alarm, message), daemon=True).start()
        deadline = time.monotonic() + LONGEST_S + _GRACE_S
        for sent, _, _ in tries:
            sent.done.wait(max(0.0, deadline - time.monotonic()))
        return [sent for sent, _, _ in tries]

    def _try(self, sent: _Sent, alarm: AlarmConfig, message: AlarmMessage) -> None:
        try:
            send(sent.target, alarm, self._settings, message)
        except SendingError as error:
            sent.end(str(error))
        except Exception as error:
            # A defect of one target must not end the others.
            sent.end(text_with_class(error))
        else:
            sent.end(None)
