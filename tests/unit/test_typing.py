"""The signature of a job is that of its function, for a type checker too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.helpers.support import ROOT

DECLARATIONS = """
from pyworkers import RESULT, AsyncClient, Batch, Call, Client, Job, Limit, Message, Outcome, Worker
from pyworkers.middleware import AsyncCallNext

worker = Worker()

@worker.job(queue="mail", retry=5)
def send(user_id: int, subject: str = "") -> float:
    return 1.0

@worker.job
def sweep() -> None: ...

@worker.job
def with_id(batch_id: str = "") -> None: ...

@worker.job
def second(user_id: int, batch_id: str = "") -> None: ...

@worker.cron("@daily")
@worker.job()
def daily(n: int = 0) -> None: ...

@worker.process("myqueue")
def handle(message: Message) -> None: ...

async def traced(message: Message, call_next: AsyncCallNext) -> Outcome:
    return await call_next(message)
"""
RIGHT = [
    "send.enqueue(7, 'hello')",
    "send.enqueue(7, subject='hello')",
    "send.enqueue_in(60, 7, 'hello')",
    "send.enqueue_at(4e9, 7)",
    "send.enqueue_bulk([(7, 'a'), (8,)])",
    "send.options(queue='slow').enqueue(7)",
    "send.options(timeout=3, tags=['a'], extra={'tenant': 7}).enqueue(7)",
    "worker.enqueue('q', 'C', [1], retry=3, retry_max=5, extra={'tenant': 7})",
    "Client().enqueue_bulk('q', 'C', [[1]], dead=False)",
    "send.options(queue=None, retry=None).enqueue(7)",
    "worker.job(queue='q', retry=5, dead=False, tags=['a'], extra={}, retry_in=lambda n, e, m: n)",
    "worker.process('q', concurrency=None, timeout=None, middleware=[lambda message, call: call(message)])",
    "worker.cron(every='5m', timezone='UTC', misfire='all', grace=1, name='n', args=[1])",
    "worker.middleware(lambda message, call_next: call_next(message))",
    "worker.middleware(traced)",
    "worker.client_middleware(lambda draft, call_next: call_next(draft.with_extra(tenant=7)))",
    "worker.on_startup(lambda: None)",
    "worker.on_exhausted(lambda message, error: None)",
    "send.call(7, 'hello'), send.call(RESULT), sweep.call(), with_id.call(), with_id.call(batch_id='b')",
    "second.call(7), second.call(7, 'b')",
    "called: Call = sweep.call(); batch: Batch = worker.batch(on_success=called)",
    "limit: Limit = worker.limit('erp', rate=1)",
    "x: float = send(7)",
    "x: str = sweep.enqueue() + daily.enqueue(n=1)",
]
WRONG = {
    "send.delay(7)": 'has no attribute "delay"',
    "send.enqueue('7')": "has incompatible type",
    "send.enqueue()": "Missing positional argument",
    "send.call('x')": "has incompatible type",
    "sweep.call(7)": "Too many arguments",
    "send.call(7, 'a', 1)": "Too many arguments",
    "send.enqueue(7, 'a', 1)": "Too many arguments",
    "send.enqueue_in(60, '7')": "has incompatible type",
    "send.options(queue='slow').enqueue('7')": "has incompatible type",
    "sweep.enqueue(1)": "Too many arguments",
    "daily.enqueue('x')": "has incompatible type",
    "x: str = send(7)": "Incompatible types in assignment",
    "send.options(timeot=3)": 'Unexpected keyword argument "timeot"',
    "worker.enqueue('q', 'C', timeot=3)": 'Unexpected keyword argument "timeot"',
    "Client().enqueue_in(1, 'q', 'C', timeot=3)": 'Unexpected keyword argument "timeot"',
    "AsyncClient().enqueue_bulk('q', 'C', [], tags='a', dead=1)": "has incompatible type",
    "worker.job(timeot=3)": "overload",
    "worker.job(retry='5')": "overload",
    "worker.job(jid='x')": "overload",
    "worker.process('q', timeot=3)": 'Unexpected keyword argument "timeot"',
    "worker.process('q', dead='no')": '"dead" to "process" of "Declarations" has incompatible type "str"',
    "worker.process('q', tags=['a'])": 'Unexpected keyword argument "tags"',
    "worker.cron('@daily', grac=3)": 'Unexpected keyword argument "grac"',
    "worker.cron('@daily', timezone=3)": "has incompatible type",
    "send.options(retry='5')": "has incompatible type",
    "send.options(concurrency=5)": 'Unexpected keyword argument "concurrency"',
    "handle('x')": "has incompatible type",
    "worker.middleware(lambda message: None)": 'Value of type variable "L"',
    "worker.client_middleware(handle)": 'Value of type variable "C"',
    "worker.on_startup(handle)": 'Value of type variable "F"',
    "worker.on_exhausted(handle)": 'Value of type variable "X"',
    "from pyworkers import Wurker": 'has no attribute "Wurker"',
    "from pyworkers.api import Statz": 'has no attribute "Statz"',
}


def test_a_wrong_call_is_an_error_and_all_else_passes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    cases = "".join(f"def case_{n}() -> None: {line}\n" for n, line in enumerate([*RIGHT, *WRONG]))
    program.write_text(DECLARATIONS + cases)
    # Silent: as for an installed package, its own modules are not what is checked.
    arguments = [
        "--strict",
        "--follow-imports=silent",
        "--config-file=",
        f"--cache-dir={tmp_path}",
        str(program),
    ]
    # In its own process: mypy leaves so much in memory that each later collection of garbage takes a second.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments],
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    found: dict[str, str] = defaultdict(str)
    for number, text in re.findall(r"program\.py:(\d+): error: (.*)", done.stdout):
        found[program.read_text().splitlines()[int(number) - 1].partition(": ")[2]] += text
    assert {line: text for line, text in found.items() if line not in WRONG} == {}
    assert {line: found[line] for line, text in WRONG.items() if text not in found[line]} == {}
