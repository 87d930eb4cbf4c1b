"""The chain and its built-in links: what a job raises or returns becomes one outcome and one line."""

from __future__ import annotations

import asyncio
import io
import json
import random
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pyworkers import logs
from pyworkers.api import JobRecord
from pyworkers.app import Worker
from pyworkers.errors import Discard, Interrupted, JobTimeout, Kill, Retry, Snooze, UnknownJobError
from pyworkers.middleware import AsyncCallNext, CallNext, DualLink, Middleware, name_of
from pyworkers.middleware import build as build_part
from pyworkers.protocol.effects import DeleteKey
from pyworkers.protocol.message import Message, current_message
from pyworkers.protocol.outcome import DONE, REQUEUE, Fate, Outcome
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime, StepChain
from pyworkers.worker.execution import Execution
from pyworkers.worker.steps.hooks import exhausted_hooks, run_exhausted
from pyworkers.worker.steps.timelimit import Alarm

NOW = 1_795_225_197.5


class Lowest(random.Random):
    """Draws the lowest number each time."""

    def randrange(self, *_: Any) -> int:
        return 0


def message(job_class: str = "job", **fields: Any) -> Message:
    data = {"class": job_class, "args": [], "jid": "j1", "queue": "default", **fields}
    return Message.parse(json.dumps(data).encode(), "default", lambda: "made")


def chain_of(
    worker: Worker,
    job_class: str = "job",
    max_retries: int = 25,
    **more: Any,
) -> StepChain:
    try:
        handler = worker.lookup("default", job_class)
    except UnknownJobError:
        handler = None
    return StepChain(worker, handler, Runtime(Bridge(), max_retries, lambda: NOW, Lowest(), **more))


def chain(worker: Worker, job_class: str = "job") -> CallNext:
    run = chain_of(worker, job_class).run
    return lambda message: run(Execution(message))


def build(links: list[Middleware], job: Callable[[Message], object]) -> CallNext:
    call: CallNext = build_part(links, job, Bridge()).call
    return call


def raising(error: BaseException, worker: Worker | None = None, **options: Any) -> Worker:
    """An application with one job, named "job", that raises ``error``."""
    worker = worker or Worker()

    @worker.job(**options)
    def job() -> None:
        raise error

    return worker


@pytest.fixture
def log_lines() -> Callable[[], list[dict[str, Any]]]:
    stream = io.StringIO()
    logs.configure("debug", "json", stream)

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    return read


# --- the chain --------------------------------------------------------------------------------------------


def noting(notes: list[str], name: str) -> Middleware:
    def link(message: Message, call_next: CallNext) -> Outcome:
        notes.append(f"{name} in")
        outcome = call_next(message)
        notes.append(f"{name} out")
        return outcome

    return link


def test_the_first_link_is_outermost() -> None:
    notes: list[str] = []
    call = build([noting(notes, "a"), noting(notes, "b")], lambda message: notes.append("job"))
    assert call(message()) == DONE
    assert notes == ["a in", "b in", "job", "b out", "a out"]


def test_what_the_handler_returns_is_ignored() -> None:
    assert build([], lambda message: Outcome(Fate.DEAD))(message()) is DONE


def test_a_link_can_stop_the_job() -> None:
    notes: list[str] = []
    assert build([lambda message, call_next: None], notes.append)(message()) is DONE  # type: ignore[arg-type]
    assert notes == []


def test_a_link_can_choose_another_outcome() -> None:
    assert build([lambda message, call_next: REQUEUE], print)(message()) is REQUEUE


def test_a_link_can_replace_the_message() -> None:
    seen: list[Any] = []

    def double(message: Message, call_next: CallNext) -> Outcome:
        return call_next(message.replace(args=[2 * arg for arg in message.args]))

    build([double, double], lambda message: seen.append(message.args))(message(args=[1, 2]))
    assert seen == [[4, 8]]


def test_a_link_that_returns_something_else_is_a_bug() -> None:
    def wrong(message: Message, call_next: CallNext) -> Any:
        return "ok"

    with pytest.raises(TypeError, match=r"wrong returned 'ok', not an Outcome or None"):
        build([wrong], print)(message())


