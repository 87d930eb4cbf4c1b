"""Take pictures of the dashboard for contrib/docs/pictures: ``python -m contrib.pictures [FOLDER [NAME…]]``.

Its own Valkey, dashboard and browser, with the data of ``shop``. Needs Chromium.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import redis

from contrib.pictures import shop
from pyworkers.api import Stats, ThresholdSet
from pyworkers.embedded import server_binary
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from pyworkers.web.live.samples import KEPT
from pyworkers.web.navigation import NAVIGATION
from tests.helpers.support import free_port, running_server
from tests.integrations.web import served
from tests.web.chromium import Chromium, lacking, running_chromium

_AHEAD_S = 60.0
FOLDER = Path(__file__).parents[1] / "docs" / "pictures"


class Picture(NamedTuple):
    """A page as it is shown in a window."""

    address: str
    width: int = 1200
    height: int = 800
    scheme: str = "light"


PICTURES = {
    "dashboard-overview.png": Picture(""),
    "dashboard-charts.png": Picture("?range=2h#hours", height=1060),
    "dashboard-queue.png": Picture("queues/images?range=2h"),
    "dashboard-job.png": Picture(f"jobs/{shop.JOB}?in=dead"),
    "dashboard-phone.png": Picture("", 390, 780),
    "dashboard-dark.png": Picture("queues", scheme="dark"),
    "dashboard-batch.png": Picture(f"batches/{shop.BATCH}"),
    "dashboard-class.png": Picture("metrics/SendReceipt", height=1500),
    **{f"dashboard-{path}.png": Picture(path) for path, _ in NAVIGATION if path},
}


def take(browser: Chromium, root: str, folder: Path, names: Sequence[str]) -> None:
    """Take these pictures of the dashboard at ``root``."""
    # No server runs: with the event stream, the graph would fall to zero at its end.
    browser.forbid_streams()
    for name in names:
        picture = PICTURES[name]
        # The head of a page has the counts that were read in the last seconds.
        browser.open(root)
        browser.resize(picture.width, picture.height)
        browser.prefer(picture.scheme)
        browser.open(f"{root}/{picture.address}")
        browser.wait_for_search()
        browser.picture(folder / name)
    browser.open("about:blank")


def main() -> None:
    """Start all that is needed, and take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m contrib.pictures", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("names", nargs="*", metavar="name", help="all, unless some are named")
    given = parser.parse_args()
    folder: Path = given.folder
    if reason := lacking():
        sys.exit(reason)
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        directory = Path(temporary)
        with running_server(server_binary(), directory, free_port()) as url:
            with redis.Redis.from_url(url) as db:
                # Without it, the overview warns of it.
                db.config_set("appendonly", "yes")
                shop.fill(db, Keys(), url)
            ThresholdSet(url).set("mail* oldest > 7200")
            dashboard = app(url, token="", thresholds=["waiting > 10000", "mail* oldest > 3600"])
            # The reads of the page have an earlier time: they add nothing to the graph.
            counts = replace(Stats.fetch(url), now=time.time() + _AHEAD_S)
            for stats in shop.minutes_before(counts, KEPT):
                dashboard.state.reader.samples.add(stats)
            with served(dashboard) as root, running_chromium(directory / "profile") as browser:
                take(browser, root, folder, given.names or [*PICTURES])


if __name__ == "__main__":
    main()
