"""The execution metrics of a real server: by registered class, not by the payloads."""

from __future__ import annotations

from collections import Counter

from tests.helpers.replies import as_texts
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import wait_for

CODE = """
@worker.process("go", concurrency=1)
def handle(message):
    if message.args == ["fail"]:
        raise ValueError("no")

@worker.job(queue="mail", concurrency=1)
def send_mail(seconds):
    time.sleep(seconds)
    if seconds:
        raise ValueError("no")
"""


# It has been a misfit for more than an hour.
GIVEN_UP = {"misfits": 20, "misfit_at": 1_795_225_197.5}


def minutes(server: ServerProcess, pattern: str) -> Counter[str]:
    """The sums over all minutes that the test touched."""
    found: Counter[str] = Counter()
    for key in set(server.redis.scan_iter(f"{server.keys.namespace}{pattern}")):
        for name, value in as_texts(server.redis.hgetall(key)).items():
            found[name] += int(value)
    return found


def test_jobs_are_counted_by_the_names_of_their_handlers(serve_either: Serve, namespace: str) -> None:
    with serve_either(CODE) as server:
        for place in range(20):
            server.push("go", {"class": f"Any{place}", "args": [], "jid": str(place)})
        server.push("go", {"class": "Any", "args": ["fail"], "jid": "fails", "retry": False})
        server.push("mail", {"class": "send_mail", "args": [0], "jid": "a"})
        server.push("mail", {"class": "send_mail", "args": [0.05], "jid": "b", "retry": False})
        server.push("mail", {"class": "Unknown", "args": [], "jid": "c", **GIVEN_UP})
        wait_for(lambda: server.redis.get(server.keys.stat("processed")) == b"24")
        assert server.stop() == 0
        for pattern in ("j|20*|*", "j|??????|*:??", "j|??????|*:?"):
            found = minutes(server, pattern)
            assert {name.partition("|")[0] for name in found} == {"handle", "send_mail"}, pattern
            assert (found["handle|p"], found["handle|f"]) == (21, 1)
            assert (found["send_mail|p"], found["send_mail|f"]) == (2, 1)
        histograms = set(server.redis.scan_iter(f"{namespace}h|*"))
        assert {key.decode().removeprefix(f"{namespace}h|").partition("-")[0] for key in histograms} == {
            "handle", "send_mail",
        }  # fmt: skip
        slots = [("GET", "u16", f"#{place}") for place in range(26)]
        counted = 0
        for key in histograms:
            if b"handle" in key:
                counted += sum(server.redis.execute_command("BITFIELD", key, *sum(slots, ())))
        assert counted == 20
        assert all(server.redis.ttl(key) > 0 for key in server.redis.scan_iter(f"{namespace}*|*"))


def test_a_job_that_is_declared_late_runs_without_a_number(serve: Serve) -> None:
    late = """
@worker.on_startup
def declare():
    @worker.job(queue="mail", name="late")
    def late():
        note("late")
"""
    with serve(CODE + late) as server:
        server.push("mail", {"class": "late", "args": [], "jid": "a"})
        server.push("go", {"class": "Any", "args": [], "jid": "b"})
        server.wait_for_notes(1, "late")
        wait_for(lambda: server.redis.get(server.keys.stat("processed")) == b"2")
        wait_for(lambda: minutes(server, "j|20*|*").keys() == {"handle|p", "handle|ms"})
        assert minutes(server, "j|20*|*")["handle|p"] == 1
        assert server.events("worker.lost") == []


def test_metrics_that_are_refused_cost_neither_counters_nor_jobs(serve: Serve, namespace: str) -> None:
    with serve(CODE) as server:
        server.push("mail", {"class": "send_mail", "args": [0], "jid": "a"})
        wait_for(lambda: minutes(server, "j|20*|*")["send_mail|p"] == 1)
        for key in server.redis.scan_iter(f"{namespace}j|*"):
            server.redis.delete(key)
            server.redis.set(key, "no hash")
        server.push("mail", {"class": "send_mail", "args": [0], "jid": "b"})
        wait_for(lambda: server.redis.get(server.keys.stat("processed")) == b"2")
        assert server.stop() == 0
        assert server.events("server.failed") == []