# --- the whole chain --------------------------------------------------------------------------------------


def test_the_applications_links_stand_around_the_handler_global_ones_first() -> None:
    worker, notes = Worker(), list[str]()
    worker.middleware(noting(notes, "global"))
    worker.job(name="job", middleware=[noting(notes, "own")])(lambda n: notes.append(f"job {n}"))
    assert chain(worker)(message(args=[7])) == DONE
    assert notes == ["global in", "own in", "job 7", "own out", "global out"]


def test_a_job_knows_its_message_and_leaves_no_trace_of_it() -> None:
    worker, seen = Worker(), list[Message]()
    worker.job(name="job")(lambda: seen.append(current_message()))
    job = message()
    chain(worker)(job)
    assert seen == [job]
    with pytest.raises(LookupError):
        current_message()


def test_an_unknown_class_is_retried_through_the_global_links() -> None:
    worker, notes = Worker(), list[str]()
    worker.middleware(noting(notes, "global"))
    outcome = chain(worker, "Nobody")(message("Nobody"))
    assert (outcome.fate, outcome.error_class) == (Fate.RETRY, "UnknownJobError")
    assert outcome.error_message == "no handler for the class 'Nobody' of the queue 'default'"
    assert notes == ["global in"]


@pytest.mark.parametrize("raw", [b"{}", b'{"args":[1]}', b'{"class":null,"retry":true}', b'{"class":""}'])
def test_a_job_without_a_class_is_dead_at_once(raw: bytes) -> None:
    job = Message.parse(raw, "default", lambda: "j1")
    outcome = chain(Worker(), job.job_class)(job)
    assert (outcome.fate, outcome.error_class) == (Fate.DEAD, "BadMessageError")
    assert json.loads(outcome.payload)["error_message"] == "a job of the queue 'default' has no class"


# --- retry ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "error_class", "text"),
    [
        (ValueError("bad"), "ValueError", "bad"),
        (KeyError("x"), "KeyError", "'x'"),
        (JobTimeout("too long"), "JobTimeout", "too long"),
        (SystemExit(3), "SystemExit", "3"),
        (KeyboardInterrupt(), "KeyboardInterrupt", ""),
        (GeneratorExit(), "GeneratorExit", ""),
        (MemoryError(), "MemoryError", ""),
        (Retry("later"), "Retry", "later"),
    ],
)
def test_everything_that_a_job_raises_is_a_failure(error: BaseException, error_class: str, text: str) -> None:
    outcome = chain(raising(error))(message())
    assert (outcome.fate, outcome.at, outcome.failed) == (Fate.RETRY, NOW + 15, True)
    assert (outcome.error_class, outcome.error_message) == (error_class, text)


def test_endless_recursion_is_a_failure() -> None:
    worker = Worker()

    @worker.job
    def job() -> None:
        job()

    assert chain(worker)(message()).error_class == "RecursionError"


def test_an_error_that_cannot_be_shown_is_a_failure() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    outcome = chain(raising(Mute()))(message())
    assert (outcome.fate, outcome.error_message) == (Fate.RETRY, "(its text cannot be shown: __str__ failed)")


@pytest.mark.parametrize(
    ("error", "fate", "at"),
    [
        (Discard(), Fate.DISCARD, 0.0),
        (Kill(), Fate.DEAD, 0.0),
        (Retry(delay=5), Fate.RETRY, NOW + 5),
        (Retry(delay=-5), Fate.RETRY, NOW + 15),
        (Retry(delay="soon"), Fate.RETRY, NOW + 15),  # type: ignore[arg-type]
    ],
)
def test_a_job_chooses_its_fate(error: BaseException, fate: Fate, at: float) -> None:
    outcome = chain(raising(error))(message())
    assert (outcome.fate, outcome.at, outcome.failed) == (fate, at, True)


def test_an_interrupted_job_is_given_back_and_not_counted() -> None:
    assert chain(raising(Interrupted()))(message(retry=0, retry_count=3)) == REQUEUE


def test_a_snooze_is_no_failure_and_keeps_the_job_as_it_is() -> None:
    assert chain(raising(Snooze(60)))(message(retry_count=3)) == Outcome(Fate.SNOOZE, NOW + 60)


