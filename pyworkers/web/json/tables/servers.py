"""The servers, their running jobs, and who did what."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyworkers.api import ProcessSet, Signal
from pyworkers.api.audit import AUDIT_ACTION, read_audit
from pyworkers.api.parameters import Parameter, paging
from pyworkers.api.processes import PROCESS, Process, read_process, read_processes, request_numbers
from pyworkers.api.running import WORKS, WorkSet, read_works
from pyworkers.api.schemas import page_of
from pyworkers.web.json.resources import Ask, Change, Resource, found, still_there

_ABOUT = {
    Signal.QUIET: "take no more jobs.",
    Signal.STOP: "stop.",
    Signal.RELOAD: "load code and configuration again.",
}


async def _servers(ask: Ask) -> dict[str, Any]:
    await ask.site.read(request_numbers(ask.keys))
    return (await ask.site.read(read_processes(ask.keys, ask.given["first"], ask.given["count"]))).as_dict()


async def _server(ask: Ask) -> dict[str, Any]:
    view = await ask.site.read(read_process(ask.keys, ask.names["identity"]))
    return PROCESS.as_dict(found(view, "server"))


async def _signal(word: Signal, ask: Ask) -> int:
    identity = ask.names["identity"]
    server: Process = found(await ask.site.act(lambda: ProcessSet(ask.admin).find(identity)), "server")
    await ask.perform(f"server.{word.name.lower()}", identity, lambda: server.send(word))
    return 1


async def _signal_all(word: Signal, ask: Ask) -> int:
    send = partial(ProcessSet(ask.admin).send, word)
    return await ask.perform(f"server.{word.name.lower()}", "all servers", send)


async def _running(ask: Ask) -> dict[str, Any]:
    await ask.site.read(request_numbers(ask.keys))
    given = ask.given
    page = await ask.site.read(read_works(ask.keys, given["first"], given["count"], given["server"] or ""))
    return page.as_dict()


async def _cancel(ask: Ask) -> int:
    jid, given = ask.given["jid"], ask.given
    cancel = partial(WorkSet(ask.admin).cancel, jid, given["server"], given["queue"])
    cancelled = await ask.perform("job.cancel", jid, cancel)
    return still_there(cancelled != "unknown")


async def _audit(ask: Ask) -> dict[str, Any]:
    return (await ask.site.read(read_audit(ask.keys, ask.given["first"], ask.given["count"]))).as_dict()


RESOURCES = (
    Resource(
        "/running",
        "The running jobs, the longest first.",
        _running,
        WORKS,
        [*paging(), Parameter("server", "Only the jobs of the server with this identity.")],
        [
            Change(
                "cancel",
                "Cancel a running job.",
                _cancel,
                [
                    Parameter("jid", "The id of the job.", required=True),
                    Parameter("server", "The identity of its server.", required=True),
                    Parameter("queue", "Its queue.", required=True),
                ],
            )
        ],
    ),
    Resource(
        "/servers",
        "The servers, by identity.",
        _servers,
        page_of("Servers", "servers", PROCESS.schema),
        paging(),
        [
            Change(word.name.lower(), f"All servers: {about}", partial(_signal_all, word))
            for word, about in _ABOUT.items()
        ],
    ),
    Resource(
        "/servers/{identity}",
        "One server.",
        _server,
        PROCESS.schema,
        actions=[
            Change(word.name.lower(), f"The server: {about}", partial(_signal, word))
            for word, about in _ABOUT.items()
        ],
    ),
    Resource(
        "/audit",
        "The last thousand actions, the latest first.",
        _audit,
        page_of("Audit", "actions", AUDIT_ACTION.schema),
        paging(),
    ),
)
