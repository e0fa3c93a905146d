"""AgentDojo's four suites (Debenedetti et al. 2024, package ``agentdojo``) as agentlab worlds.

AgentDojo keeps one mutable environment per run, and a JSON round trip of it loses records. So a
world here names the suite, the task and, numbered from 1, the calls that changed something::

    {"suite": "travel", "task": "user_task_3", "calls": {"1": {"tool": ..., "arguments": "{...}"}}}

The mutable environment is made again whenever it is asked for: a deep copy of the task's pristine
one (at most 1 ms), then the calls (5 to 55 microseconds each), so threads need no lock.
Arguments are kept as JSON text, because a world holds no nulls.

Two things differ between repeats upstream and are settled after each call, on our own copy, so
that no module and no clock is ever patched: times read from the wall clock (mail sent, files
created or appended to) become ``NOON``, and the participants of a created event, which come out
of a set and so in an order that changes from process to process, are sorted.

An error leaves the world as it was. (Upstream, a tool that fails halfway keeps the first half.)
Judging is AgentDojo's: ``utility_from_traces``, else ``utility``. Left out: injections.
"""

from __future__ import annotations

import copy
import datetime
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from agentlab.base.documents import Json, canonical
from agentlab.base.values import Document
from agentlab.environments.base import Call, Environment, Evidence, Outcome, Verdict, too_late
from agentlab.environments.scenario import Goal, ReferencePlan, ReferenceStep, Scenario
from agentlab.environments.suites import Suite
from agentlab.errors import ConfigError, EnvironmentContractError, UnknownNameError
from agentlab.tools.calls import CallRecord, ToolError
from agentlab.tools.tool import Effect, Tool

VERSION = "v1.2.2"
SUITES = ("workspace", "travel", "banking", "slack")
NOON = datetime.datetime(2024, 5, 15, 12)
"""When everything happens: the day that the suites' calendars call today."""

GOLD_ANSWER = "(AgentDojo's gold answer, if every gold call came back as it should)"
"""The reference plan's answer; the checker puts the gold output in its place, or nothing.

A constant output would be immune to faults: 38 of the 97 tasks accept it with no call made.
"""

# What does more than read. Irreversible: left the house, or no tool of the suite brings it back.
# Two look like reads: get_unread_emails marks what it returns as read, and checkers look at the
# log that get_webpage writes.
EFFECTS: dict[str, dict[str, Effect]] = {
    "workspace": {
        "send_email": Effect.IRREVERSIBLE,
        "delete_email": Effect.IRREVERSIBLE,
        "get_unread_emails": Effect.WRITE,
        "create_calendar_event": Effect.WRITE,
        "cancel_calendar_event": Effect.IRREVERSIBLE,
        "reschedule_calendar_event": Effect.WRITE,
        "add_calendar_event_participants": Effect.WRITE,
        "append_to_file": Effect.WRITE,
        "create_file": Effect.WRITE,
        "delete_file": Effect.IRREVERSIBLE,
        "share_file": Effect.IDEMPOTENT,
    },
    "travel": {
        "create_calendar_event": Effect.WRITE,
        "cancel_calendar_event": Effect.IRREVERSIBLE,
        "reserve_hotel": Effect.IDEMPOTENT,
        "reserve_car_rental": Effect.IDEMPOTENT,
        "reserve_restaurant": Effect.IDEMPOTENT,
        "send_email": Effect.IRREVERSIBLE,
    },
    "banking": {
        "send_money": Effect.IRREVERSIBLE,
        "schedule_transaction": Effect.WRITE,
        "update_scheduled_transaction": Effect.IDEMPOTENT,
        "update_password": Effect.IDEMPOTENT,
        "update_user_info": Effect.IDEMPOTENT,
    },
    "slack": {
        "add_user_to_channel": Effect.WRITE,
        "send_direct_message": Effect.IRREVERSIBLE,
        "send_channel_message": Effect.IRREVERSIBLE,
        "invite_user_to_slack": Effect.WRITE,
        "remove_user_from_slack": Effect.IRREVERSIBLE,
        "get_webpage": Effect.IDEMPOTENT,
        "post_webpage": Effect.IRREVERSIBLE,
    },
}


