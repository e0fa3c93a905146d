"""AgentDojo's suites behind agentlab's contract: its gold plans pass, doing nothing does not."""

from __future__ import annotations

import copy
import hashlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest

from agentlab.base.documents import canonical
from agentlab.environments.adapters import agentdojo as dojo
from agentlab.environments.base import Call, Environment, Evidence, no_op
from agentlab.environments.check import check_environment
from agentlab.environments.scenario import Scenario
from agentlab.environments.suites import Suite
from agentlab.errors import ConfigError, EnvironmentContractError, UnknownNameError
from agentlab.tools.calls import CallRecord, ToolError
from agentlab.tools.tool import Effect

pytest.importorskip("agentdojo")

GOLD_CALLS = 339  # over the 97 tasks, counted in the upstream source by a script of its own
FLOOR = [f"agentdojo-banking-user_task_{n}" for n in (5, 6, 8, 9, 10)]

# A call of each tool that no gold plan makes, so that the effect table is tried on all 74 tools.
PROBES: dict[str, list[Call]] = {
    "workspace": [
        Call("delete_email", {"email_id": "1"}),
        Call("get_sent_emails"),
        Call("get_received_emails"),
        Call("get_draft_emails"),
        Call("search_contacts_by_email", {"query": "bluesparrowtech"}),
        Call("cancel_calendar_event", {"event_id": "6"}),
        Call("get_file_by_id", {"file_id": "1"}),
    ],
    "travel": [
        Call("get_user_information"),
        Call("get_contact_information_for_restaurants", {"restaurant_names": ["Le Baratin"]}),
        Call("get_car_rental_address", {"company_name": ["Speedy Rentals"]}),
        Call("search_calendar_events", {"query": ""}),
        Call("get_day_calendar_events", {"day": "2024-05-15"}),
        Call("cancel_calendar_event", {"event_id": "0"}),
        Call(
            "reserve_car_rental",
            {"company": "Speedy Rentals", "start_time": "2024-05-15 10:00", "end_time": None},
        ),
        Call("reserve_restaurant", {"restaurant": "Le Baratin", "start_time": "2024-05-15 19:00"}),
    ],
    "banking": [Call("get_iban"), Call("get_balance"), Call("get_user_info")],
    "slack": [Call("remove_user_from_slack", {"user": "Bob"})],
}


@cache
def suite(name: str) -> Suite:
    return dojo.load_suite(name)


@cache
def world_of(name: str) -> Environment:
    return dojo.AgentDojo(name)


def all_scenarios() -> list[tuple[str, Scenario]]:
    return [(name, scenario) for name in dojo.SUITES for scenario in suite(name)]


def reference_calls(scenario: Scenario) -> list[Call]:
    assert scenario.reference is not None
    return [Call(step.tool, step.arguments) for step in scenario.reference.steps]


def record(call: Call, **fields: Any) -> CallRecord:
    return CallRecord(tool=call.tool, arguments=call.arguments, **fields)


def carry_out(environment: Environment, scenario: Scenario, calls: list[Call]) -> Evidence:
    """Make the calls, none of them faulted, and give the reference plan's answer."""
    initial = world = environment.initial(scenario)
    records = []
    for call in calls:
        outcome = environment.apply(world, call)
        assert outcome.error is None, (scenario.id, call, outcome.error)
        world = outcome.world
        records.append(record(call, result=outcome.result))
    assert scenario.reference is not None
    return Evidence(initial, world, records, scenario.reference.answer)


def fingerprint() -> str:
    """Digest of every gold run: worlds, restored environments, results."""
    digest = hashlib.blake2b(digest_size=16)
    for name, scenario in all_scenarios():
        evidence = carry_out(world_of(name), scenario, reference_calls(scenario))
        state = dojo.environment_of(evidence.world).model_dump(mode="json")
        results = [record.result for record in evidence.calls]
        digest.update(canonical([evidence.world, state, results]).encode())
    return digest.hexdigest()


def test_all_suites_are_there() -> None:
    assert [len(suite(name)) for name in dojo.SUITES] == [40, 20, 16, 21]
    assert [len(world_of(name).tools()) for name in dojo.SUITES] == [24, 28, 11, 11]
    assert sum(len(reference_calls(s)) for _, s in all_scenarios()) == GOLD_CALLS
    assert sum(s.reference.answer is not None for _, s in all_scenarios() if s.reference) == 47


def test_every_gold_plan_passes() -> None:
    failed = []
    for name, scenario in all_scenarios():
        evidence = carry_out(world_of(name), scenario, reference_calls(scenario))
        if not world_of(name).check(scenario.goal, evidence).success:
            failed.append(scenario.id)
    assert failed == []


def test_doing_nothing_passes_five() -> None:
    assert [s.id for name, s in all_scenarios() if no_op(world_of(name), s).success] == FLOOR