def test_a_job_chooses_its_delay_as_a_timedelta_too() -> None:
    minute = timedelta(minutes=1)
    assert chain(raising(Snooze(delay=minute)))(message()) == Outcome(Fate.SNOOZE, NOW + 60)
    assert chain(raising(Retry(delay=minute)))(message()).at == NOW + 60
    assert str(Snooze(minute)) == "snoozed for 60 s"


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"queue": None}, {"queue": "default"}),
        ({"queue": "ns:default"}, {"queue": "default"}),
        ({"jid": None}, {"jid": "made"}),
    ],
)
def test_a_snoozed_job_finds_its_queue_again(fields: dict[str, Any], kept: dict[str, str]) -> None:
    outcome = chain(raising(Snooze(60)))(message(**fields))
    assert kept.items() <= json.loads(outcome.payload).items()


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_delay_beyond_all_floats_or_texts_is_invalid(digits: int) -> None:
    assert chain(raising(Retry(delay=10**digits)))(message()).at == NOW + 15


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("delay", [10**5000, Unprintable()], ids=["digits", "repr"])
def test_a_delay_that_has_no_text_is_invalid(delay: Any) -> None:
    assert chain(raising(Retry(delay=delay)))(message()).at == NOW + 15
    assert chain(raising(Snooze(delay, "later")))(message()).error_class == "BadArgumentError"


def test_a_snooze_without_a_usable_delay_is_a_failure() -> None:
    outcome = chain(raising(Snooze(-1)))(message())
    assert (outcome.fate, outcome.error_class, outcome.failed) == (Fate.RETRY, "BadArgumentError", True)


def test_a_link_may_raise_as_the_job_may() -> None:
    worker = Worker()
    worker.job(name="job")(lambda: None)

    @worker.middleware
    def refuse(message: Message, call_next: CallNext) -> Outcome:
        raise Kill("not on Sundays")

    assert chain(worker)(message()).fate is Fate.DEAD


def test_a_link_sees_the_error_and_may_swallow_it() -> None:
    worker, seen = raising(ValueError("bad")), list[Exception]()

    @worker.middleware
    def forgive(message: Message, call_next: CallNext) -> Outcome | None:
        try:
            return call_next(message)
        except ValueError as error:
            seen.append(error)
            return None

    assert chain(worker)(message()) == DONE
    assert str(seen[0]) == "bad"


@pytest.mark.parametrize(
    ("options", "fields", "fate"),
    [
        ({"retry": 0}, {}, Fate.DEAD),
        ({"retry": 0, "dead": False}, {}, Fate.DISCARD),
        ({"retry": False}, {}, Fate.DISCARD),
        ({"retry": False}, {"retry": 1}, Fate.RETRY),
        ({}, {"retry": 2, "retry_count": 1}, Fate.DEAD),
    ],
)
def test_the_handlers_policy_is_for_jobs_that_are_silent(
    options: dict[str, Any], fields: dict[str, Any], fate: Fate
) -> None:
    assert chain(raising(ValueError(), **options))(message(**fields)).fate is fate


def test_the_configured_number_of_retries() -> None:
    worker = raising(ValueError())
    run = chain_of(worker, max_retries=1).run
    fates = [run(Execution(job)).fate for job in (message(), message(retry_count=0))]
    assert fates == [Fate.RETRY, Fate.DEAD]


def test_the_backtrace_begins_where_it_happened_and_names_no_file_of_ours() -> None:
    worker = Worker()

    def helper() -> None:
        raise ValueError

    @worker.job(backtrace=True)
    def job() -> None:
        helper()

    found: list[str] = []
    import pyworkers.protocol.retry as retry

    def keep(lines: list[str]) -> str:
        found.extend(lines)
        return ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "compress_backtrace", keep)
        chain(worker)(message())
    here = helper.__code__
    first = f"{here.co_filename}:{here.co_firstlineno + 1}:in {here.co_qualname}"
    assert found[0] == first
    assert [line.rpartition(".")[2] for line in found] == ["helper", "job"]


