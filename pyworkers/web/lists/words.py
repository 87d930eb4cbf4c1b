"""Words: how pages name places, delays and the conditions of a filter. Pure."""

from __future__ import annotations

from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.places import Place
from pyworkers.web.lists.asking import age_of

DELAYS = (
    (60, "in 1 minute"),
    (900, "in 15 minutes"),
    (3600, "in 1 hour"),
    (21_600, "in 6 hours"),
    (86_400, "in 1 day"),
    (604_800, "in 7 days"),
)
"""The delays to choose from, in seconds."""
HAPPENED = {"retries": "failed", "dead": "died", "scheduled": "created"}
"""The event from which the age of a job counts, by the word of its place; in a queue ``enqueued``."""
_TITLES = {"scheduled": "Scheduled", "retries": "Retries", "dead": "Dead"}


def title_of(place: Place) -> str:
    """The name of a place."""
    if place.deletion:
        return "Deleted jobs"
    return _TITLES.get(place.word) or f"Queue {place.queue}"


def conditions(wanted: Filter, place: Place) -> list[tuple[str, str]]:
    """The conditions of a filter in words, each with its value: ``("error contains", "Timeout")``."""
    happened = HAPPENED.get(place.word, "enqueued")
    within, before = wanted.younger_s, wanted.older_s
    texts = [
        ("class is", wanted.job_class),
        ("queue is", wanted.queue),
        ("queue is like", " or ".join(wanted.queues)),
        ("id is", wanted.jid),
        ("tag is", wanted.tag),
        ("batch is", wanted.batch),
        ("error contains", wanted.error),
        ("error is like", wanted.error_like),
        ("arguments contain", wanted.text),
        (f"{happened} within the last", "" if within is None else age_of(within).removeprefix("1 ")),
        (f"{happened} more than", "" if before is None else f"{age_of(before)} ago"),
    ]
    return [(words, value) for words, value in texts if value]


def selected_in(place: Place, wanted: Filter) -> str:
    """What an action on all jobs that match is about, for the audit: ``dead: class is Send, …``."""
    if place.deletion:
        return place.deletion
    parts = [f"{words} {value}" for words, value in conditions(wanted, place)]
    return f"{place.word}: {', '.join(parts) or 'all jobs'}"
