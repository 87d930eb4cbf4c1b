"""Job: a function that can also be enqueued.

Used by producers and workers of an application. Arguments are bound to the function's signature when the job
is enqueued, so a wrong call fails in the caller and not in the worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack

from pyworkers.client import Client
from pyworkers.enqueueing import clock
from pyworkers.enqueueing.producer import (
    Moments,
    Portions,
    bulk,
    one_job,
    push_portions,
    push_portions_async,
    timed,
)
from pyworkers.errors import BadArgumentError, DeclarationError, QueueFullError
from pyworkers.functions import positional
from pyworkers.handler import CronOptions, Handler, JobOptions, check_cron
from pyworkers.protocol import timestamps
from pyworkers.protocol.call import BATCH_ID, RESULT, RESULTS, Call, admitted
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.draft import PLAIN, Draft, Writing, draft, moment, seconds, unlisted
from pyworkers.protocol.options import FieldOptions, JobOverrides, conditions_asked, seconds_of, suggestion
from pyworkers.typed.signatures import passes_on, signature_of

if TYPE_CHECKING:
    from pyworkers.asyncclient import AsyncClient

P = ParamSpec("P")
R = TypeVar("R")

# Names from other libraries' jobs and from a Worker, with the call to use instead.
_CALL = "call call(…) for a step of chain(…) or parallel(…)"
_ELSEWHERE = {
    "AsyncResult": "call result(jid) of the Worker",
    "apply": "call the job as a function",
    "apply_async": "call enqueue(…), or enqueue_in(seconds, …) for a delay",
    "cancel": "call cancel(jid) of the Worker",
    "defer": "call enqueue(…), or await aenqueue(…) in an event loop",
    "delay": "call enqueue(…)",
    "find": "call find(jid) of the Worker",
    "history": "call history(jid) of the Worker",
    "kiq": "await aenqueue(…), or call enqueue(…) outside of an event loop",
    "map": "call enqueue_bulk([(…), …])",
    "perform_async": "call enqueue(…)",
    "perform_at": "call enqueue_at(time, …)",
    "perform_bulk": "call enqueue_bulk([(…), …])",
    "perform_in": "call enqueue_in(seconds, …)",
    "request": "call current_message() in its function",
    "result": "call result(jid) of the Worker",
    "retry": "raise Retry(delay=seconds) in its function",
    "s": _CALL,
    "schedule": "call enqueue_in(seconds, …) or enqueue_at(time, …)",
    "send": "call enqueue(…)",
    "send_with_options": "call options(…).enqueue(…)",
    "set": "call options(…).enqueue(…)",
    "si": _CALL,
    "signature": _CALL,
    "starmap": "call enqueue_bulk([(…), …])",
    "status": "call status(jid) of the Worker",
    "subtask": _CALL,
}


class Clients(Protocol):
    """The clients of an application, each made at its first use."""

    @property
    def client(self) -> Client:
        """For calls that block."""
        ...

    @property
    def async_client(self) -> AsyncClient:
        """For calls in an event loop."""
        ...

    def clients_for(self, *, on_commit: bool) -> Clients:
        """Those whose pushes wait for the commit of a transaction, or do not."""
        ...


class Job(Generic[P, R]):
    """A declared job: a call runs the plain function, and ``enqueue`` enqueues a job.

    Made by ``@worker.job``. ``name`` is the job class in the envelope.
    """

    def __init__(
        self,
        function: Callable[P, R],
        name: str,
        queue: str,
        envelope: Mapping[str, Any],
        clients: Clients,
        writing: Writing = PLAIN,
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self.name = name
        self.queue = queue
        self.envelope = dict(envelope)
        """The options that every job is enqueued with: ``retry`` …"""
        self.clients = clients
        self._binder = Binder(function, name)
        rest = dict(envelope)
        self._writing = writing
        self._draft = draft(queue, name, rest.pop("retry", None), rest, None, writing)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Job {self.name} on {self.queue}>"

    if not TYPE_CHECKING:  # With it, a type checker would take any name.

        def __getattr__(self, name):
            """Raise AttributeError; for a name of another library's jobs with ours."""
            if instead := _ELSEWHERE.get(name):
                # Without obj: a traceback with it proposes another attribute, e.g. draft for defer.
                raise AttributeError(f"a job has no method {name}: {instead}", name=name)
            return object.__getattribute__(self, name)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Enqueue the job with these arguments and return its jid.

        Raises TypeError for arguments that the function does not take, and the errors of ``Client.enqueue``.
        """
        return self._push(self._draft, args, kwargs)

    def try_enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """``enqueue``, or None if the queue is full (``max_waiting``)."""
        try:
            return self.enqueue(*args, **kwargs)
        except QueueFullError:
            return None

    def enqueue_in(self, delay: float | timedelta, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """``enqueue`` for ``delay`` seconds from now."""
        return self._push(self._due(seconds(delay), None), args, kwargs)

    def enqueue_at(self, at: datetime | float, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """``enqueue`` for the time ``at``: an aware datetime or epoch seconds."""
        return self._push(self._due(None, timestamps.due(at)), args, kwargs)

    def enqueue_bulk(
        self,
        args_list: Iterable[Sequence[Any]],
        *,
        at: Moments | None = None,
        spread: float | timedelta | None = None,
    ) -> list[str]:
        """Enqueue one job for each tuple of positional arguments; return the jids in that order.

        ``at`` is a time for all, or a list with one for each job. ``spread``: seconds over which the jobs are
        spread evenly, from ``at`` or now on. Sent 1000 or 16 MB at a time: when this raises, the portions
        before the failing one are in Redis.
        """
        client = self.clients.client
        return push_portions(client.push, self._bulk(args_list, at, spread, client))

    def _bulk(
        self,
        args_list: Iterable[Sequence[Any]],
        at: Moments | None,
        spread: float | timedelta | None,
        client: Client | AsyncClient,
    ) -> Portions:
        rows, due, times = timed(args_list, None, at, spread, clock.time())
        plan = self._draft if due is None else self._due(None, due)
        return bulk(plan, self._bound(rows), client.client_links, times)

    # --- in event loops -------------------------------------------------------------------------------------

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """``enqueue`` in an event loop, without blocking it."""
        return await self._apush(self._draft, args, kwargs)

    async def atry_enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """``try_enqueue`` in an event loop."""
        try:
            return await self.aenqueue(*args, **kwargs)
        except QueueFullError:
            return None

    async def aenqueue_in(self, delay: float | timedelta, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """``enqueue_in`` in an event loop."""
        return await self._apush(self._due(seconds(delay), None), args, kwargs)

    async def aenqueue_at(self, at: datetime | float, /, *args: P.args, **kwargs: P.kwargs) -> str:
        """``enqueue_at`` in an event loop."""
        return await self._apush(self._due(None, timestamps.due(at)), args, kwargs)

    async def aenqueue_bulk(
        self,
        args_list: Iterable[Sequence[Any]],
        *,
        at: Moments | None = None,
        spread: float | timedelta | None = None,
    ) -> list[str]:
        """``enqueue_bulk`` in an event loop."""
        client = self.clients.async_client
        jobs = self._bulk(args_list, at, spread, client)
        return await push_portions_async(client.push, jobs)

    # --- other forms ----------------------------------------------------------------------------------------

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """The job with these arguments, to be enqueued later: by a batch, a chain or a group.

        It is checked like an enqueue call. A parameter ``batch_id`` may be left out: it is the batch's id.
        For type checkers, give it a default: ``batch_id: str = ""``.
        An argument may be ``RESULT`` or ``RESULTS``. Raises TypeError and BadArgumentError.
        """
        bound = admitted(self._binder.bind_call(args, kwargs))
        self._draft.refuse_jid()
        self._draft.job(bound, 0.0)
        call = Call(self._draft, self.name, bound, self.clients)
        if self._draft.options.get("encrypt") and (call.holds(RESULT) or call.holds(RESULTS)):
            raise BadArgumentError(
                f"{self.name} is encrypted: Redis cannot write a result into its arguments"
            )
        return call

    def options(self, **options: Unpack[JobOverrides]) -> Job[P, R]:
        """The same job with other options: ``job.options(queue="slow", retry=3).enqueue(…)``.

        These are ``queue`` and ``retry``, and the options of ``Client.enqueue``. ``on_commit=False`` enqueues
        at once, also inside a transaction of Django. Raises BadArgumentError.

        With a queue that the application does not know, the enqueue methods raise BadArgumentError. It
        knows the queues of its jobs, handlers and groups, and of the configuration file, if this program has
        one (``Worker(config=…)``, ``PYWORKERS_CONFIG``). Without a file, a name that is not similar to a
        known one may be a group of a server. ``any_queue=True`` takes any.
        """
        queue, retry = options.pop("queue", None), options.pop("retry", None)
        on_commit = options.pop("on_commit", None)
        clients = self.clients if on_commit is None else self.clients.clients_for(on_commit=on_commit)
        make: type[Job[P, R]] = type(self) if queue is None else RoutedJob
        make = Job if options.pop("any_queue", False) else make
        together = self._with(retry, options)
        place = self.queue if queue is None else queue
        return make(self.function, self.name, place, together, clients, self._writing)

    def bind(self, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """The arguments as the list that the envelope carries.

        Raises TypeError as a call would, and BadArgumentError for a value that does not fit its annotation.
        """
        bound, to_json = self._binder.bind(args, kwargs), self._writing.to_json
        return bound if to_json is None else to_json(bound, "args")

    def draft(
        self, queue: str, retry: bool | int | None, options: Mapping[str, Any], at: float | None
    ) -> Draft:
        """``draft`` for this class; the job's declaration fills the options that are missing."""
        if retry is None and not options and queue == self.queue:
            return self._draft if at is None else replace(self._draft, at=at)
        rest = self._with(retry, options)
        return draft(queue, self.name, rest.pop("retry", None), rest, at, self._writing)

    def _with(self, retry: bool | int | None, options: Mapping[str, Any]) -> dict[str, Any]:
        """The declared options with others; a new ``retry`` also replaces the declared ``retry_for``."""
        if retry is None:
            return {**self.envelope, **options}
        declared = {name: value for name, value in self.envelope.items() if name != "retry_for"}
        return {**declared, "retry": retry, **options}

    def given(self, args: Sequence[Any] | None = None) -> dict[str, Any]:
        """The options as JSON values, for the server. ``args`` are the arguments of a cron entry.

        Without them, ``unique_by`` is missing if it is a function: the server does not run it.
        """
        given = dict(self.envelope)
        if callable(by := given.get("unique_by")):
            del given["unique_by"]
            given |= {} if args is None else {"unique_by": by(*args)}
        return given

    def _push(self, plan: Draft, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        client = self.clients.client
        jid, jobs = one_job(plan, self._binder.bind(args, kwargs), clock.time(), client.client_links)
        others = client.push(jobs)
        return others.get(jid, jid) if others else jid

    async def _apush(self, plan: Draft, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        client = self.clients.async_client
        jid, jobs = one_job(plan, self._binder.bind(args, kwargs), clock.time(), client.client_links)
        others = await client.push(jobs)
        return others.get(jid, jid) if others else jid

    def _due(self, delay_s: float | None, at: float | None) -> Draft:
        return replace(self._draft, at=moment(delay_s, at, clock.time()))

    def _bound(self, args_list: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        for index, args in enumerate(args_list):
            if not isinstance(args, list | tuple):
                raise unlisted(args, f"args_list[{index}]")
            yield self._binder.bind(tuple(args), {})


class RoutedJob(Job[P, R]):
    """A job for another queue than the declared one, which is checked when the job is first enqueued.

    Not before: the job may be made while the application is imported, and the queue declared below.
    """

    _known = False

    @property
    def _draft(self) -> Draft:
        if not self._known:
            if (owner := self.clients.client.owner) is not None:
                owner.check_queue(self.queue)
            self._known = True
        return self._routed

    @_draft.setter
    def _draft(self, plan: Draft) -> None:
        self._routed = plan


# Keywords of other libraries' enqueue calls, with the method to use instead.
_METHODS = {
    **dict.fromkeys(("delay", "countdown", "_defer_by"), "enqueue_in(seconds, …)"),
    **dict.fromkeys(("at", "eta", "_defer_until"), "enqueue_at(when, …)"),
    **dict.fromkeys(("args", "kwargs"), "enqueue(…), with the arguments as in a call of the function"),
}

_INJECTED = (
    "; if its decorator passes arguments itself, annotate the decorator with Concatenate, or set "
    "__signature__ of the wrapper"
)


class Binder:
    """Binds arguments to the signature of one function. Raises TypeError, as a call would."""

    def __init__(self, function: Callable[..., object], name: str) -> None:
        self._name = name
        self._signature = signature_of(function) or inspect.signature(lambda *args: None)
        self._parameters = positional(self._signature, name)
        required = [p for p in self._parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
        open_ended = any(p.kind is p.VAR_POSITIONAL for p in self._parameters)
        self._least = len(required)
        self._injected = _INJECTED if passes_on(function) else ""
        self._most = None if open_ended else len(self._parameters)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """The arguments in the order of the parameters."""
        if not kwargs and self._least <= len(args) and (self._most is None or len(args) <= self._most):
            return args
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self._name}(): {error}{self._hint(kwargs)}{self._injected}") from None
        self._refuse_unsendable(given)
        return self._listed(given)

    def bind_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """As ``bind``; a parameter ``batch_id`` may be missing."""
        others = [p for p in self._signature.parameters.values() if p.name != "batch_id"]
        if "batch_id" in kwargs or len(others) == len(self._signature.parameters):
            return self.bind(args, kwargs)
        try:
            given = self._signature.replace(parameters=others).bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self._name}(): {error}{self._hint(kwargs)}") from None
        self._refuse_unsendable(given)
        return self._listed({**given, "batch_id": BATCH_ID})

    def _hint(self, given: Mapping[str, Any]) -> str:
        """The parameter, or the option, that a keyword without a parameter may mean."""
        known = self._signature.parameters
        name = next((name for name in given if name not in known), None)
        if name is None:
            return ""
        if name in _METHODS:
            return f"; use {self._name}.{_METHODS[name]}"
        near, option = suggestion(name, known), suggestion(name, JobOverrides.__annotations__)
        if near and name not in JobOverrides.__annotations__:
            return f"; {near}"
        if option:
            word = option.removeprefix("did you mean ").removesuffix("?")
            return f"; {word} is an option: {self._name}.options({word}=…).enqueue(…)"
        return ""

    def _refuse_unsendable(self, given: Mapping[str, Any]) -> None:
        sendable = {parameter.name for parameter in self._parameters}
        if unsendable := [name for name in given if name not in sendable]:
            raise TypeError(
                f"{self._name}(): {unsendable[0]!r} can only be given by name, and a job "
                "carries its arguments as a list, without names"
            )

    def _listed(self, given: Mapping[str, Any]) -> list[Any]:
        """All arguments up to the last one that was given; one that is missing before it has its default."""
        listed: list[Any] = []
        last = max((i for i, p in enumerate(self._parameters) if p.name in given), default=-1)
        for parameter in self._parameters[: last + 1]:
            if parameter.kind is parameter.VAR_POSITIONAL:
                listed += given.get(parameter.name, ())
            else:
                listed.append(given.get(parameter.name, parameter.default))
        return listed


def declared_job(
    function: Callable[P, R],
    handler: Handler,
    options: JobOptions,
    clients: Clients,
    writing: Writing,
) -> Job[P, R]:
    """The Job of a declaration. Raises DeclarationError for values that JSON cannot hold."""
    policy = handler.policy
    envelope: dict[str, Any] = {"retry": policy.retry}
    envelope |= {} if policy.backtrace is None else {"backtrace": policy.backtrace}
    envelope |= {} if policy.dead else {"dead": False}
    envelope |= {} if policy.retry_for is None else {"retry_for": policy.retry_for}
    envelope |= {
        name: value for name, value in options.items() if name in FieldOptions.__annotations__ and value
    }
    envelope |= conditions_asked(options)
    if (expires_in := options.get("expires_in")) is not None:
        envelope["expires_in"] = seconds_of(expires_in)
    if (encrypt := options.get("encrypt", False)) is not False:
        envelope["encrypt"] = encrypt
    try:
        return Job(function, handler.name, handler.queue, envelope, clients, writing)
    except BadArgumentError as error:
        raise DeclarationError(f"the job {handler.name!r}: {error.message}", hint=error.hint) from error


def cron_entry(job: Job[Any, Any], schedule: str, options: CronOptions) -> CronEntry:
    """The cron entry of a declaration. Raises DeclarationError by the rules of ``[[cron]]``."""
    name = options.get("name")
    args = _cron_args(job, options.get("args", ()))
    given = job.given(args)
    entry = CronEntry(
        name=job.name if name is None else name,
        schedule=schedule,
        queue=job.queue,
        job_class=job.name,
        args=args,
        timezone=options.get("timezone", "UTC"),
        misfire=options.get("misfire", "once"),
        grace_s=options.get("grace", 300.0),
        retry=given.pop("retry"),
        options=given,
    )
    check_cron(entry)
    return entry


def _cron_args(job: Job[Any, Any], args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments of a cron entry, bound to its job's signature. Raises DeclarationError."""
    if not isinstance(args, list | tuple):
        raise DeclarationError(f"cron of {job.name}: args must be a list, not of type {type(args).__name__}")
    try:
        return tuple(job.bind(*args))
    except (TypeError, BadArgumentError) as error:
        raise DeclarationError(f"cron of {job.name}: {error}") from error