def test_a_job_without_the_option_keeps_20_lines_of_its_traceback() -> None:
    worker = Worker()

    def deep(left: int) -> None:
        if not left:
            raise ValueError
        deep(left - 1)

    @worker.job
    def job() -> None:
        deep(30)

    @worker.job(backtrace=False)
    def quiet() -> None:
        deep(30)

    def lines(name: str, **more: Any) -> list[str]:
        outcome = chain_of(worker, name, **more).run(Execution(message(name)))
        return JobRecord(outcome.payload).error_backtrace

    assert [line.rpartition(".")[2] for line in lines("job")] == ["deep"] * 20
    assert len(lines("job", backtrace=2)) == 2
    assert lines("job", backtrace=0) == []
    assert lines("quiet") == []


# --- retry_in ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "fate", "at"),
    [
        (7, Fate.RETRY, NOW + 7),
        (None, Fate.RETRY, NOW + 31),
        (0, Fate.RETRY, NOW),
        (-1, Fate.RETRY, NOW + 31),
        ("soon", Fate.RETRY, NOW + 31),
        (Kill(), Fate.DEAD, 0.0),
        (Discard(), Fate.DISCARD, 0.0),
        (RuntimeError(), Fate.RETRY, NOW + 31),
    ],
)
def test_retry_in(answer: Any, fate: Fate, at: float) -> None:
    def retry_in(count: int, error: BaseException, message: Message) -> float | None:
        assert (count, str(error), message.jid) == (2, "bad", "j1")
        if isinstance(answer, Exception):
            raise answer
        result: float | None = answer
        return result

    outcome = chain(raising(ValueError("bad"), retry_in=retry_in))(message(retry_count=1))
    assert (outcome.fate, outcome.at) == (fate, at)


@pytest.mark.parametrize(
    ("error", "fields"), [(ValueError(), {"retry": 0}), (Retry(delay=5), {}), (Kill(), {})]
)
def test_retry_in_is_not_asked_where_it_has_no_say(error: Exception, fields: dict[str, Any]) -> None:
    asked: list[int] = []
    worker = raising(error, retry_in=lambda count, error, message: asked.append(count))
    chain(worker)(message(**fields))
    assert asked == []


# --- the class of the exception ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "fields", "fate"),
    [
        (TimeoutError(), {}, Fate.RETRY),
        (TimeoutError(), {"retry": 1, "retry_count": 0}, Fate.DEAD),
        (OSError(), {}, Fate.DISCARD),
        (KeyError(), {}, Fate.DEAD),
        (KeyError(), {"retry": False}, Fate.DEAD),
        (KeyError(), {"dead": False}, Fate.DISCARD),
        (ValueError(), {}, Fate.DEAD),
        (JobTimeout(), {}, Fate.RETRY),
        # What a job chooses counts above its class.
        (Retry(delay=5), {}, Fate.RETRY),
        (Snooze(5), {}, Fate.SNOOZE),
        (Kill(), {}, Fate.DEAD),
    ],
)
def test_the_fate_by_the_class_of_the_exception(error: Exception, fields: dict[str, Any], fate: Fate) -> None:
    worker = raising(error, retry_on=[TimeoutError], discard_on=[OSError], dead_on=[LookupError])
    assert chain(worker)(message(**fields)).fate is fate


# --- exhaustion hooks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "fields", "told"),
    [
        (ValueError(), {}, False),
        (Snooze(5), {}, False),
        (ValueError(), {"retry": 0}, True),
        (ValueError(), {"retry": False}, True),
        (Discard(), {}, True),
        (Kill(), {}, True),
    ],
)
def test_the_hooks_hear_of_jobs_that_are_given_up(
    error: Exception, fields: dict[str, Any], told: bool
) -> None:
    heard: list[Any] = []
    worker = raising(error, on_exhausted=lambda message, error: heard.append(("own", message.jid, error)))
    worker.on_exhausted(lambda message, error: heard.append(("global", message.jid, error)))
    chain(worker)(message(**fields))
    assert heard == ([("own", "j1", error), ("global", "j1", error)] if told else [])


def test_the_hooks_hear_of_a_link_that_gives_a_job_up() -> None:
    worker, heard = Worker(), list[Any]()
    worker.job(name="job")(lambda: None)
    worker.middleware(lambda message, call_next: Outcome(Fate.DEAD, failed=True))
    worker.on_exhausted(lambda message, error: heard.append(error))
    assert chain(worker)(message()).fate is Fate.DEAD
    assert heard == [None]