def test_a_reference_plan_whose_every_call_fails_scores_like_doing_nothing() -> None:
    down, passed = ToolError(code="unavailable", message="down"), []
    for name, scenario in all_scenarios():
        world = world_of(name).initial(scenario)
        assert scenario.reference is not None
        records = [
            record(c, error=down, committed=False, faulted=True) for c in reference_calls(scenario)
        ]
        evidence = Evidence(world, world, records, scenario.reference.answer)
        if world_of(name).check(scenario.goal, evidence).success:
            passed.append(scenario.id)
    assert passed == FLOOR


@pytest.mark.parametrize("name", dojo.SUITES)
def test_the_contract_holds(name: str) -> None:
    for scenario in suite(name):
        check_environment(world_of(name), scenario, reference_calls(scenario))


@pytest.mark.parametrize("name", dojo.SUITES)
def test_the_effect_table_is_true(name: str) -> None:
    environment, changed, tried = world_of(name), set(), set()
    runs = [reference_calls(s) for s in suite(name)] + [[probe] for probe in PROBES[name]]
    world = environment.initial(suite(name)[0])
    for calls in runs:
        live = dojo.environment_of(world)
        for call in calls:
            before = copy.deepcopy(live)
            _, error = dojo.run_tool(name, live, call.tool, canonical(call.arguments))
            assert error is None, (call, error)
            tried.add(call.tool)
            if live != before:
                changed.add(call.tool)
    assert tried == set(environment.registry)
    assert changed == set(dojo.EFFECTS[name])
    assert {t.name for t in environment.tools() if t.effect != Effect.READ} == changed


def test_gold_arguments_hold_no_reference() -> None:
    for _, scenario in all_scenarios():
        assert "${" not in canonical([call.arguments for call in reference_calls(scenario)])


def test_the_clock_does_not_show() -> None:
    world = world_of("workspace").initial(suite("workspace")[0])
    mail = Call("send_email", {"recipients": ["a@b.com"], "subject": "s", "body": "b"})
    file = Call("create_file", {"filename": "f.txt", "content": "x"})
    assert world_of("workspace").apply(world, mail).result["timestamp"] == "2024-05-15T12:00:00"
    assert world_of("workspace").apply(world, file).result["last_modified"] == "2024-05-15T12:00:00"


def test_a_later_change_of_an_event_reaches_the_mail_that_carries_it() -> None:
    """The event is one object in calendar and mail; a JSON round trip would part the two."""
    environment = world_of("workspace")
    create = Call(
        "create_calendar_event",
        {
            "title": "Tea",
            "start_time": "2024-05-20 10:00",
            "end_time": "2024-05-20 11:00",
            "participants": ["z@b.com", "a@b.com"],
        },
    )
    first = environment.apply(environment.initial(suite("workspace")[0]), create)
    assert first.result["participants"] == sorted(first.result["participants"])
    add = Call(
        "add_calendar_event_participants",
        {"event_id": first.result["id_"], "participants": ["late@b.com"]},
    )
    second = environment.apply(first.world, add)
    sent = environment.apply(second.world, Call("get_sent_emails")).result
    assert "late@b.com" in sent[-1]["attachments"][0]["participants"]


def test_an_error_leaves_the_world_and_says_why() -> None:
    environment = world_of("slack")
    world = environment.initial(suite("slack")[0])
    outcome = environment.apply(
        world, Call("send_direct_message", {"recipient": "No", "body": "b"})
    )
    assert outcome.world is world
    assert outcome.error is not None
    assert outcome.error.code == "refused"
    assert "No not found" in outcome.error.message
    bad = environment.apply(world, Call("send_direct_message", {"recipient": "Bob"}))
    assert bad.error is not None
    assert bad.error.code == "bad_arguments"


def test_null_arguments_survive_in_a_world_without_nulls() -> None:
    scenario = suite("travel")[0]
    call = PROBES["travel"][-2]
    assert call.arguments["end_time"] is None
    check_environment(world_of("travel"), scenario, [call, Call("get_user_information")])


def test_reads_are_not_recorded_and_what_changes_nothing_neither() -> None:
    environment = world_of("workspace")
    world = environment.initial(suite("workspace")[0])
    once = environment.apply(world, Call("get_unread_emails"))
    assert len(once.result) == 6
    assert once.learned == {"calls": {"1": {"tool": "get_unread_emails", "arguments": "{}"}}}
    twice = environment.apply(once.world, Call("get_unread_emails"))
    assert (twice.result, twice.world, twice.learned) == ([], once.world, {})
    assert environment.apply(world, Call("list_files")).world is world


def answered() -> tuple[Scenario, Evidence]:
    """Return a task that is judged by its answer, and its gold run (two calls at least)."""
    for scenario in suite("travel"):
        evidence = carry_out(world_of("travel"), scenario, reference_calls(scenario))
        blank = Evidence(evidence.initial, evidence.world, evidence.calls, None)
        if evidence.answer and not world_of("travel").check(scenario.goal, blank).success:
            return scenario, evidence
    raise AssertionError("no task is judged by its answer")


