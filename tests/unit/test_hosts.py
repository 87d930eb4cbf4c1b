"""The names under which a dashboard or an endpoint answers."""

from __future__ import annotations

import pytest

from pyworkers.http.hosts import Hosts

REACHED = {"server": ("172.17.0.2", 7433)}


@pytest.mark.parametrize(
    ("host", "dashboard", "endpoint"),
    [
        ("worker:7433", True, True),
        ("localhost:7433", True, True),
        ("[::1]:7433", True, True),
        ("172.17.0.2:7433", True, True),
        # Through address translation: a published port of a container, or the address of a service.
        ("10.0.0.5:7433", False, True),
        ("[fd00::5]", False, True),
        ("evil.example", False, False),
        ("10.0.0.5.evil.example", False, False),
        ("", False, False),
    ],
)
def test_a_host_is_a_known_name_or_an_address(host: str, dashboard: bool, endpoint: bool) -> None:
    assert Hosts(["worker"]).allow(host, REACHED) is dashboard
    assert Hosts(["worker"], any_address=True).allow(host, REACHED) is endpoint