def test_a_hook_that_fails_changes_nothing(log_lines: Callable[[], list[dict[str, Any]]]) -> None:
    heard: list[str] = []

    def leave(message: Message, error: BaseException | None) -> None:
        sys.exit(1)

    worker = raising(ValueError(), on_exhausted=leave)
    worker.on_exhausted(lambda message, error: heard.append(message.jid))
    assert chain(worker)(message(retry=0)).fate is Fate.DEAD
    assert heard == ["j1"]
    assert [line["event"] for line in log_lines()] == ["job.start", "hook.failed", "job.failed"]


def test_the_hooks_of_a_job_that_was_lost_with_its_worker() -> None:
    heard: list[str] = []
    worker = raising(ValueError(), on_exhausted=lambda message, error: heard.append("own"))
    worker.on_exhausted(lambda message, error: heard.append(f"global {error}"))
    run_exhausted(exhausted_hooks(worker, worker.lookup("default", "job")), message(), ValueError("lost"))
    run_exhausted(exhausted_hooks(worker, None), message(), None)
    assert heard == ["own", "global lost", "global None"]


# --- logging ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "retry", "event", "level", "more"),
    [
        (None, 5, "job.done", "info", {}),
        (Snooze(5), 5, "job.snoozed", "info", {"until": NOW + 5}),
        (Interrupted(), 5, "job.interrupted", "warning", {}),
        (ValueError("bad"), 5, "job.failed", "warning", {"outcome": "retry", "retry_at": NOW + 31}),
        (ValueError("bad"), 5, "job.failed", "warning", {"error_class": "ValueError", "error": "bad"}),
        (ValueError("bad"), 0, "job.failed", "error", {"outcome": "dead"}),
        (ValueError("bad"), False, "job.failed", "error", {"outcome": "discard"}),
        (JobTimeout("long"), 5, "job.timeout", "warning", {"outcome": "retry", "error": "long"}),
        (Kill("no"), 5, "job.failed", "error", {"outcome": "dead", "error_class": "Kill"}),
        (Discard("no"), 5, "job.discarded", "info", {"reason": "no"}),
    ],
)
def test_one_line_per_job(
    log_lines: Callable[[], list[dict[str, Any]]],
    error: BaseException | None,
    retry: bool | int,
    event: str,
    level: str,
    more: dict[str, Any],
) -> None:
    worker = Worker()

    @worker.job
    def job(secret: str) -> None:
        if error:
            raise error

    chain(worker)(message(args=["s3cret"], retry_count=1, retry=retry))
    start, line = log_lines()
    fields = {"jid": "j1", "job_class": "job", "queue": "default", "attempt": 2}
    assert {"event": "job.start", "level": "debug", **fields}.items() <= start.items()
    assert {"event": event, "level": level, **fields, **more}.items() <= line.items()
    assert round(line["duration_ms"], 3) == line["duration_ms"] >= 0
    assert "s3cret" not in json.dumps([start, line])


def test_a_traceback_begins_in_the_users_code(log_lines: Callable[[], list[dict[str, Any]]]) -> None:
    chain(raising(ValueError("bad")))(message())
    traceback = log_lines()[-1]["exception"].splitlines()
    assert "test_middleware.py" in traceback[1]
    assert traceback[-1] == "ValueError: bad"


def test_a_fate_that_was_chosen_has_no_traceback(log_lines: Callable[[], list[dict[str, Any]]]) -> None:
    chain(raising(Kill("no")))(message())
    assert "exception" not in log_lines()[-1]


def test_the_fields_of_a_job_end_with_it(log_lines: Callable[[], list[dict[str, Any]]]) -> None:
    chain(raising(ValueError()))(message())
    logs.get_logger().info("afterwards")
    assert "jid" not in log_lines()[-1]


def test_what_a_job_logs_carries_its_fields(log_lines: Callable[[], list[dict[str, Any]]]) -> None:
    worker = Worker()
    worker.job(name="job")(lambda: logs.get_logger().info("inside"))
    chain(worker)(message())
    assert [line["jid"] for line in log_lines() if line["event"] == "inside"] == ["j1"]


