"""The stacks that a process writes, arranged for people: those of the job first."""

from __future__ import annotations

from pyworkers.ipc.stacks import DESCRIBED, arranged

DUMPED = """Thread 0x00000000000000b2 (most recent call first):
  File "/srv/tasks.py", line 7 in pause
  File "/lib/threading.py", line 1002 in _bootstrap

Current thread 0x00000000000000a1 (most recent call first):
  File "/srv/tasks.py", line 3 in in_main
  File "/site/pyworkers/worker/process.py", line 102 in main
  File "/site/pyworkers/worker/forkserver.py", line 99 in serve
  File "<string>", line 1 in <module>
"""


def test_the_main_thread_has_the_job_of_a_process_with_one() -> None:
    assert arranged(DUMPED.encode(), main_has_job=True) == (
        "Thread of the job: main thread, most recent call first\n"
        '  File "/srv/tasks.py", line 3, in in_main\n'
        '  File "/site/pyworkers/worker/process.py", line 102, in main\n'
        "\n"
        "Another thread: 0xb2, most recent call first\n"
        '  File "/srv/tasks.py", line 7, in pause\n'
        '  File "/lib/threading.py", line 1002, in _bootstrap'
    )


def test_a_description_names_the_thread_and_the_tasks_of_the_job() -> None:
    described = 'Thread 0xb2 job 1\nTask Task-7\n  File "/srv/tasks.py", line 9 in waits\n'
    text = arranged(f"{DUMPED}{DESCRIBED}{described}".encode(), main_has_job=False)
    assert [line for line in text.splitlines() if not line.startswith("  ")] == [
        "Task Task-7 of the job, most recent call first",
        "",
        "Thread of the job: job 1, most recent call first",
        "",
        "Another thread: 0xa1, most recent call first",
    ]
    assert '  File "/srv/tasks.py", line 9, in waits' in text


def test_without_a_description_no_thread_is_said_to_have_the_job() -> None:
    text = arranged(DUMPED.encode(), main_has_job=False)
    assert "of the job" not in text
    assert text.index("0xa1") < text.index("0xb2")


def test_any_bytes_are_arranged() -> None:
    for written in (b"", b"\xff\x00", b"Thread 0x", b"  File\n", DESCRIBED.encode() + b"Thread 0xzz\nTask\n"):
        assert isinstance(arranged(written, main_has_job=True), str)
