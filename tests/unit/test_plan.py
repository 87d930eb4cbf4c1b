"""The groups that a server serves: by application, file and command line, and the sizes of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pyworkers import Message, Worker
from pyworkers.cli import main, run
from pyworkers.config.fields import Config, GroupConfig, QueueConfig, RedisConfig
from pyworkers.config.groups import Only, Queues, parse_queues, spell_queues
from pyworkers.errors import ConfigError, DeclarationError
from pyworkers.ipc.control import Manifest
from pyworkers.server.plan import Group, Plan, plan
from pyworkers.server.proc import cores

CORES = 2


@pytest.fixture
def worker() -> Worker:
    return application()


def planned(worker: Worker, config: Config | None = None, only: Only | None = None) -> Plan:
    # The manifest reaches the master as JSON.
    manifest: Manifest = json.loads(json.dumps(worker.manifest()))
    return plan(manifest, config or Config(), only or Only(), CORES)


async def nothing() -> None: ...


def application(*of_async: str) -> Worker:
    """Jobs of the queues ``critical``, ``default`` and ``mail``; those of some queues are ``async def``."""
    worker = Worker()
    for queue in ("critical", "default", "mail"):
        worker.job(queue=queue, name=queue.title())(nothing if queue in of_async else lambda: None)
    return worker


def alone(name: str, concurrency: int = 5, processes: int = 5, mode: str = "process") -> Group:
    return Group(name, {name: 1}, True, concurrency, processes, mode)


def error_of(worker: Worker, config: Config | None = None, only: Only | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(worker, config, only)
    return str(caught.value)


# Which queues stand together


def test_each_queue_is_a_group_of_its_own_unless_it_stands_in_one(worker: Worker) -> None:
    assert planned(worker).groups == {name: alone(name) for name in ("critical", "default", "mail")}
    worker.group("web", queues=["default", "critical"], concurrency=20)
    assert planned(worker).groups == {
        "web": Group("web", {"default": 1, "critical": 1}, True, 20, 20, "process"),
        "mail": alone("mail"),
    }
    assert planned(worker).queues == ["default", "critical", "mail"]


def test_queues_with_weights_are_not_strict(worker: Worker) -> None:
    worker.group("web", queues={"critical": 5, "default": 2})
    group = planned(worker).groups["web"]
    assert (group.queues, group.strict) == ({"critical": 5, "default": 2}, False)


def test_a_group_may_name_queues_without_a_job(worker: Worker) -> None:
    worker.group("all", queues=["urgent", "mail"])
    assert list(planned(worker).groups["all"].queues) == ["urgent", "mail"]
    assert list(planned(worker, only=Only({"urgent": 3})).groups) == ["all"]
    assert planned(worker, Config(queues={"urgent": QueueConfig(timeout=1)})).queues[0] == "urgent"


def test_an_application_without_jobs_runs_nothing_in_an_undeclared_queue() -> None:
    worker = Worker()
    worker.process("q")(lambda message: None)
    worker.group("all", queues=["q", "other"])
    assert error_of(worker) == (
        "no job of the application can be in the queue 'other' of the group 'all'\n"
        "declare one with @worker.job(): a process handler runs only the jobs of its own queue"
    )


def test_a_group_of_the_file_overrules_key_by_key_that_of_the_application(worker: Worker) -> None:
    worker.group("web", queues=["critical", "default"], concurrency=20, mode="thread")
    config = Config(groups={"web": GroupConfig(concurrency=8), "post": GroupConfig(queues={"mail": 3})})
    assert planned(worker, config).groups == {
        "web": Group("web", {"critical": 1, "default": 1}, True, 8, CORES, "thread"),
        "post": Group("post", {"mail": 3}, False, 5, 5, "process"),
    }
    moved = planned(worker, Config(groups={"web": GroupConfig(queues=("mail",))})).groups
    assert list(moved["web"].queues) == ["mail"]
    assert list(moved) == ["web", "critical", "default"]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            {"post": GroupConfig(queues=("mail", "default"))},
            "the queue 'default' is in two groups, 'web' and 'post'\na queue is in one group",
        ),
        (
            {"wbe": GroupConfig(concurrency=2)},
            "[groups.wbe]: the application has no group 'wbe'\ndid you mean 'web'?",
        ),
        (
            {"other": GroupConfig(concurrency=2)},
            "[groups.other]: the application has no group 'other'\nto make one, set its queues",
        ),
        (
            {"mail": GroupConfig(queues=("x",))},
            "the group 'mail' has the name of a queue that is in no group\nrename the group, or put",
        ),
    ],
)
def test_groups_that_contradict_each_other(
    worker: Worker, groups: Mapping[str, GroupConfig], message: str
) -> None:
    worker.group("web", queues=["critical", "default"])
    assert error_of(worker, Config(groups=groups)).startswith(message)


def test_a_group_of_the_application_is_on_one_redis(worker: Worker) -> None:
    worker.group("web", queues=["critical", "default"])
    config = Config(
        other_redis={"old": RedisConfig("redis://old")}, queues={"critical": QueueConfig(redis="old")}
    )
    assert error_of(worker, config) == (
        "[groups.web]: the group 'web' is on two Redis servers: 'critical' on old, 'default' on default\n"
        "give its queues one Redis, or put them into two groups"
    )


# The command line


def test_the_command_line_limits_a_server_to_queues_and_their_groups_stay(worker: Worker) -> None:
    worker.group("web", queues={"critical": 5, "default": 2}, concurrency=20)
    groups = planned(worker, only=Only({"default": None, "mail": 3})).groups
    assert groups == {
        "web": Group("web", {"default": 2}, False, 20, 20, "process"),
        "mail": alone("mail", 3, 3),
    }
    [web] = planned(worker, only=Only({"default": 7})).groups.values()
    assert (web.concurrency, web.processes) == (7, 7)


def test_a_number_for_one_of_several_queues_of_a_group_is_refused(worker: Worker) -> None:
    worker.group("web", queues=["critical", "default"], concurrency=20)
    assert error_of(worker, only=Only({"critical": None, "default": 3})) == (
        "--queue default=3: the queue 'default' shares the workers of the group 'web'\n"
        'set the number of the group: --group "critical,default=3"'
    )


def test_groups_of_the_command_line_replace_all_others(worker: Worker) -> None:
    worker.group("web", queues=["critical", "default"], concurrency=20, mode="thread")
    config = Config(groups={"post": GroupConfig(queues=("mail",), concurrency=9)})
    only = Only(groups={"mail,default": ({"mail": 5, "default": 2}, 20)})
    assert planned(worker, config, only).groups == {
        "mail,default": Group("mail,default", {"mail": 5, "default": 2}, False, 20, 20, "process")
    }
    both = planned(worker, config, Only({"critical": 1}, {"mail": (("mail",), None)})).groups
    assert both == {
        "mail": alone("mail"),
        "web": Group("web", {"critical": 1}, True, 1, 1, "thread"),
    }


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (Only({"critcal": None}), "--queue critcal: the application has no handler for the queue 'critcal'"),
        (
            Only({"a,b": None}),
            "--queue a,b: the application has no handler for the queue 'a,b'\n"
            "give --queue for each queue, or --group a,b",
        ),
        (Only({"a": None}, {"a,b": (("a", "b"), None)}), "--queue a: the application has no handler"),
        (
            Only({"mail": None}, {"mail,x": (("mail", "x"), None)}),
            "the queue 'mail' is in two groups, 'mail,x' and 'mail'",
        ),
        (
            Only(groups={"a,b": (("a", "b"), 1), "b,c": (("b", "c"), 1)}),
            "the queue 'b' is in two groups, 'a,b' and 'b,c'",
        ),
    ],
)
def test_bad_queues_of_the_command_line(worker: Worker, only: Only, message: str) -> None:
    assert error_of(worker, only=only).startswith(message)


@pytest.mark.parametrize(
    ("words", "only"),
    [
        (["--queue", "a", "--queue", "b=3"], Only({"a": None, "b": 3})),
        (["-q", "x=y=3"], Only({"x=y": 3})),
        (["--group", "a,b=20"], Only({}, {"a,b": (("a", "b"), 20)})),
        (["--group", "a:5,b:2=20"], Only({}, {"a,b": ({"a": 5, "b": 2}, 20)})),
        (["--group", "a:5,b"], Only({}, {"a,b": ({"a": 5, "b": 1}, None)})),
        (["--group", "a", "--group", "b:x"], Only({}, {"a": (("a",), None), "b:x": (("b:x",), None)})),
    ],
)
def test_words_of_the_command_line(words: list[str], only: Only, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(run, "serve", lambda *arguments, **_: served.append(arguments[1]))
    result = CliRunner().invoke(main, ["run", "--app", "tasks:worker", *words])
    assert (result.exit_code, served) == (0, [only]), result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--queue", "a=0"], "'0' is not a number of jobs; write a=10"),
        (["--queue", "a b"], "'a b' cannot be a queue"),
        (["--group", "a,b=many"], "'many' is not a number of jobs; write a,b=10"),
        (["--group", "a,a"], "a is named twice: for weights, give each queue its number"),
        (["--group", "a:1,a:2"], "a is named twice"),
        (["--group", "a:0"], "the weight of a must be an integer from 1 to 1,000,000, not 0"),
        (["--group", "a:-1,b=3"], "the weight of a must be an integer from 1 to 1,000,000, not -1"),
        (["--group", "a:1.5"], "the weight of a must be an integer from 1 to 1,000,000, not 1.5"),
        (["--group", f"a:1{'0' * 400}"], "the weight of a must be an integer from 1 to 1,000,000, not 10000"),
        (["--group", "a,,b"], "'' cannot be a queue"),
        (["--group", "a,b", "--group", "a,b=3"], "the group a,b is named twice"),
    ],
)
def test_bad_words_of_the_command_line(words: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["run", "--app", "tasks:worker", *words])
    assert (result.exit_code, message in result.output) == (2, True), result.output


@pytest.mark.parametrize("queues", [("a",), ("b", "a"), {"a": 5, "b": 1}])
def test_queues_are_spelled_as_they_are_read(queues: Queues) -> None:
    assert parse_queues(spell_queues(queues)) == queues


# Sizes


def test_concurrency_comes_from_the_command_line_the_file_the_decorator_or_a_default() -> None:
    worker = Worker()
    worker.job(queue="q", name="a", concurrency=2)(lambda: None)
    worker.job(queue="q", name="b", concurrency=4)(lambda: None)
    worker.job(queue="r", name="c")(lambda: None)
    worker.process("p")(lambda message: None)
    assert planned(worker).groups == {
        "p": alone("p", 10, 10), "q": alone("q", 4, 4), "r": alone("r", 5, 5)
    }  # fmt: skip
    config = Config(queues={"q": QueueConfig(concurrency=7)})
    assert planned(worker, config).groups["q"] == alone("q", 7, 7)
    assert planned(worker, config, Only({"q": 9})).groups == {"q": alone("q", 9, 9)}


def test_a_group_without_sizes_has_the_largest_of_its_queues() -> None:
    worker = Worker()
    worker.job(queue="a", name="a", concurrency=8, processes=2, mode="thread")(lambda: None)
    worker.job(queue="b", name="b", concurrency=6, processes=3)(lambda: None)
    worker.group("both", queues=["a", "b"])
    [group] = planned(worker).groups.values()
    assert (group.concurrency, group.processes, group.mode) == (8, 3, "thread")


@pytest.mark.parametrize(
    ("concurrency", "processes", "expected"), [(50, None, CORES), (50, 4, 4), (1, None, 1), (3, 3, 3)]
)
@pytest.mark.parametrize("mode", ["async", "thread"])
def test_processes_are_the_cores_at_most_concurrency(
    worker: Worker, mode: str, concurrency: int, processes: int | None, expected: int
) -> None:
    worker.group("web", queues=["mail"], concurrency=concurrency, processes=processes, mode=mode)
    assert planned(worker).groups["web"].processes == expected


@pytest.mark.parametrize(
    ("mode", "processes", "least", "most"),
    [
        ("process", "auto", 0, 8),
        ("thread", "auto", 0, CORES),
        ("thread", "1-3", 1, 3),
        ("process", "2-8", 2, 8),
        ("process", None, None, 8),
    ],
)
def test_processes_may_follow_the_jobs(
    worker: Worker, mode: str, processes: str | None, least: int | None, most: int
) -> None:
    worker.group("web", queues=["mail"], concurrency=8, processes=processes, mode=mode)
    group = planned(worker).groups["web"]
    assert (group.least, group.processes) == (least, most)
    assert group.spelled == (str(most) if least is None else f"{least}-{most}")


@pytest.mark.parametrize("processes", ["0-0", "3-2", "many", "", "1-"])
def test_a_range_of_processes_that_cannot_be_is_refused(worker: Worker, processes: str) -> None:
    with pytest.raises(DeclarationError, match="processes must be a number from 1, 'auto' or a range"):
        worker.group("web", queues=["mail"], processes=processes)


def test_a_smaller_number_of_the_command_line_needs_no_more_processes(worker: Worker) -> None:
    worker.group("web", queues=["mail"], concurrency=50, processes=8, mode="thread")
    assert planned(worker, only=Only({"mail": 3})).groups["web"].shares == [1, 1, 1]
    worker.job(queue="p", name="p", concurrency=4, processes=4)(lambda: None)
    assert planned(worker, only=Only({"p": 2})).groups["p"] == alone("p", 2, 2)


@pytest.mark.parametrize(
    ("concurrency", "processes", "shares"),
    [(50, 4, [13, 13, 12, 12]), (3, 3, [1, 1, 1]), (10, 1, [10]), (7, 2, [4, 3])],
)
def test_a_process_holds_an_even_share(concurrency: int, processes: int, shares: list[int]) -> None:
    assert Group("g", {"g": 1}, True, concurrency, processes, "async").shares == shares


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            {"concurrency": 10, "processes": 4},
            "the group 'web' has 4 processes for a concurrency of 10, but in mode process each process runs "
            'one job\nleave processes out, or set mode = "async" or "thread"',
        ),
        (
            {"concurrency": 2, "processes": 4, "mode": "thread"},
            "the group 'web' has 4 processes for a concurrency of 2\nset a larger concurrency",
        ),
    ],
)
def test_processes_that_contradict_the_concurrency(
    worker: Worker, sizes: dict[str, Any], message: str
) -> None:
    worker.group("web", queues=["mail"], **sizes)
    assert error_of(worker) == message


def test_in_mode_process_the_same_number_of_processes_is_no_error(worker: Worker) -> None:
    worker.group("web", queues=["mail"], concurrency=4, processes=4, mode="process")
    assert planned(worker).groups["web"].processes == 4


def test_a_queue_of_a_group_has_no_second_size(worker: Worker) -> None:
    worker.group("web", queues=["mail", "default"], concurrency=20)
    config = Config(queues={"mail": QueueConfig(concurrency=3, timeout=9)})
    assert error_of(worker, config) == (
        "[queues.mail]: concurrency comes from the group 'web', which has the queue\n"
        "set concurrency in [groups.web]"
    )
    config = Config(queues={"mail": QueueConfig(mode="thread", timeout=9)})
    assert planned(worker, config).groups["web"].mode == "thread"
    assert planned(worker, config, Only(groups={"mail": (("mail",), 2)})).groups["mail"].concurrency == 2


def test_queues_of_two_modes_need_a_mode_of_their_group(worker: Worker) -> None:
    config = Config(queues={"mail": QueueConfig(mode="thread"), "default": QueueConfig(mode="process")})
    both = GroupConfig(queues=("mail", "default"))
    assert error_of(worker, Config(queues=config.queues, groups={"web": both})) == (
        "the queues of the group 'web' have the modes thread and process\nset the mode of the group"
    )


@pytest.mark.parametrize(
    ("names", "mode"), [((), "process"), (("mail",), "process"), (("mail", "critical"), "async")]
)
def test_a_group_is_async_if_all_its_jobs_are(names: tuple[str, ...], mode: str) -> None:
    worker = application(*names)
    worker.group("web", queues=["mail", "critical"], concurrency=20)
    web = planned(worker).groups["web"]
    assert (web.mode, web.processes) == (mode, 20 if mode == "process" else CORES)


def test_a_queue_is_async_if_its_jobs_or_its_handler_are() -> None:
    worker = application("mail")
    worker.job(queue="default", name="other")(nothing)

    @worker.process("owned", concurrency=50)
    async def handle(message: Message) -> None: ...

    modes = {name: group.mode for name, group in planned(worker).groups.items()}
    assert modes == {"mail": "async", "critical": "process", "default": "process", "owned": "async"}


def test_for_an_undeclared_queue_all_jobs_of_the_application_count() -> None:
    for names, mode in ((("mail", "critical"), "process"), (("mail", "critical", "default"), "async")):
        worker = application(*names)
        worker.group("web", queues=["mail", "urgent"])
        assert planned(worker).groups["web"].mode == mode


V1 = "7:pids:/a\n4:cpu,cpuacct:/a/b\n1:name=systemd:/a\n"
QUOTA, PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": ""}, None),
        ("0::/\n", {"cpu.max": "100000 0\n"}, None),
        ("0::/\n", {}, None),
        ("nonsense\n", {"cpu.max": "100000 100000\n"}, None),
        ("0::/a/b\n", {"cpu.max": "max 100000", "a/cpu.max": "1000 1000", "a/b/cpu.max": "max 1000"}, 1),
        ("0::/not/here\n", {"cpu.max": "1000 1000\n"}, 1),
        ("0::/a\n", {"unified/a/cpu.max": "1000 1000\n"}, 1),
        (V1, {f"cpu,cpuacct/a/{QUOTA}": "1000\n", f"cpu,cpuacct/a/{PERIOD}": "1000\n"}, 1),
        (V1, {f"cpu/a/b/{QUOTA}": "1000\n", f"cpu/a/b/{PERIOD}": "1000\n"}, 1),
        (V1, {f"cpu/{QUOTA}": "-1\n", f"cpu/{PERIOD}": "1000\n"}, None),
    ],
)
def test_cores_are_limited_by_the_quotas_of_the_containers(
    tmp_path: Path, own: str, files: dict[str, str], expected: int | None
) -> None:
    groups = tmp_path / "cgroup"
    groups.write_text(own)
    for name, text in files.items():
        path = tmp_path / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cores(groups, tmp_path / "mounted") == (expected or cores(tmp_path / "none"))


# Ordered queues


def ordered(**options: Any) -> Worker:
    worker = application()
    worker.process("ledger", **{"ordered": True, **options})(lambda message: None)
    return worker


def test_an_ordered_queue_is_a_group_of_its_own_with_one_worker() -> None:
    group = planned(ordered()).groups["ledger"]
    assert group == Group("ledger", {"ledger": 1}, True, 1, 1, "process", ordered=True, skip_dead=True)
    assert planned(ordered(skip_dead=False)).groups["ledger"].skip_dead is False
    assert planned(ordered(), only=Only({"ledger": 1})).groups["ledger"].ordered
    assert not planned(ordered()).groups["mail"].ordered


def test_the_file_makes_a_queue_ordered_or_not() -> None:
    worker = application()
    worker.process("own", concurrency=7)(lambda message: None)
    queues = {"mail": QueueConfig(ordered=True, skip_dead=False), "own": QueueConfig(ordered=True)}
    groups = planned(worker, Config(queues=queues)).groups
    assert (groups["mail"].ordered, groups["mail"].concurrency, groups["mail"].skip_dead) == (True, 1, False)
    assert (groups["own"].ordered, groups["own"].concurrency) == (True, 1)
    off = planned(ordered(), Config(queues={"ledger": QueueConfig(ordered=False, concurrency=4)}))
    assert (off.groups["ledger"].ordered, off.groups["ledger"].concurrency) == (False, 4)


def test_a_job_makes_its_queue_ordered() -> None:
    worker = application()
    worker.job(queue="mail", name="Other", ordered=True, skip_dead=False)(lambda: None)
    group = planned(worker).groups["mail"]
    assert (group.ordered, group.concurrency, group.skip_dead) == (True, 1, False)
    worker.job(queue="mail", name="Third", concurrency=3)(lambda: None)
    assert "it takes no concurrency" in error_of(worker)


def test_an_ordered_queue_takes_no_concurrency_and_no_neighbour() -> None:
    for config in (QueueConfig(concurrency=2), QueueConfig(processes=2)):
        assert "it takes no concurrency" in error_of(ordered(), Config(queues={"ledger": config}))
    assert "it takes no concurrency" in error_of(ordered(), only=Only({"ledger": 2}))
    groups = {"both": GroupConfig(("ledger", "mail"))}
    assert "is in the group 'both' with other queues" in error_of(ordered(), Config(groups=groups))
    alone = {"one": GroupConfig(("ledger",), concurrency=5)}
    assert "it takes no concurrency" in error_of(ordered(), Config(groups=alone))


def test_an_ordered_queue_takes_no_rate_but_that_of_its_jobs() -> None:
    config = Config(queues={"ledger": QueueConfig(rate="5/s")})
    assert "the ordered queue 'ledger' takes no rate" in error_of(ordered(), config)
    limited = Config(queues={"ledger": QueueConfig(max_running=3)})
    assert planned(ordered(), limited).groups["ledger"].ordered


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 1}, "an ordered queue takes no concurrency"),
        ({"processes": 2}, "an ordered queue takes no processes"),
        ({"ordered": 1}, "ordered must be True or False, not 1"),
        ({"skip_dead": None}, "skip_dead must be True or False, not None"),
        ({"ordered": False, "skip_dead": False}, "skip_dead=False is for an ordered queue"),
    ],
)
def test_what_an_ordered_queue_cannot_declare(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        ordered(**options)
