"""The page of alarms: what is armed, what has begun, what was sent, and a silence."""

from __future__ import annotations

import json
import time
from typing import Any

import redis

from pyworkers.protocol.keys import Keys
from tests.web.acting import act
from tests.web.visitor import Visitor


def test_alarms_are_shown_and_silenced(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    assert "No process watches." in dashboard.get("alarms").text
    about = {"when": "latency", "match": "m*", "to": ["webhook", "mail"]}
    alarms = [{"name": "late", **about}, {"name": "<b>", **about}]
    db.set(keys.alarming, json.dumps({"holder": "a", "alarms": alarms}))
    begun = {
        "since": time.time() - 90,
        "text": "mail: late",
        "pending": [["webhook", "begun"]],
        "ended": None,
        "error": "webhook: <i>ops answers 500",
    }
    db.hset(keys.alarms, "late", json.dumps(begun))
    sent = {"alarm": "late", "state": "begun", "to": "mail", "message": "mail: late", "at": 1.0, "id": "f00d"}
    db.lpush(keys.alarms_sent, json.dumps(sent))
    page = dashboard.get("alarms").text
    assert "late begun latency m* webhook, mail" in page and "<b> armed latency m* webhook, mail" in page
    assert "mail: late 1 not sent yet: webhook: <i>ops answers 500" in page
    shown = read_json(dashboard)
    assert [(one["state"], one["pending"]) for one in shown["alarms"]] == [("begun", 1), ("armed", 0)]
    assert shown["sent"] == [sent]
    assert "late is silenced for an hour." in act(dashboard, "alarms", action="silence", name="late")
    assert db.ttl(keys.web_muted("alarm:late")) > 3500
    assert read_json(dashboard)["alarms"][0]["state"] == "silenced"
    assert "late is no longer silenced." in act(dashboard, "alarms", action="unsilence", name="late")
    assert "alarm.unsilence" in dashboard.get("audit").text


def read_json(dashboard: Visitor) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dashboard.ask("api/alarms").page.html)
    return found
