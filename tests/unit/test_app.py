"""Worker: what can be declared, and what is refused at once."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import json
import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pyworkers.app import Job, Worker
from pyworkers.asyncclient import AsyncClient
from pyworkers.client import Client
from pyworkers.errors import BadArgumentError, ConfigError, DeclarationError, UnknownJobError, place_of
from pyworkers.groups import GroupOptions
from pyworkers.handler import CronOptions, HandlerOptions, JobOptions
from pyworkers.protocol.cron import CronEntry, job_of
from pyworkers.protocol.message import Message
from pyworkers.protocol.retry import Policy
from pyworkers.testing import EnqueuedJob, Fake, fake


@pytest.fixture
def worker() -> Worker:
    return Worker()


def message(*args: Any) -> Message:
    raw = json.dumps({"class": "x", "args": args}).encode()
    return Message.parse(raw, "q", lambda: "j1")


# --- process ------------------------------------------------------------------------------------------------


def test_a_process_handler_owns_its_queue(worker: Worker) -> None:
    seen: list[Message] = []

    @worker.process("myqueue", concurrency=3, timeout=5, backtrace=2)
    def handle(message: Message) -> None:
        seen.append(message)

    handler = worker.lookup("myqueue", "Whatever")
    assert (handler.name, handler.queue, handler.kind, handler.timeout) == ("handle", "myqueue", "process", 5)
    assert handler.policy == Policy(retry=0, dead=True, backtrace=2)
    job = message(1)
    handler.run(job)
    handle(job)
    assert seen == [job, job]


def test_a_timeout_of_zero_is_none(worker: Worker) -> None:
    worker.process("q", timeout=0)(lambda message: None)
    assert worker.lookup("q", "x").timeout is None


# --- job ----------------------------------------------------------------------------------------------------


def test_a_job_is_found_by_its_class_in_any_queue(worker: Worker) -> None:
    @worker.job(queue="mail")
    def send(user_id: int, subject: str) -> str:
        return f"{user_id}: {subject}"

    handler = worker.lookup("elsewhere", "send")
    assert (handler.name, handler.queue, handler.kind, handler.policy) == ("send", "mail", "job", Policy())
    assert handler.run(message(7, "hello")) == "7: hello"


def test_an_undeclared_class(worker: Worker) -> None:
    worker.process("other")(lambda message: None)
    with pytest.raises(UnknownJobError, match=r"no handler for the class 'os\.system' of the queue 'q'"):
        worker.lookup("q", "os.system")


def test_a_job_is_still_the_function(worker: Worker) -> None:
    @worker.job
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    assert (add(1), add(1, b=5), add.__doc__, add.name) == (3, 6, "Add.", "add")
    assert add.__name__ == "add"  # type: ignore[attr-defined]
    assert isinstance(add, Job)
    assert add.queue == "default"


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("apply_async", "call enqueue(…), or enqueue_in(seconds, …) for a delay"),
        ("delay", "call enqueue(…)"),
        ("perform_async", "call enqueue(…)"),
        ("kiq", "await aenqueue(…), or call enqueue(…) outside of an event loop"),
        ("map", "call enqueue_bulk([(…), …])"),
        ("schedule", "call enqueue_in(seconds, …) or enqueue_at(time, …)"),
        ("send_with_options", "call options(…).enqueue(…)"),
        ("s", "call call(…) for a step of chain(…) or parallel(…)"),
    ],
)
def test_a_method_of_another_library_is_an_error_that_names_ours(
    worker: Worker, name: str, instead: str
) -> None:
    @worker.job
    def add() -> None: ...

    assert (hasattr(add, name), getattr(add, name, None)) == (False, None)
    for job in (add, add.options(queue="slow")):
        with pytest.raises(AttributeError) as caught:
            getattr(job, name)
        assert str(caught.value) == f"a job has no method {name}: {instead}"
        for method in set(re.findall(r"(\w+)\(", instead)) - {"chain", "parallel"}:
            assert callable(getattr(job, method))


@pytest.mark.parametrize("name", ["cancel", "find", "history", "result", "status"])
def test_a_question_about_a_job_that_is_asked_of_its_function_names_the_worker(
    worker: Worker, name: str
) -> None:
    @worker.job
    def add() -> None: ...

    assert callable(getattr(worker, name))
    with pytest.raises(
        AttributeError, match=rf"^a job has no method {name}: call {name}\(jid\) of the Worker$"
    ):
        getattr(add, name)("j1")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("config_from_object", "the configuration is a file: pyworkers run --config FILE"),
        ("task", "declare a job with @worker.job"),
        ("run", "a server runs it: pyworkers run --app module:attribute"),
        ("send_task", "call enqueue(queue, job_class, args)"),
    ],
)
def test_a_name_of_another_librarys_application_is_an_error_that_names_ours(
    worker: Worker, name: str, instead: str
) -> None:
    assert not hasattr(worker, name)
    with pytest.raises(AttributeError, match=f"^a Worker has no {name}: {re.escape(instead)}$"):
        getattr(worker, name)
    with pytest.raises(AttributeError, match=r"^'Worker' object has no attribute 'enqueu'$"):
        _ = worker.enqueu  # type: ignore[attr-defined]


def test_a_job_that_is_taken_for_a_name_is_an_error_that_names_its_method(worker: Worker) -> None:
    @worker.job
    def add() -> None: ...

    for client in (worker, Client.of(worker)):
        with pytest.raises(BadArgumentError, match="cannot be a queue") as caught:
            client.enqueue(add, [])  # type: ignore[arg-type]
        assert caught.value.hint == "a job is enqueued by its own method: job.enqueue(…)"
        with pytest.raises(BadArgumentError, match="cannot be a job class") as caught:
            client.enqueue("default", add, [])  # type: ignore[arg-type]
        assert caught.value.hint == "a job is enqueued by its own method: job.enqueue(…)"


def test_any_other_name_that_a_job_lacks_is_the_error_of_python(worker: Worker) -> None:
    @worker.job
    def add() -> None: ...

    with pytest.raises(AttributeError, match=r"^'Job' object has no attribute 'enqueu'$"):
        add.enqueu  # type: ignore[attr-defined]  # noqa: B018
    unfilled: Job[..., None] = Job.__new__(Job)
    with pytest.raises(AttributeError, match=r"^'Job' object has no attribute 'name'$"):
        unfilled.name  # noqa: B018
    assert copy.copy(add).function is add.function
    assert (repr(copy.deepcopy(add.options(any_queue=True))), inspect.signature(add)) == (
        repr(add),
        inspect.signature(add.function),
    )


def test_an_attribute_of_the_function_goes_above_the_error(worker: Worker) -> None:
    def add() -> None: ...

    add.delay = 5  # type: ignore[attr-defined]
    assert worker.job(add).delay == 5  # type: ignore[attr-defined]


def test_the_envelope_carries_what_differs_from_the_default(worker: Worker, queue: Fake) -> None:
    @worker.job(retry=5, dead=False, backtrace=10, tags=["x"], timeout=30)
    def one() -> None: ...

    @worker.job()
    def two() -> None: ...

    one.enqueue()
    two.enqueue()
    own = [
        {k: v for k, v in job.data.items() if k not in ("jid", "created_at", "enqueued_at")}
        for job in queue.jobs
    ]
    assert own == [
        {
            "retry": 5,
            "queue": "default",
            "class": "one",
            "args": [],
            "backtrace": 10,
            "dead": False,
            "tags": ["x"],
        },
        {"retry": True, "queue": "default", "class": "two", "args": []},
    ]


def declared(job: EnqueuedJob) -> dict[str, Any]:
    """What the envelope says besides the job itself."""
    own = ("class", "args", "queue", "jid", "created_at", "enqueued_at")
    return {key: value for key, value in job.data.items() if key not in own}


def declare_charge(worker: Worker) -> None:
    @worker.job(queue="pay", retry=0, dead=False, backtrace=5, tags=["x"])
    def charge(amount: int) -> None: ...

    worker.process("myqueue")(lambda message: None)


DECLARED = {"retry": 0, "dead": False, "backtrace": 5, "tags": ["x"]}


def test_the_declared_options_of_a_job_go_with_it_from_every_producer(queue: Fake) -> None:
    worker = Worker("redis://127.0.0.1:1/0")
    declare_charge(worker)
    worker.enqueue("pay", "charge", [1])
    worker.enqueue_in(60, "pay", "charge", [1])
    worker.enqueue_bulk("slow", "charge", [[1], [2]])
    worker.client.enqueue("pay", "charge", [1])
    Client.of(worker).enqueue("pay", "charge", [1])
    asyncio.run(AsyncClient.of(worker).enqueue_at(4e9, "pay", "charge", [1]))
    asyncio.run(AsyncClient.of(worker).enqueue_bulk("pay", "charge", [[1]]))
    assert [declared(job) for job in queue.jobs] == [DECLARED] * 8
    assert [job.worker for job in queue.jobs] == [worker] * 8
    assert [job.at is None for job in queue.jobs] == [True, False, True, True, True, True, False, True]


def test_what_the_caller_says_wins_over_what_the_job_declares(worker: Worker, queue: Fake) -> None:
    declare_charge(worker)
    worker.enqueue("pay", "charge", [1], retry=3, tags=["y"])
    Client.of(worker).enqueue("pay", "charge", [1], retry=None, dead=True)
    assert [declared(job) for job in queue.jobs] == [
        DECLARED | {"retry": 3, "tags": ["y"]},
        DECLARED | {"dead": True},
    ]


def test_seconds_of_retries_go_with_a_job_until_the_caller_gives_a_number(
    worker: Worker, queue: Fake
) -> None:
    @worker.job(retry_for=86_400)
    def sync() -> None: ...

    sync.enqueue()
    sync.options(retry=3).enqueue()
    sync.options(tags=["x"]).enqueue()
    worker.enqueue("default", "sync", retry=3)
    worker.enqueue("default", "sync", retry=3, retry_for=60)
    assert [declared(job) for job in queue.jobs] == [
        {"retry": True, "retry_for": 86_400},
        {"retry": 3},
        {"retry": True, "retry_for": 86_400, "tags": ["x"]},
        {"retry": 3},
        {"retry": 3, "retry_for": 60},
    ]


def test_a_bare_client_leaves_out_what_its_caller_does_not_say(worker: Worker, queue: Fake) -> None:
    declare_charge(worker)
    client = Client("redis://127.0.0.1:1/0")
    client.enqueue("pay", "charge", [1])
    client.enqueue_bulk("pay", "charge", [[1]], retry=None)
    asyncio.run(AsyncClient("redis://127.0.0.1:1/0").enqueue("pay", "charge", [1]))
    client.enqueue("pay", "charge", [1], retry=True)
    worker.enqueue("myqueue", "charge", [1])  # the queue's handler runs it, not the job
    worker.enqueue("elsewhere", "Unknown", [1])
    assert [declared(job) for job in queue.jobs] == [{}, {}, {}, {"retry": True}, {}, {}]


def test_a_client_of_a_worker_enqueues_where_the_worker_does() -> None:
    worker = Worker("redis://127.0.0.1:1/3", namespace="app:")
    for kind in (Client, AsyncClient):
        client: Client | AsyncClient = kind.of(worker)
        assert (client.config.url, client.config.namespace) == ("redis://127.0.0.1:1/3", "app:")
    with pytest.raises(ConfigError, match="is not a Redis URL: use redis://"):
        Client.of(Worker("http://x"))


def test_fields_of_ones_own_are_declared_or_given(worker: Worker, queue: Fake) -> None:
    @worker.cron("@daily")
    @worker.job(extra={"tenant": 7})
    def one() -> None: ...

    one.enqueue()
    one.options(extra={"tenant": 8, "locale": "fr"}, timeout=3).enqueue()
    worker.enqueue("default", "one", extra={"locale": "de"})
    Client.of(worker).enqueue_bulk("default", "one", [[]])
    assert [declared(job) for job in queue.jobs] == [
        {"retry": True, "tenant": 7},
        {"retry": True, "tenant": 8, "locale": "fr", "timeout": 3},
        {"retry": True, "locale": "de"},
        {"retry": True, "tenant": 7},
    ]
    [row] = json.loads(json.dumps(worker.manifest()))["cron"]
    job = json.loads(job_of(CronEntry(**row | {"args": ()}), 60, 61.0, "j1").payload)
    assert (job["tenant"], "extra" in job) == (7, False)


@pytest.mark.parametrize(
    ("declare", "message", "hint"),
    [
        (lambda worker: worker.job(timeot=3), "job has no option timeot", "did you mean timeout?"),
        (lambda worker: worker.job(retires=3), "job has no option retires", "did you mean retry?"),
        (lambda worker: worker.job(max_retries=3), "job has no option max_retries", "use retry=NUMBER"),
        (lambda worker: worker.job(bind=True), "job has no option bind", "leave it out: current_message()"),
        (
            lambda worker: worker.job("mail"),
            "job takes no text: 'mail'",
            "name the queue or the class: queue=",
        ),
        (lambda worker: worker.process("q", concurency=3), "process has no", "did you mean concurrency?"),
        (lambda worker: worker.group("web", queue=["a"]), "group has no option", "did you mean queues?"),
        (lambda worker: worker.cron("@daily", timezon="UTC"), "cron has no", "did you mean timezone?"),
        (
            lambda worker: worker.cron(minute=5),
            "cron has no option minute",
            "write a cron line: @worker.cron(",
        ),
        (lambda worker: worker.job(retries=3), "job has no option retries", "did you mean retry?"),
        (lambda worker: worker.job(max_age=3), "job has no option max_age", "did you mean expires_in?"),
        (lambda worker: worker.job(retry_backoff=1), "job has no option", "use retry_in=…, a function"),
        (lambda worker: worker.cron(60), "cron needs a schedule", '@worker.cron("*/5 * * * *"), or every='),
    ],
)
def test_a_misspelt_option_of_a_decorator_is_an_error_that_names_the_nearest(
    worker: Worker, declare: Callable[[Worker], object], message: str, hint: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare(worker)
    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(hint)


def declare_several(worker: Worker) -> Job[..., Any]:
    @worker.job
    def several(a: int, b: int = 1, *rest: int, c: int = 9, **more: int) -> None: ...

    return several


@pytest.mark.parametrize(
    ("args", "kwargs", "stored"),
    [
        ((1,), {}, [1]),
        ((1, 2), {}, [1, 2]),
        ((1, 2, 3, 4), {}, [1, 2, 3, 4]),
        ((), {"a": 5}, [5]),
        ((), {"b": 6, "a": 5}, [5, 6]),
    ],
)
def test_arguments_by_name_are_stored_by_place(
    worker: Worker, queue: Fake, args: tuple[int, ...], kwargs: dict[str, int], stored: list[int]
) -> None:
    declare_several(worker).enqueue(*args, **kwargs)
    assert queue.jobs[0].args == stored


def test_a_gap_before_an_argument_by_name_takes_the_default(worker: Worker, queue: Fake) -> None:
    @worker.job
    def job(a: int, b: str = "b", c: str = "c", d: str = "d") -> None: ...

    job.enqueue(1, c="x")
    assert queue.jobs[0].args == [1, "b", "x"]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, r"several\(\): missing a required argument: 'a'"),
        ((1,), {"a": 2}, r"several\(\): multiple values for argument 'a'"),
        ((1,), {"c": 2}, r"several\(\): 'c' can only be given by name, and a job carries .* without names"),
        ((1,), {"z": 2}, r"several\(\): 'more' can only be given by name"),
    ],
)
def test_wrong_arguments_fail_in_the_caller(
    worker: Worker, queue: Fake, args: tuple[int, ...], kwargs: dict[str, int], message: str
) -> None:
    job = declare_several(worker)
    with pytest.raises(TypeError, match=message):
        job.enqueue(*args, **kwargs)
    assert queue.jobs == []


def test_too_many_arguments_fail_in_the_caller(worker: Worker, queue: Fake) -> None:
    @worker.job
    def one(a: int) -> None: ...

    enqueue: Callable[..., str] = one.enqueue
    with pytest.raises(TypeError, match=r"one\(\): too many positional arguments"):
        enqueue(1, 2)
    with pytest.raises(TypeError, match=r"one\(\): too many"):
        one.enqueue_bulk([(1,), (1, 2)])
    with pytest.raises(BadArgumentError, match=r"args_list\[1\] is of type str"):
        one.enqueue_bulk([(1,), "x"])
    queue.assert_none()


def test_enqueue_in_and_at_and_bulk(worker: Worker, queue: Fake) -> None:
    @worker.job(queue="mail")
    def send(delay: int) -> None: ...

    before = time.time()
    jids = [send.enqueue_in(60, 1), send.enqueue_at(4e9, delay=2), *send.enqueue_bulk((n,) for n in (3, 4))]
    assert [(job.jid, job.queue, job.args) for job in queue.jobs] == [
        (jid, "mail", [n]) for n, jid in enumerate(jids, start=1)
    ]
    due = [job.at for job in queue.jobs]
    assert due[1:] == [4e9, None, None]
    assert due[0] is not None
    assert before + 60 <= due[0] <= time.time() + 60


def test_options_make_another_job_and_leave_the_first_alone(worker: Worker, queue: Fake) -> None:
    @worker.job(queue="mail", retry=5)
    def send(n: int) -> None: ...

    send.options(queue="slow", retry=False, tags=["x"]).enqueue(1)
    send.options(dead=False).enqueue(2)
    send.enqueue(3)
    found = [(job.queue, job.data["retry"], job.data.get("tags"), job.data.get("dead")) for job in queue.jobs]
    assert found == [("slow", False, ["x"], None), ("mail", 5, None, False), ("mail", 5, None, None)]


@pytest.mark.parametrize(
    "options", [{"queue": "a b"}, {"retry": -1}, {"delay": 5}, {"at": 5}, {"tags": "x"}, {"timeot": 3}]
)
def test_options_are_checked(worker: Worker, options: dict[str, Any]) -> None:
    job = worker.job(name="x")(lambda: None)
    with pytest.raises(BadArgumentError):
        job.options(**options)


def test_a_worker_enqueues_like_a_client(worker: Worker, queue: Fake) -> None:
    worker.enqueue("myqueue", "Add", [1, 2], retry=3, tags=["x"])
    worker.enqueue_in(60, "myqueue", "Add")
    worker.enqueue_at(4e9, "myqueue", "Add")
    worker.enqueue_bulk("myqueue", "Add", [[1], [2]])
    assert [job.args for job in queue.jobs] == [[1, 2], [], [], [1], [2]]
    assert {(job.queue, job.job_class, job.worker) for job in queue.jobs} == {("myqueue", "Add", worker)}


# --- what is refused ----------------------------------------------------------------------------------------


async def async_function() -> None: ...


async def async_generator() -> Any:
    yield 1


def generator() -> Any:
    yield 1


class AsyncCall:
    async def __call__(self) -> None: ...


class Plain:
    def method(self) -> None: ...

    def __call__(self, *args: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (async_generator, "is a generator function"),
        (generator, "is a generator function"),
        (Plain, "is the class Plain"),
        (Plain.method, "is a method of Plain"),
        (staticmethod(len), "is of type staticmethod, not a function"),
        (5, "is of type int, not a function"),
    ],
)
def test_what_is_no_plain_function_is_refused_everywhere(worker: Worker, function: Any, message: str) -> None:
    for declare in (
        worker.job(name="x"),
        worker.process("q"),
        worker.middleware,
        worker.on_startup,
        worker.on_exhausted,
    ):
        with pytest.raises(DeclarationError, match=message):
            declare(function)
    assert worker.manifest()["queues"] == {}


@pytest.mark.parametrize(
    "function",
    [
        async_function,
        AsyncCall(),
        functools.partial(async_function),
        functools.partial(functools.partial(AsyncCall())),
    ],
)
def test_async_functions_are_refused_where_no_loop_runs(worker: Worker, function: Any) -> None:
    for declare in (worker.before_start, worker.during_drain, worker.on_exhausted, worker.client_middleware):
        with pytest.raises(DeclarationError, match="is async, but is called where no event loop runs"):
            declare(function)


@pytest.mark.parametrize("function", [async_function, AsyncCall(), functools.partial(AsyncCall())])
def test_an_async_job_is_declared_as_such(worker: Worker, function: Any) -> None:
    worker.job(name="x")(function)
    worker.job(name="y")(lambda: None)
    assert (worker.lookup("default", "x").is_async, worker.lookup("default", "y").is_async) == (True, False)


def test_hooks_at_start_and_end_of_a_worker_may_be_async(worker: Worker) -> None:
    assert worker.on_startup(async_function) is async_function
    worker.on_shutdown(async_function)
    assert worker.hooks("on_startup") == worker.hooks("on_shutdown") == (async_function,)


def test_an_async_job_can_still_be_called(worker: Worker) -> None:
    @worker.job
    async def add(a: int, b: int) -> int:
        return a + b

    assert asyncio.run(add(1, 2)) == 3


def test_hooks_of_a_handler_are_checked(worker: Worker) -> None:
    for option in ("retry_in", "on_exhausted"):
        arguments: dict[str, Any] = {option: async_function}
        with pytest.raises(DeclarationError, match=f"{option} of x is async"):
            worker.job(name="x", **arguments)(lambda: None)
    with pytest.raises(DeclarationError, match="middleware must be a list"):
        worker.job(middleware=lambda message, call_next: None)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "function", [lambda: None, functools.partial(print), Plain()], ids=["lambda", "partial", "object"]
)
def test_a_job_without_a_name_needs_one(worker: Worker, function: Any) -> None:
    with pytest.raises(DeclarationError, match='has no name\ngive it one: name="…"'):
        worker.job(function)
    assert worker.job(name="x")(function).name == "x"


def test_a_name_prefix_stands_in_front_of_the_functions_name() -> None:
    shop = Worker(name_prefix="shop.")

    def notify(user: int) -> None: ...

    assert shop.job(notify).name == "shop.notify"
    assert shop.job(name_prefix="stock.")(notify).name == "stock.notify"
    assert shop.job(name_prefix="")(notify).name == "notify"
    assert shop.job(name="Notify")(notify).name == "Notify"
    names = [handler.name for handler in shop.handlers()]
    assert names == ["shop.notify", "stock.notify", "notify", "Notify"]
    with fake() as jobs:
        shop.enqueue("default", "stock.notify", [7])
        assert [job.job_class for job in jobs.jobs] == ["stock.notify"]


def test_a_function_chooses_the_name_prefix_of_each_function() -> None:
    worker = Worker(name_prefix=lambda function: function.__module__.rpartition(".")[2] + ".")
    assert worker.job(message).name == "test_app.message"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name_prefix": 3}, "the name_prefix of the job 'message' is a string, not 3"),
        ({"name": 3}, "the name of a job is a string, not 3"),
        ({"name": ""}, "the name of a job is empty"),
        ({"name": "x", "name_prefix": "y"}, "the job 'x' has a name_prefix, but its name is the whole class"),
    ],
)
def test_a_name_that_cannot_be_one_is_an_error(worker: Worker, options: dict[str, Any], error: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        worker.job(**options)(message)
    assert caught.value.message == error


# --- queues ---------------------------------------------------------------------------------------------


@pytest.fixture
def thumbs(worker: Worker, queue: Fake) -> Job[[int], None]:
    @worker.job(queue="thumbs")
    def thumb(number: int) -> None: ...

    return thumb


def test_a_queue_that_the_application_does_not_know_is_an_error_with_a_suggestion(
    thumbs: Job[[int], None], queue: Fake
) -> None:
    other = thumbs.options(queue="thumbs-fooo")
    uses: list[Callable[[], object]] = [
        lambda: other.enqueue(1),
        lambda: other.try_enqueue(1),
        lambda: other.enqueue_in(10, 1),
        lambda: other.enqueue_at(4e9, 1),
        lambda: other.enqueue_bulk([(1,)]),
        lambda: other.call(1),
        lambda: other.options(retry=3).enqueue(1),
        lambda: asyncio.run(other.aenqueue(1)),
        lambda: asyncio.run(other.aenqueue_bulk([(1,)])),
    ]
    for use in uses:
        with pytest.raises(BadArgumentError) as caught:
            use()
        assert caught.value.message == "the application does not know the queue 'thumbs-fooo'"
        assert caught.value.hint.startswith("did you mean thumbs? Otherwise: any_queue=True")
    assert queue.jobs == []
    thumbs.options(queue="thumbs-fooo", any_queue=True).enqueue(1)
    assert [job.queue for job in queue.jobs] == ["thumbs-fooo"]


def test_queues_of_other_jobs_handlers_and_groups_are_known_also_if_they_are_declared_later(
    worker: Worker, thumbs: Job[[int], None], queue: Fake
) -> None:
    names = ["thumbs2", "thumbs3", "thumbs4", "thumbs5"]
    others = [thumbs.options(queue=name) for name in names]
    worker.job(queue="thumbs2", name="other")(lambda: None)
    worker.process("thumbs3")(lambda message: None)
    worker.group("slow", queues=["thumbs4"])
    worker.group("slower", queues={"thumbs5": 2})
    for other in others:
        other.enqueue(1)
    assert [job.queue for job in queue.jobs] == names


def test_without_a_file_another_name_may_be_that_of_a_group_of_the_server(
    thumbs: Job[[int], None], queue: Fake
) -> None:
    thumbs.options(queue="nightly").enqueue(1)
    assert [job.queue for job in queue.jobs] == ["nightly"]


def test_with_the_file_its_groups_are_known_and_nothing_else(tmp_path: Path, queue: Fake) -> None:
    file = tmp_path / "workers.toml"
    file.write_text('[groups.web]\nqueues = ["urgent"]\n[queues.thumbs]\nconcurrency = 2\n')
    job = Worker(config=file).job(queue="thumbs")(message)
    job.options(queue="urgent").enqueue(1)
    with pytest.raises(
        BadArgumentError, match="the application does not know the queue 'nightly'\nany_queue=True"
    ):
        job.options(queue="nightly").enqueue(1)
    assert [job.queue for job in queue.jobs] == ["urgent"]


def test_a_bound_method_can_be_a_job(worker: Worker) -> None:
    assert worker.job(Plain().method).name == "method"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": "a b"}, "'a b' cannot be a queue"),
        ({"name": "a|b"}, "cannot be a job class"),
        ({"retry": -1}, "retry must be True, False or a number of retries, not -1"),
        ({"retry": "5"}, "retry must be True, False"),
        ({"retry": None}, "retry must be True, False"),
        ({"backtrace": "x"}, "backtrace must be"),
        ({"dead": None}, "dead must be True or False"),
        ({"concurrency": 0}, "concurrency must be at least 1, not 0"),
        ({"concurrency": True}, "concurrency must be at least 1"),
        ({"processes": 0}, "processes must be at least 1, not 0"),
        ({"mode": "asnyc"}, "mode must be one of process, async, thread, not 'asnyc'\ndid you mean async?"),
        ({"mode": 1}, "mode must be one of process, async, thread, not 1"),
        ({"timeout": -1}, "timeout must be in seconds"),
        ({"fenced": 1}, "fenced must be True or False, not 1"),
        ({"retry_for": -1}, "retry_for must be seconds up to 1e"),
        ({"retry_for": "1d"}, "retry_for must be seconds up to 1e"),
        ({"retry_for": 60, "retry": False}, "retry_for needs retries, not False"),
        ({"timeout": "30"}, "timeout must be in seconds"),
        ({"timeout": float("nan")}, "timeout must be in seconds"),
        ({"tags": "x"}, "tags must be a list of strings"),
    ],
)
def test_bad_options_of_a_job(worker: Worker, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        worker.job(**{"name": "x", **options})(lambda: None)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("web", {}, "the group 'web': a group has at least one queue"),
        ("web", {"queues": "a"}, r"the group 'web' needs a list of queues\nqueues=\["),
        ("web", {"queues": {"a"}}, "the group 'web' needs a list of queues"),
        ("web", {"queues": ["a", "a"]}, "a is named twice: for weights, give each queue its number"),
        ("web", {"queues": ["a b"]}, "'a b' cannot be a queue"),
        ("web", {"queues": [7]}, "7 cannot be a queue"),
        ("web", {"queues": {"a": 0}}, "the weight of a must be an integer from 1 to 1,000,000, not 0"),
        ("web", {"queues": {"a": 1.5}}, "the weight of a must be an integer from 1 to 1,000,000, not 1.5"),
        (
            "web",
            {"queues": {"a": 1_000_001}},
            "the weight of a must be an integer from 1 to 1,000,000, not 1000001",
        ),
        ("web", {"queues": ["a"], "mode": "threads"}, r"not 'threads'\ndid you mean thread\?"),
        (
            "web",
            {"queues": ["a"], "concurrency": 0},
            "the group 'web': concurrency must be at least 1, not 0",
        ),
        ("a b", {"queues": ["a"]}, "'a b' cannot name a group"),
        ("web", {"queues": ["x", "mail"]}, "two groups are named 'web'"),
        ("other", {"queues": ["x", "mail"]}, "the queue 'mail' is in two groups, 'web' and 'other'"),
    ],
)
def test_bad_groups(worker: Worker, name: str, options: dict[str, Any], message: str) -> None:
    if "mail" in options.get("queues", ()):
        worker.group("web", queues=["mail"])
    with pytest.raises(DeclarationError, match=message):
        worker.group(name, **options)


def test_the_jobs_of_a_queue_have_one_mode(worker: Worker) -> None:
    worker.job(queue="q", name="one", mode="thread")(lambda: None)
    worker.job(queue="q", name="two")(lambda: None)
    worker.job(queue="other", name="three", mode="process")(lambda: None)
    with pytest.raises(DeclarationError, match="four: the mode of the queue 'q' is thread by the job one"):
        worker.job(queue="q", name="four", mode="process")(lambda: None)


def test_a_process_handler_takes_one_argument(worker: Worker) -> None:
    with pytest.raises(DeclarationError, match=r"must be callable with \(message\)"):
        worker.process("q")(lambda: None)  # type: ignore[arg-type, misc]
    worker.process("q")(lambda message, extra=None: None)  # type: ignore[misc]


def test_process_needs_a_queue(worker: Worker) -> None:
    with pytest.raises(DeclarationError, match=r"needs the name of a queue\n@worker\.process"):
        worker.process(lambda message: None)  # type: ignore[arg-type]


def test_a_keyword_only_parameter_needs_a_default(worker: Worker) -> None:
    def job(a: int, *, b: int) -> None: ...

    with pytest.raises(DeclarationError, match="keyword-only parameter 'b' without a default"):
        worker.job(job)


def test_a_queue_has_one_owner(worker: Worker) -> None:
    worker.process("q")(lambda message: None)
    worker.job(queue="jobs", name="one")(lambda: None)
    with pytest.raises(DeclarationError, match="the queue 'q' belongs to"):
        worker.process("q")(lambda message: None)
    with pytest.raises(DeclarationError, match="the queue 'q' belongs to"):
        worker.job(queue="q", name="two")(lambda: None)
    with pytest.raises(DeclarationError, match="the queue 'jobs' has the job one"):
        worker.process("jobs")(lambda message: None)


def test_two_jobs_of_one_name_are_an_error_with_both_places(worker: Worker) -> None:
    worker.job(name="same")(lambda: 1)
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    with pytest.raises(DeclarationError) as caught:
        worker.job(name="same", queue="other")(lambda: 2)
    first, second = place_of(__file__, line), place_of(__file__, line + 3)
    assert caught.value.message == f"two jobs are named 'same', at {first} and {second}"
    assert caught.value.hint.startswith('give one another name: name="…", or name_prefix="…"')


def test_a_declaration_error_names_the_line_of_the_application(worker: Worker) -> None:
    misspelt: Any = {"timeot": 3}
    with pytest.raises(DeclarationError) as caught:
        worker.job(**misspelt)
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    assert str(caught.value).startswith(f"{place_of(__file__, line)}: job has no option timeot\n")


@pytest.mark.parametrize(
    ("declare", "function", "message"),
    [
        (
            Worker.middleware,
            lambda message: None,
            "a middleware must be callable with (message, call_next)",
        ),
        (
            Worker.client_middleware,
            lambda: None,
            "a client middleware must be callable with (draft, call_next)",
        ),
        (Worker.on_startup, lambda worker: None, "on_startup must be callable with (): "),
        (Worker.during_drain, lambda worker: None, "during_drain must be callable with (): "),
        (Worker.on_exhausted, lambda message: None, "on_exhausted must be callable with (message, error): "),
    ],
)
def test_a_link_or_hook_of_another_shape_is_refused(
    worker: Worker, declare: Callable[..., object], function: Callable[..., object], message: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare(worker, function)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("option", "function", "error"),
    [
        ("retry_in", lambda count: 3, "retry_in of x must be callable with (failures, error, message): "),
        ("on_exhausted", lambda message: None, "on_exhausted of x must be callable with (message, error): "),
        ("middleware", [lambda m: None], "middleware of x must be callable with (message, call_next): "),
    ],
)
def test_a_function_among_the_options_of_another_shape_is_refused(
    worker: Worker, option: str, function: Any, error: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        worker.job(name="x", **{option: function})(lambda: None)
    assert caught.value.message.startswith(error)
    assert caught.value.location.startswith("tests/unit/test_app.py:")


def test_a_client_refuses_a_link_of_another_shape() -> None:
    with pytest.raises(DeclarationError, match=r"must be callable with \(draft, call_next\)"):
        Client(middleware=[lambda draft: "jid"])  # type: ignore[list-item, misc]


def _declare_with(form: str, option: str, value: Any) -> None:
    worker = Worker()
    options: dict[str, Any] = {option: value}
    if form == "job":
        worker.job(**options)(message)
    elif form == "process":
        worker.process("q", **options)(lambda message: None)
    elif form == "cron":
        worker.cron("@daily", **{"args": [1], **options})(worker.job(message))
    elif form == "group":
        worker.group("g", **{"queues": ["a"], **options})
    else:
        worker.limit("erp", **{"rate": 1, **options})


_FORMS = {
    "job": sorted(inspect.get_annotations(JobOptions)),
    "process": sorted(inspect.get_annotations(HandlerOptions)),
    "cron": sorted(inspect.get_annotations(CronOptions)),
    "group": sorted(inspect.get_annotations(GroupOptions)),
    "limit": ["rate", "per", "concurrency", "by"],
}


@pytest.mark.parametrize(
    ("form", "option"), [(form, name) for form, names in _FORMS.items() for name in names]
)
def test_a_bad_value_of_any_option_is_an_error_of_the_declaration(form: str, option: str) -> None:
    """No other exception, which would not say where; and an object is a value of no option."""
    values: list[Any] = [5, "x", None, [], {}, -1, 1.5, True, math.nan, timedelta(seconds=3), lambda: 1]
    for value in values:
        with suppress(DeclarationError):
            _declare_with(form, option, value)
    with pytest.raises(DeclarationError) as caught:
        _declare_with(form, option, object())
    assert caught.value.location.startswith("tests/unit/test_app.py:")


def test_a_job_is_not_declared_twice(worker: Worker) -> None:
    job = worker.job(name="x")(lambda: None)
    declares: list[Callable[..., object]] = [worker.job(name="y"), worker.process("q")]
    for declare in declares:
        with pytest.raises(DeclarationError, match="is declared as a job already"):
            declare(job)


# --- cron, hooks, manifest ----------------------------------------------------------------------------------


def test_cron_takes_a_period_instead_of_a_schedule(worker: Worker) -> None:
    @worker.cron(every="30s")
    @worker.job()
    def poll() -> None: ...

    assert [one.schedule for one in worker.cron_entries] == ["every 30s"]
    for schedule, every in ((None, None), ("@daily", "30s")):
        with pytest.raises(DeclarationError, match="either a schedule or every="):
            worker.cron(schedule, every=every)
    with pytest.raises(DeclarationError, match="'every soon' is not a cron line"):
        worker.cron(every="soon", name="other")(poll)


def test_cron_stacks_on_a_job(worker: Worker) -> None:
    @worker.cron("*/5 * * * *", timezone="Europe/Paris", misfire="all", grace=60, args=[1])
    @worker.cron("@daily", name="daily")
    @worker.job(queue="low", retry=2)
    def sweep(n: int = 0) -> int:
        return n

    assert sweep(3) == 3
    assert worker.manifest()["cron"] == [
        {
            "name": "daily",
            "schedule": "@daily",
            "queue": "low",
            "job_class": "sweep",
            "args": (),
            "timezone": "UTC",
            "misfire": "once",
            "grace_s": 300.0,
            "retry": 2,
            "options": {},
            "origin": "application",
        },
        {
            "name": "sweep",
            "schedule": "*/5 * * * *",
            "queue": "low",
            "job_class": "sweep",
            "args": (1,),
            "timezone": "Europe/Paris",
            "misfire": "all",
            "grace_s": 60,
            "retry": 2,
            "options": {},
            "origin": "application",
        },
    ]


@pytest.mark.parametrize(
    ("schedule", "options", "message"),
    [
        ("* * * *", {}, "schedule: .*is not a cron line"),
        ("61 * * * *", {}, "schedule"),
        ("* * * * *", {"timezone": "Europe/Pari"}, "timezone: .*did you mean Europe/Paris"),
        ("* * * * *", {"misfire": "never"}, "is not a misfire policy: skip, once, all"),
        ("* * * * *", {"grace": -1}, "a grace of -1 is not from 0"),
        ("* * * * *", {"grace": float("nan")}, "a grace of nan is not from 0"),
        ("* * * * *", {"name": ""}, "name"),
        ("* * * * *", {"args": [{1}]}, "args: must be JSON values"),
        ("* * * * *", {"args": [1, 2]}, "too many positional arguments"),
        ("* * * * *", {"args": "x"}, "args must be a list, not of type str"),
    ],
)
def test_bad_cron_entries(worker: Worker, schedule: str, options: dict[str, Any], message: str) -> None:
    @worker.job
    def sweep(n: int = 0) -> None: ...

    with pytest.raises(DeclarationError, match=message):
        worker.cron(schedule, **options)(sweep)
    assert worker.cron_entries == []


def test_two_entries_of_one_job_need_names(worker: Worker) -> None:
    job = worker.cron("@daily")(worker.job(name="sweep")(lambda: None))
    with pytest.raises(
        DeclarationError, match=r"two cron entries are named \'sweep\'\ngive one another name"
    ):
        worker.cron("@hourly")(job)


def test_cron_below_job_is_refused(worker: Worker) -> None:
    with pytest.raises(DeclarationError, match=r"@worker\.cron must be directly above @worker\.job"):
        worker.cron("@daily")(lambda: None)  # type: ignore[arg-type]


def test_hooks_and_links_are_kept_in_order_and_stay_functions(worker: Worker) -> None:
    def first() -> int:
        return 1

    def second() -> None: ...

    assert worker.on_startup(first) is first
    worker.on_startup(second)
    assert worker.hooks("on_startup") == (first, second)
    assert worker.hooks("during_drain") == ()
    assert worker.middleware(lambda message, call_next: None) is worker.links[0]


def test_the_manifest_is_json_and_complete(worker: Worker) -> None:
    worker.process("myqueue", concurrency=3, retry=2, dead=False, timeout=7)(lambda message: None)
    worker.job(queue="mail", concurrency=2, name="a", on_exhausted=lambda message, error: None)(lambda: None)
    worker.job(queue="mail", concurrency=4, processes=2, name="b", retry=False)(lambda: None)
    worker.job(queue="mail", name="c", timeout=9, mode="thread")(lambda: None)
    worker.group("web", queues={"mail": 5, "low": 1}, concurrency=20, processes=2, mode="thread")
    worker.group("all", queues=("b", "a"))
    worker.job(name="d")(lambda: None)
    worker.during_drain(lambda: None)
    manifest = worker.manifest()
    assert json.loads(json.dumps(manifest)) == manifest
    assert manifest["queues"] == {
        "myqueue": {
            "kind": "process",
            "concurrency": 3,
            "processes": None,
            "mode": None,
            "name": "<lambda>",
            "retry": 2,
            "dead": False,
            "is_async": False,
        },
        "mail": {
            "kind": "job",
            "concurrency": 4,
            "processes": 2,
            "mode": "thread",
            "is_async": False,
            "classes": ["a", "b", "c"],
        },
        "default": {
            "kind": "job",
            "concurrency": None,
            "processes": None,
            "mode": None,
            "is_async": False,
            "classes": ["d"],
        },
    }
    assert manifest["groups"] == {
        "web": {"queues": {"mail": 5, "low": 1}, "concurrency": 20, "processes": 2, "mode": "thread"},
        "all": {"queues": ["b", "a"], "concurrency": None, "processes": None, "mode": None},
    }
    assert manifest["jobs"]["a"] == {
        "name": "a",
        "retry": True,
        "dead": True,
        "is_async": False,
        "envelope": {"retry": True},
        "takes": ["", 0, 0],
    }
    assert [manifest["jobs"][name]["retry"] for name in "bcd"] == [False, True, True]
    assert manifest["handlers"] == ["a", "b", "c", "d", "<lambda>"]
    assert manifest["hooks"]["during_drain"] == 1
    assert manifest["hooks"]["on_startup"] == 0


class _Shy:
    def __repr__(self) -> str:
        raise RuntimeError


def test_the_manifest_says_what_jobs_take_without_the_values_of_defaults(worker: Worker) -> None:
    @worker.job
    def send(to: str, token: str = "secret", *rest: int, fast: bool = False) -> None: ...

    @worker.job
    def odd(where, /, times: list[int] | None = None): ...  # type: ignore[no-untyped-def]

    @worker.job
    def shy(what): ...  # type: ignore[no-untyped-def]

    shy.function.__annotations__["what"] = _Shy()
    jobs = worker.manifest()["jobs"]
    assert jobs["send"]["takes"] == ["to: str, token: str = …, *rest: int", 1, None]
    assert jobs["odd"]["takes"] == ["where, times: list[int] | None = …", 1, 2]
    assert jobs["shy"]["takes"] == ["what", 1, 1]