def test_the_gold_answer_is_released_only_after_every_gold_call_as_it_should_be() -> None:
    scenario, evidence = answered()
    check = world_of("travel").check
    calls = list(evidence.calls)
    lacking = Evidence(evidence.initial, evidence.world, calls[:-1], evidence.answer)
    false = [*calls[:-1], calls[-1].replace(result="something else")]
    falsified = Evidence(evidence.initial, evidence.world, false, evidence.answer)
    failure = ToolError(code="unavailable", message="down")
    retried = [calls[0].replace(result=None, error=failure, committed=False), *calls]
    recovered = Evidence(evidence.initial, evidence.world, retried, evidence.answer)
    assert check(scenario.goal, evidence).success
    assert not check(scenario.goal, lacking).success
    assert not check(scenario.goal, falsified).success
    assert check(scenario.goal, recovered).success


def test_a_failed_call_is_not_taken_for_one_that_returns_nothing() -> None:
    """Half of slack's tools return null, and so does every failed call."""
    send = Call("send_channel_message", {"channel": "general", "body": "b"})
    down = ToolError(code="timeout", message="no reply")
    assert list(dojo._completed([record(send, error=down)])) == []
    assert list(dojo._completed([record(send, committed=False)])) == []
    assert len(list(dojo._completed([record(send)]))) == 1


def test_an_answer_in_own_words_needs_no_gold_call() -> None:
    scenario, evidence = answered()
    task = dojo._task("travel", evidence.initial["task"])
    own = Evidence(evidence.initial, evidence.world, (), task.GROUND_TRUTH_OUTPUT)
    assert world_of("travel").check(scenario.goal, own).success


def test_a_deadline_counts() -> None:
    scenario, evidence = answered()
    goal = scenario.goal.replace(deadline=5.0)
    late = Evidence(evidence.initial, evidence.world, evidence.calls, evidence.answer, seconds=6.0)
    verdict = world_of("travel").check(goal, late)
    assert verdict.reasons == ("finished at 6 s, after 5 s",)


def test_a_checker_that_trips_is_a_no_with_a_reason() -> None:
    """Upstream looks into Alice's inbox, which goes with her."""
    environment, scenario = world_of("slack"), suite("slack")["agentdojo-slack-user_task_1"]
    remove = Call("remove_user_from_slack", {"user": "Alice"})
    calls = [*reference_calls(scenario), remove]
    verdict = environment.check(scenario.goal, carry_out(environment, scenario, calls))
    assert not verdict.success
    assert "raised KeyError" in verdict.reasons[0]


def test_a_world_that_cannot_be_made_again_is_an_error() -> None:
    entry = {"1": {"tool": "send_direct_message", "arguments": '{"recipient":"No","body":"b"}'}}
    world = {"suite": "slack", "task": "user_task_0", "calls": entry}
    with pytest.raises(EnvironmentContractError, match="cannot be made again"):
        dojo.environment_of(world)


def test_ten_calls_are_replayed_in_the_order_of_their_numbers() -> None:
    environment = world_of("slack")
    scenario = suite("slack")[0]
    sent = [Call("send_channel_message", {"channel": "general", "body": str(n)}) for n in range(12)]
    world = carry_out(environment, scenario, sent).world
    shuffled = {**world, "calls": dict(sorted(world["calls"].items()))}  # "1", "10", "11", "2"
    inbox = dojo.environment_of(shuffled).slack.channel_inbox["general"]
    assert [message.body for message in inbox[-12:]] == [str(n) for n in range(12)]


def test_threads_share_nothing() -> None:
    jobs = [job for job in all_scenarios() if job[0] in ("workspace", "slack")] * 2
    start = threading.Barrier(4)

    def run(job: tuple[str, Scenario]) -> str:
        evidence = carry_out(world_of(job[0]), job[1], reference_calls(job[1]))
        return canonical([evidence.world, [record.result for record in evidence.calls]])

    alone = [run(job) for job in jobs]
    with ThreadPoolExecutor(4, initializer=start.wait) as pool:
        assert list(pool.map(run, jobs)) == alone


def test_gold_runs_repeat_exactly() -> None:
    assert fingerprint() == fingerprint()


@pytest.mark.slow
def test_gold_runs_repeat_in_processes_that_hash_differently() -> None:
    """Upstream passes participants through a set: their order follows the hash seed."""
    script = "import runpy, sys; print(runpy.run_path(sys.argv[1])['fingerprint']())"
    outputs = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script, __file__],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]


def test_an_unknown_suite_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'travel'"):
        dojo.load_suite("travl")


def test_without_the_package_the_install_command_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agentdojo", None)
    with pytest.raises(ConfigError, match="pip install"):
        dojo._suite.__wrapped__("travel")