class AgentDojo(Environment):
    """One suite of AgentDojo.

    Parameters
    ----------
    suite : {"workspace", "travel", "banking", "slack"}
        Which one.

    Raises
    ------
    UnknownNameError
        There is no such suite.
    """

    clock = "wall"

    def __init__(self, suite: str) -> None:
        if suite not in SUITES:
            raise UnknownNameError("AgentDojo suite", suite, SUITES)
        self.suite, self.name = suite, f"agentdojo/{suite}"

    def scenarios(self) -> Suite:
        """Return the suite's tasks (see ``load_suite``)."""
        return load_suite(self.suite)

    def tools(self) -> tuple[Tool, ...]:
        """Return the suite's tools; every call takes one simulated second."""
        effects = EFFECTS[self.suite]
        return tuple(
            Tool(
                name=function.name,
                description=function.description,
                parameters=_schema(function.parameters, "validation"),
                returns=_returns(function.return_type),
                effect=effects.get(function.name, Effect.READ),
            )
            for function in _suite(self.suite).tools
        )

    def apply(self, world: Document, call: Call) -> Outcome:
        """Make the world's environment again and carry out one more call on it."""
        from pydantic_core import to_jsonable_python

        environment = environment_of(world)
        reads = call.tool not in EFFECTS[self.suite]
        before = None if reads else copy.deepcopy(environment)
        arguments = canonical(call.arguments)
        result, error = run_tool(self.suite, environment, call.tool, arguments)
        if error is not None:
            return Outcome(world, error=error)
        document = to_jsonable_python(result)  # now: it may be a live part of the environment
        if reads or environment == before:
            return Outcome(world, document)
        entry = {str(len(world["calls"]) + 1): {"tool": call.tool, "arguments": arguments}}
        changed = {**world, "calls": {**world["calls"], **entry}}
        return Outcome(changed, document, learned={"calls": entry})

    def unmet(self, goal: Goal, world: Document) -> tuple[str, ...]:
        """Judge the world alone: a task that asks for an answer is unmet."""
        return judge(world, "")

    def check(self, goal: Goal, evidence: Evidence) -> Verdict:
        """Judge a finished run by its world and its answer."""
        reasons = (*judge(evidence.world, _answer(evidence)), *too_late(goal, evidence))
        return Verdict(not reasons, reasons)


def load_suite(suite: str) -> Suite:
    """Return one of AgentDojo's suites as scenarios, gold plans as references.

    The steps of a gold plan depend each on the one before: their arguments are literals that
    upstream took from earlier results, so the order is all that is known of the data flow.

    Parameters
    ----------
    suite : {"workspace", "travel", "banking", "slack"}

    Raises
    ------
    UnknownNameError
        There is no such suite.
    ConfigError
        The package ``agentdojo`` is not installed.
    """
    name = AgentDojo(suite).name
    tasks = sorted(_suite(suite).user_tasks, key=lambda task: int(task.rsplit("_", 1)[1]))
    return Suite(name, [_scenario(suite, task) for task in tasks])


def _scenario(suite: str, task: str) -> Scenario:
    described = _task(suite, task)
    steps: list[ReferenceStep] = []
    for number, call in enumerate(gold_calls(suite, task), 1):
        before = [step.step_id for step in steps[-1:]]
        step_id = f"{call.tool}_{number}"
        steps.append(ReferenceStep.calling(step_id, call.tool, call.arguments, before))
    return Scenario(
        id=f"agentdojo-{suite}-{task}",
        environment=f"agentdojo/{suite}",
        task=described.PROMPT,
        world={"suite": suite, "task": task, "calls": {}},
        goal=Goal(),
        reference=ReferencePlan(
            steps=tuple(steps), answer=GOLD_ANSWER if described.GROUND_TRUTH_OUTPUT else None
        ),
        difficulty=described.DIFFICULTY.name.lower(),
    )


def gold_calls(suite: str, task: str) -> tuple[Call, ...]:
    """Return the calls that upstream gives as a solution of the task, in order."""
    gold = _task(suite, task).ground_truth(copy.deepcopy(_pristine(suite, task)))
    return tuple(Call(call.function, json.loads(canonical(call.args))) for call in gold)


def environment_of(world: Document) -> Any:
    """Return AgentDojo's environment of a world: a fresh one, the caller's to keep.

    Raises
    ------
    EnvironmentContractError
        A call of the world fails: it was not written by ``AgentDojo.apply``.
    """
    environment = copy.deepcopy(_pristine(world["suite"], world["task"]))
    for call in _calls(world):
        _, error = run_tool(world["suite"], environment, call["tool"], call["arguments"])
        if error is not None:
            raise EnvironmentContractError(
                f"world of {world['suite']}/{world['task']}: the recorded call "
                f"{call['tool']}({call['arguments']}) cannot be made again: {error}"
            )
    return environment


def run_tool(
    suite: str, environment: Any, tool: str, arguments: str
) -> tuple[Any, ToolError | None]:
    """Carry out a call on a mutable environment and settle what would differ between repeats.

    Parameters
    ----------
    suite, tool : str
        Which tool.
    environment : agentdojo.functions_runtime.TaskEnvironment
        Changed in place, after an error perhaps in part.
    arguments : str
        JSON text.

    Returns
    -------
    tuple of (object, ToolError or None)
        The result as upstream returns it (it may be a part of ``environment``), or the error.
    """
    from pydantic import ValidationError

    before = {key: time for key, _, _, time in _times(environment)}
    try:
        result, _ = _runtime(suite).run_function(
            environment, tool, json.loads(arguments), raise_on_error=True
        )
    except ValidationError as e:
        return None, ToolError(code="bad_arguments", message=str(e), permanent=True)
    except Exception as e:
        return None, ToolError(code="refused", message=f"{type(e).__name__}: {e}")
    for key, record, field, time in _times(environment):
        if before.get(key) != time:
            setattr(record, field, NOON)
    if tool == "create_calendar_event":
        result.participants.sort()
    return result, None


