"""The template of the tests' programs."""

from __future__ import annotations

from tests.helpers.processes import process_alive
from tests.helpers.support import next_line, running_python, wait_for

TESTS = """
    import os, time
    from tests.helpers import warm
    environment = os.environ | {"PYTHONPATH": str(warm.ROOT)}
    code = ["-c", "import time; time.sleep(600)"]
    print(warm.start(code, cwd=warm.ROOT, env=environment, stdout=1, stderr=2, imports=()).pid)
    time.sleep(600)
"""


def test_a_program_ends_with_the_tests_that_have_started_it() -> None:
    with running_python(TESTS) as tests:
        pid = int(next_line(tests))
        assert process_alive(pid)
        tests.kill()
        wait_for(lambda: not process_alive(pid), message="its end")