def test_a_link_that_sends_a_job_elsewhere_is_seen(log_lines: Callable[[], list[dict[str, Any]]]) -> None:
    worker = Worker()
    worker.job(name="job")(lambda: None)
    worker.middleware(lambda message, call_next: REQUEUE)
    chain(worker)(message())
    assert (log_lines()[-1]["event"], log_lines()[-1]["outcome"]) == ("job.done", "requeue")


# --- time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, ValueError(), SystemExit(), Snooze(1), Kill()])
def test_the_time_of_a_job_is_measured_however_it_ends(error: BaseException | None) -> None:
    ticks = iter([10.0, 10.25])
    worker = raising(error) if error else Worker()
    if error is None:
        worker.job(name="job")(lambda: None)
    execution = Execution(message())
    chain_of(worker, stopwatch=lambda: next(ticks)).run(execution)
    assert (execution.started_s, execution.elapsed_s) == (10.0, 0.25)


def test_a_chain_has_a_clock_of_its_own() -> None:
    worker = Worker()
    worker.job(name="job")(lambda: None)
    execution = Execution(message())
    chain_of(worker).run(execution)
    assert execution.started_s > 0
    assert 0 < execution.elapsed_s < 60


# --- the execution ----------------------------------------------------------------------------------------


def test_the_error_of_a_job_is_in_its_execution_until_it_is_dropped() -> None:
    worker = raising(error := ValueError("no"))
    run = chain_of(worker, max_retries=1).run
    execution, other = Execution(message()), Execution(message())
    run(execution)
    assert execution.exc_info is not None
    assert execution.exc_info[:2] == (ValueError, error)
    assert other.exc_info is None
    execution.forget()
    assert execution.exc_info is None


def test_a_chain_names_its_steps_in_their_order() -> None:
    worker = Worker()

    @worker.middleware
    def audit(message: Message, call_next: CallNext) -> Outcome:
        return call_next(message)

    worker.job(name="job", middleware=[noting([], "own")])(lambda: None)
    call = chain_of(worker, timer=Alarm)
    where = "test_a_chain_names_its_steps_in_their_order.<locals>"
    assert call.steps == (
        ("built-in", "context"),
        ("built-in", "expiry"),
        ("built-in", "start"),
        ("built-in", "time limit"),
        ("built-in", "decryption"),
        ("built-in", "start effects"),
        ("application", f"{where}.audit"),
        ("handler", "noting.<locals>.link"),
        ("job", "job"),
        ("built-in", "retry"),
        ("built-in", "effects"),
        ("built-in", "logging"),
    )


def test_a_chain_has_the_steps_that_its_handler_needs() -> None:
    worker = Worker(carry=["tenant"])
    worker.on_error(lambda message, error, outcome: None)
    worker.effects.append(lambda message, outcome: ())
    worker.job(name="job", limits=[worker.limit("api", concurrency=1)])(lambda: None)
    assert [name for owner, name in chain_of(worker).steps if owner == "built-in"] == [
        *("context", "carried values", "limits", "expiry", "start", "decryption", "start effects"),
        *("retry", "hooks", "effects", "plug-in effects", "logging"),
    ]


def test_a_link_in_two_forms_is_around_each_job_in_the_form_of_the_job() -> None:
    def link(message: Message, call_next: CallNext) -> Outcome:
        return call_next(message).with_effects(DeleteKey("def"))

    async def async_link(message: Message, call_next: AsyncCallNext) -> Outcome:
        return (await call_next(message)).with_effects(DeleteKey("async"))

    async def job(message: Message) -> None: ...

    links = [DualLink(link, async_link)]
    plain = build_part(links, lambda message: None, Bridge())
    assert (plain.is_async, plain.has_async) == (False, False)
    assert plain.call(message()).effects == (DeleteKey("def"),)
    awaited = build_part(links, job, Bridge(), is_async=True)
    assert awaited.is_async
    assert asyncio.run(awaited.call(message())).effects == (DeleteKey("async"),)
    assert name_of(links[0]).endswith("<locals>.link")
    worker = Worker()
    worker.middleware(links[0])
    assert worker.links == links
