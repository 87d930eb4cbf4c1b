"""The program of contrib/docs/long-jobs.md runs, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

from pyworkers.client import Client
from tests.helpers.server_process import Serve
from tests.helpers.support import ROOT, wait_for

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "contrib/docs/long-jobs.md").read_text(), re.DOTALL)


def test_the_program_of_the_page(serve_either: Serve, tmp_path: Path, redis_url: str, namespace: str) -> None:
    [program] = PROGRAMS
    pages = tmp_path / "pages"
    # A page takes so long that the stop comes in the middle, and no time after it.
    slow = program.replace(
        "        at.save(", "        time.sleep(0 if Path('go').exists() else 0.2)\n        at.save("
    )
    with (
        serve_either(slow) as server,
        Client(redis_url, namespace=namespace) as client,
    ):
        jid = client.enqueue("exports", "export", [200])
        wait_for(lambda: pages.exists() and len(pages.read_text().splitlines()) > 3, message="some pages")
        assert server.stop() == 0
        assert client.iteration(jid)["c"].isdigit()
        server.let_go("go")
        server.start()
        server.wait_for_event("job.done", jid=jid)
        assert pages.read_text().splitlines() == [f"page {page}" for page in range(200)]
        wait_for(lambda: not client.iteration(jid), message="the value is deleted")