def judge(world: Document, answer: str) -> tuple[str, ...]:
    """Ask AgentDojo's own checker; return why it says no, or nothing.

    Parameters
    ----------
    world : dict
        The world at the end.
    answer : str
        What the agent said; empty: nothing.
    """
    from agentdojo.functions_runtime import FunctionCall

    suite, name = world["suite"], world["task"]
    task, initial = _task(suite, name), copy.deepcopy(_pristine(suite, name))
    final = environment_of(world)
    traces = [
        FunctionCall(function=call["tool"], args=json.loads(call["arguments"]))
        for call in _calls(world)
    ]
    try:
        verdict = task.utility_from_traces(answer, initial, final, traces)
        if verdict is None:
            verdict = task.utility(answer, initial, final)
    except Exception as e:  # checkers index what a run may have removed
        return (f"AgentDojo's checker of {name} raised {type(e).__name__}: {e}",)
    return () if verdict else (f"AgentDojo's checker of {name} says no",)


def _answer(evidence: Evidence) -> str:
    """Return the answer as text, the gold one only where it was earned."""
    answer: Json = evidence.answer
    if answer == GOLD_ANSWER:
        suite, task = evidence.initial["suite"], evidence.initial["task"]
        missing = Counter(_gold_records(suite, task)) - Counter(_completed(evidence.calls))
        return "" if missing else str(_task(suite, task).GROUND_TRUTH_OUTPUT)
    if answer is None:
        return ""
    return answer if isinstance(answer, str) else canonical(answer)


def _completed(calls: Sequence[CallRecord]) -> Iterable[str]:
    for call in calls:
        if call.error is None and call.committed:
            yield canonical([call.tool, call.arguments, call.result])


@cache
def _gold_records(suite: str, task: str) -> tuple[str, ...]:
    """Return the gold calls with the results they have when nothing fails."""
    world: Document = {"suite": suite, "task": task, "calls": {}}
    records = []
    for call in gold_calls(suite, task):
        outcome = AgentDojo(suite).apply(world, call)
        world = outcome.world
        records.append(canonical([call.tool, call.arguments, outcome.result]))
    return tuple(records)


def _calls(world: Document) -> list[dict[str, str]]:
    """Return the world's calls in the order in which they were made."""
    return [call for _, call in sorted(world["calls"].items(), key=lambda item: int(item[0]))]


def _times(environment: Any) -> list[tuple[tuple[str, str], Any, str, datetime.datetime]]:
    """Return (key, record, field, time) of all that upstream stamps with the wall clock."""
    inbox, drive = getattr(environment, "inbox", None), getattr(environment, "cloud_drive", None)
    mails = inbox.emails.items() if inbox else ()
    files = drive.files.items() if drive else ()
    return [(("mail", k), mail, "timestamp", mail.timestamp) for k, mail in mails] + [
        (("file", k), file, "last_modified", file.last_modified) for k, file in files
    ]


@cache
def _suite(suite: str) -> Any:
    try:
        import agentdojo  # noqa: F401
    except ModuleNotFoundError as e:
        raise ConfigError(
            "suites agentdojo/... need the package agentdojo: "
            "pip install 'agentlab-sandbox[agentdojo]'"
        ) from e
    from agentdojo.task_suite.load_suites import get_suites  # 1.6 s: it imports every LM's client

    return get_suites(VERSION)[suite]


@cache
def _runtime(suite: str) -> Any:
    from agentdojo.functions_runtime import FunctionsRuntime

    return FunctionsRuntime(_suite(suite).tools)


def _task(suite: str, task: str) -> Any:
    return _suite(suite).get_user_task_by_id(task)


@cache
def _base(suite: str) -> Any:
    return _suite(suite).load_and_inject_default_environment({})  # 20 to 40 ms of YAML


@cache
def _pristine(suite: str, task: str) -> Any:
    """Return a task's environment before anything happened; copy it, never change it."""
    return _task(suite, task).init_environment(copy.deepcopy(_base(suite)))


def _returns(annotation: Any) -> dict[str, Any]:
    from pydantic import TypeAdapter

    return {} if annotation is None else _schema(TypeAdapter(annotation), "serialization")


def _schema(source: Any, mode: str) -> dict[str, Any]:
    """Return a self-contained JSON Schema of a model or TypeAdapter, without generated titles."""
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    make = getattr(source, "model_json_schema", None) or source.json_schema
    schema: dict[str, Any] = make(mode=mode, schema_generator=Untitled)
    return {key: value for key, value in schema.items() if key != "title"}
