"""The interval of the pings for systemd's watchdog."""

from __future__ import annotations

import pytest

from pyworkers.server.upgrade.systemd import ping_interval_s

ON = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "30000000"}


@pytest.mark.parametrize(
    ("environment", "is_successor", "interval_s"),
    [
        (ON, False, 15.0),
        (ON | {"WATCHDOG_PID": "7"}, False, 15.0),
        # For a wrapper around the server.
        (ON | {"WATCHDOG_PID": "8"}, False, None),
        (ON | {"WATCHDOG_PID": "8"}, True, 15.0),
        ({}, False, None),
        ({"WATCHDOG_USEC": "30000000"}, False, None),
        (ON | {"WATCHDOG_USEC": "0"}, False, None),
        (ON | {"WATCHDOG_USEC": "soon"}, False, None),
        (ON | {"WATCHDOG_PID": ""}, False, None),
    ],
)
def test_the_interval(environment: dict[str, str], is_successor: bool, interval_s: float | None) -> None:
    assert ping_interval_s(environment, 7, is_successor=is_successor) == interval_s
