"""Doors through which answers come: of models, MCP servers, tools and people.

Each is a pair: good inputs, and a function that lets one in (see ``fuzz.py``). Labs are made once
for a process, and each input has a run or a fork of its own; no server's process is started.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import typing_extensions
from pydantic import BaseModel, Field
from pydantic.alias_generators import to_snake

import agentlab as al
from agentlab.base.strict_json import read_json
from agentlab.errors import AgentLabError
from agentlab.lm.scripted import scripted
from agentlab.views.people import told

VISITS = 60
"""Of one run: more than any of these plans needs."""

Pair = tuple[Callable[[], list[bytes]], Callable[[bytes], object]]


def dumped(document: object) -> bytes:
    return json.dumps(document).encode()


def text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape" if b"\xff" in data else "replace")


def read(data: bytes) -> Any:
    """Return what data says as JSON; data that is none is no input of these doors."""
    try:
        return read_json(data)
    except AgentLabError:
        return None


def ended(run: Any) -> None:
    """Go on to the end, and read all that a run shows."""
    try:
        run.finish(VISITS)
    finally:
        run.state.to_json()
        repr(run)
        for span in run.recorder.spans:
            json.dumps([span.row(), span.messages(), told(span)])


# ---- MCP servers -----------------------------------------------------------------------------

SCHEMA = {
    "type": "object", "properties": {"x": {"type": "string", "pattern": "^a*$"},
    "y": {"$ref": "#/$defs/y"}}, "$defs": {"y": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
    "required": ["x"],
}  # fmt: skip
TOOL = {
    "name": "look", "description": "look it up", "inputSchema": SCHEMA,
    "outputSchema": {"type": "object", "properties": {"n": {"type": "number"}}},
    "annotations": {"readOnlyHint": True},
}  # fmt: skip
BEGUN = {
    "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
    "serverInfo": {"name": "s", "version": "1"},
}  # fmt: skip
SECRET = "s3cret-of-doors"


def message(number: int, result: object) -> bytes:
    return dumped({"jsonrpc": "2.0", "id": number, "result": result})


class Process:
    """What a started server looks like to its pipe: it gives each request the next answer."""

    def __init__(self, answers: Iterable[bytes]) -> None:
        import anyio

        self.stdin = self.stdout = self
        self.returncode: int | None = None
        self._answers, self._said = deque(answers), deque[bytes]()
        self._news = anyio.Event()

    async def send(self, data: bytes) -> None:
        import anyio

        if "id" in json.loads(data):
            self._said.append(self._answers.popleft() + b"\n" if self._answers else b"")
            if not self._answers:
                self._said.append(b"")
            self._news.set()
            self._news = anyio.Event()

    async def receive(self) -> bytes:
        import anyio

        while not self._said:
            await self._news.wait()
        if data := self._said.popleft():
            return data
        self._said.append(b"")
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        self.returncode = 0


OPEN = ExitStack()
"""Never closed: a child of the fuzz ends without a word."""


@cache
def portal() -> Any:
    from anyio.from_thread import start_blocking_portal

    return OPEN.enter_context(start_blocking_portal("asyncio"))


def client_of(answers: list[bytes]) -> Any:
    """Return a client of a server that answers so, and then ends."""
    from agentlab.base.secrets import Secrets
    from agentlab.tools import mcp
    from agentlab.tools.pipe import Pipe
    from agentlab.tools.server import McpServer

    @asynccontextmanager
    async def opened(command: object, variables: object, secrets: object) -> Any:
        yield Pipe(Process(answers), Secrets([SECRET]))

    mcp.opened = opened
    server = McpServer(id="s", command="python", timeout_ms=10_000)
    return mcp.Client(portal(), server)


def listing(data: bytes) -> None:
    """List tools, show them to planners, and take them from the document that is kept."""
    from agentlab.minds.planners.prompted import tool_line
    from agentlab.minds.planners.structured import plan_schema
    from agentlab.tools.listing import as_document, as_listed

    client = client_of([message(1, BEGUN), data])
    try:
        again = as_listed("s", {"s": read_json(dumped(as_document(client.tools)))})
        assert SECRET not in repr(again)
        plan_schema(again)
        for tool in again.values():
            tool.check({"x": "a" * 50, "y": 1})
            tool_line(tool.name, tool.parameters, tool.returns, tool.description)
    finally:
        client.close()


def listings() -> list[bytes]:
    paged = {"tools": [TOOL], "nextCursor": "2"}
    return [
        message(2, {"tools": [TOOL, {**TOOL, "name": "other", "outputSchema": None}]}),
        message(2, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
        message(2, paged),
    ]


def result(data: bytes) -> None:
    client = client_of([message(1, BEGUN), message(2, {"tools": [TOOL]}), data])
    try:
        json.dumps(client.call("look", {"x": "a"}))
    finally:
        client.close()


def results() -> list[bytes]:
    blocks = [
        {"type": "text", "text": "found"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "b"}},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
    ]
    return [
        message(3, {"content": blocks[:1], "structuredContent": {"n": 1.5}}),
        message(3, {"content": blocks, "isError": True, "_meta": {"a": 1}}),
        dumped({"jsonrpc": "2.0", "id": 3, "error": {"code": -32602, "message": "no", "data": 1}}),
        dumped({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}),
    ]


def listed(data: bytes) -> None:
    from agentlab.tools.listing import as_listed

    if isinstance(document := read(data), dict):
        as_listed("s", document)


def listed_good() -> list[bytes]:
    row = {"name": "a", "description": "", "parameters": SCHEMA, "returns": {}, "effect": "read",
           "timeout": 30.0}  # fmt: skip
    return [dumped({"s": [row, {**row, "name": "b", "effect": "write"}]})]


# ---- people ----------------------------------------------------------------------------------


def note(order: int, to: str = "", at: date | None = None) -> dict[str, int]:
    """Write it down."""
    return {"order": order}


STEPS = [
    {"stepId": "a", "name": "a", "actionType": "call_tool", "targetResource": "look",
     "parameters": {"x": "1"}, "dependencies": []},
    {"stepId": "b", "name": "b", "actionType": "call_tool", "targetResource": "note",
     "parameters": {"order": "${a.y.n}", "to": "x ${a.x}"}, "dependencies": ["a"]},
]  # fmt: skip
PLAN = {"steps": STEPS, "answer": "${b.order}"}


def look(x: str) -> dict[str, Any]:
    """Look it up."""
    return {"x": x, "y": {"n": 7, "list": [{"a": 1}, {"a": None}]}}


class Given:
    """A planner that plans what it is given."""

    def __init__(self, plan: object) -> None:
        self.document = plan

    def plan(self, request: Any, kit: Any) -> Any:
        from agentlab.minds.base import checked_plan

        return checked_plan(self.document, request, kit)


@cache
def tools() -> tuple[Any, ...]:
    refund = al.tool(effect="irreversible", needs_approval=True)(note)
    return al.tool(look), refund


def started(plan: object, asks: bool) -> Any:
    reviewer = None if asks else "approve"
    lab = al.Lab(tools=tools(), planner=Given(plan), strategy="never", review=reviewer)
    return al.autonomous.start(lab, "do it")


@cache
def waiting() -> Any:
    run = started(PLAN, asks=True)
    run.finish()
    assert [p.call_id for p in run.waiting] == ["b"], run.state.error
    return run


def reviewed(data: bytes) -> None:
    """Answer for the call that waits: by ``review`` and by ``fork``."""
    said = read(data)
    if isinstance(said, dict) and "call_id" in said:
        named = {k: said[k] for k in ("reason", "by") if k in said}
        run = waiting().fork()
        run.review(said["call_id"], said.get("answer"), said.get("arguments"), **named)
        ended(run)
    else:
        ended(waiting().fork(review={"b": said}))


def reviews() -> list[bytes]:
    edit = {"answer": "edit", "arguments": {"order": 5, "to": "y", "at": "2026-01-02"}}
    return [
        dumped({"call_id": "b", "reason": "so", "by": "me", **edit}),
        dumped({"call_id": "b", "answer": "approve"}),
        dumped(edit), dumped({"answer": "reject", "reason": "no"}), dumped("approve"),
    ]  # fmt: skip


def typed(data: bytes) -> None:
    """Edit the arguments of a call that waits by what a person typed."""
    from agentlab.views.people import arguments_text, read_arguments

    given = read_arguments(text(data))
    run = waiting().fork()
    arguments_text(run.waiting[0])
    run.review("b", "edit", given)
    ended(run)


def edited(data: bytes) -> None:
    """Edit a run's plan and its fields."""
    from agentlab.plans.parsing import parse_plan

    said = read(data)
    if not isinstance(said, dict):
        return
    fields = said.get("fields")
    plan = parse_plan(said["plan"]) if "plan" in said else None
    run = waiting().fork()
    run.edit(plan, **(fields if isinstance(fields, dict) else {}))
    ended(run)
    ended(waiting().fork(state=fields))


def edits() -> list[bytes]:
    """Whole plans, a few fields, and all fields that a state has, some at a time."""
    state = waiting().state
    whole = state.to_json()
    names = {to_snake(k): k for k in whole}
    fields = [{n: whole[k] for n, k in list(names.items())[i : i + 8]} for i in range(0, 80, 8)]
    return [
        dumped({"plan": PLAN}),
        dumped({"plan": {**PLAN, "steps": [*STEPS, {**STEPS[1], "stepId": "c"}]}}),
        dumped({"fields": {"max_loops": 2, "forced_decision": {"action": "REPLAN_FULL"}}}),
        dumped({"fields": {"fault_plan": {"rate": 0.5, "kinds": {"error": 1.0}}, "seed": 3}}),
        *(dumped({"fields": some}) for some in fields if some),
    ]


# ---- models ----------------------------------------------------------------------------------


@cache
def scenario() -> Any:
    return al.load_suite("chain")[0]


def asked(script: Any, **options: Any) -> None:
    lab = al.Lab(scenario(), lm=scripted(script), **{"strategy": "never", **options})
    ended(al.autonomous.start(lab))


def structured(data: bytes) -> None:
    asked(lambda request, n: text(data), planner="structured")


def structured_good() -> list[bytes]:
    step = {"stepId": "1", "actionType": "call_tool", "targetResource": "advance",
            "parameters": {"token": "${0.token}"}, "dependencies": ["0"]}  # fmt: skip
    first = {**step, "stepId": "0", "parameters": {"token": "t"}, "dependencies": []}
    plan = dumped({"summary": "s", "steps": [first, step], "answer": "${1.token}"})
    return [plan, b"<think>so</think>\n```json\n" + plan + b"\n```"]


def contracted(data: bytes) -> None:
    """Let a contract and its bindings in, a line each."""
    one, _, two = text(data).partition("\n")
    asked(lambda request, n: two if n % 2 else one, planner="contract")


def contracts() -> list[bytes]:
    step = {"stepId": "1", "objective": "o", "executionTarget": "tool:advance",
            "dependencies": [], "completionCriteria": "c"}  # fmt: skip
    graph = dumped({"steps": [step, {**step, "stepId": "2", "dependencies": ["1"]}]})
    bound = {"1": {"token": "t"}, "2": {"token": "${1.token}"}}
    return [graph + b"\n" + dumped({"parameters": bound, "answer": "${2.token}"})]


@cache
def broken() -> Any:
    fault = al.TargetedFault(tool="advance", kind="error", persistence="permanent")
    return al.FaultPlan(targets=(fault,))


def reflected(data: bytes) -> None:
    asked(lambda request, n: text(data), planner="search", reflector="lm", faults=broken())


def reflections() -> list[bytes]:
    said = {"analysis": "a", "goalAchieved": False, "needReplan": True, "replanReason": "r",
            "suggestions": ["x"]}  # fmt: skip
    return [dumped(said), dumped({**said, "goalAchieved": True, "needReplan": False})]


def decided(data: bytes) -> None:
    asked(lambda request, n: text(data), planner="search", strategy="ask_on_error", faults=broken())


def decisions() -> list[bytes]:
    said = {"action": "REPLAN_REMAINING", "reasoning": "r", "newContextHints": ["h"],
            "confidence": 0.5}  # fmt: skip
    return [dumped({**said, "action": a}) for a in ("RETRY", "CONTINUE", "ABORT", "REPLAN_FULL")]


def answered(data: bytes) -> None:
    """Let the final response in."""
    asked(lambda request, n: text(data), planner="search", responder="lm")


# ---- tools -----------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"
    BLUE = 2


@dataclass
class Point:
    x: float
    y: float = 0.0
    next: Point | None = None


class Form(BaseModel):
    name: Annotated[str, Field(pattern="^[a-z]+$", max_length=20)]
    when: datetime
    points: list[Point] = []


class Row(typing_extensions.TypedDict, total=False):
    id: UUID
    price: Decimal


def every(
    i: int, f: float, d: date, span: timedelta, money: Decimal, colour: Colour, point: Point,
    form: Form, row: Row, at: IPv4Address, path: Path, raw: bytes, some: set[int],
    pair: tuple[int, str], lit: Literal["a", 1], many: dict[str, list[int | None]],
    maybe: bool | str | None = None,
) -> list[Any]:  # fmt: skip
    """Take one of each."""
    return [i, f, d, span, money, colour, point, form, row, at, path, raw, some, pair, lit, many]


EVERY = {
    "i": 1, "f": 1.5, "d": "2026-01-02", "span": "PT5M", "money": "1.10", "colour": "red",
    "point": {"x": 1, "next": {"x": 2}}, "row": {"price": 5},
    "form": {"name": "a", "when": "2026-01-02T03:04:05Z", "points": [{"x": 1, "y": 2}]},
    "at": "127.0.0.1", "path": "a/b", "raw": "YQ==", "some": [1, 2], "pair": [1, "a"], "lit": "a",
    "many": {"a": [1, None]}, "maybe": True,
}  # fmt: skip


@cache
def every_tool() -> Any:
    return al.tool(every)


def given(data: bytes) -> None:
    """Check and convert typed arguments, and keep what the function gives of them."""
    from agentlab.tools.invocation import carried_out

    sent = read(data)
    problem = every_tool().check(sent)
    if problem is None:
        kept, error = carried_out(every_tool(), sent)
        assert error is None or error.code == "not_json", error
        read_json(dumped(kept))
    else:
        assert len(problem) < 5000, problem[:100]


def made(value: Any, kind: str) -> Any:
    """Return a value of JSON as an object of some kind, as a tool might return it."""
    if isinstance(value, dict) and len(value) == 1:
        [(name, inner)] = value.items()
        makers: dict[str, Callable[[Any], Any]] = {
            "set": frozenset, "tuple": tuple, "bytes": lambda x: str(x).encode("utf-8", "replace"),
            "decimal": Decimal, "date": date.fromisoformat, "days": lambda x: timedelta(days=x),
            "point": lambda x: Point(*x), "iter": iter, "array": array, "frame": frame,
            "keys": lambda x: {made(k, kind): v for k, v in x}, "int": int, "complex": complex,
        }  # fmt: skip
        if name in makers:
            try:
                return makers[name](made(inner, kind))
            except Exception:
                return inner
    if isinstance(value, dict):
        return {k: made(v, kind) for k, v in value.items()}
    return [made(v, kind) for v in value] if isinstance(value, list) else value


def array(value: Any) -> Any:
    import numpy as np

    return np.array(value)


def frame(value: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(value)


def returned(data: bytes) -> None:
    """Return objects of many kinds from tools of many annotations."""
    from agentlab.tools.invocation import carried_out

    document = read(data)
    for hint in (None, Any, Point, list[Point], dict[str, Decimal], Form, Row, set[int], float):

        def give() -> Any:
            return made(document, "")

        if hint is not None:
            give.__annotations__["return"] = hint
        kept, error = carried_out(al.tool(give), {})
        assert error is None or (error.code == "not_json" and len(error.message) < 5000), error
        read_json(dumped(kept))


def returns() -> list[bytes]:
    return [
        dumped([{"set": [1, 2]}, {"tuple": [1, {"decimal": "1.5"}]}, {"date": "2026-01-02"}]),
        dumped({"a": {"array": [[1, 2], [3, 4]]}, "b": {"bytes": "x"}, "c": {"days": 2}}),
        dumped({"frame": {"a": [1, 2], "b": ["x", None]}}), dumped({"point": [1, 2]}),
        dumped({"keys": [[1, 2], ["1", 3], [{"tuple": [1, 2]}, 4]]}), dumped({"int": "9" * 3000}),
        dumped({"iter": [{"complex": "1+2j"}, 1e308, {"frame": [{"a": {"date": "2026-01-02"}}]}]}),
    ]  # fmt: skip


def executed(data: bytes) -> None:
    """Carry out a plan with references."""
    ended(started(read(data), asks=False))


def plans() -> list[bytes]:
    first, second = STEPS
    path = "${a.y.list[?a==`1`] | [0].a}"
    third = {**second, "stepId": "c", "parameters": {"order": path, "to": ["${b}", "$${x}"]}}
    gathered = {"all": ["${a}", {"b": "${b.order}"}]}
    gather = {**second, "stepId": "d", "actionType": "aggregate", "targetResource": ""}
    gather |= {"parameters": gathered, "dependencies": ["a", "b"]}
    return [
        dumped(PLAN),
        dumped({"steps": [first, second, third], "answer": "got ${c.order}, ${a.x}"}),
        dumped({"steps": [first, second, gather], "answer": "${d}"}),
    ]


ANSWERS: dict[str, Pair] = {
    "mcp listing": (listings, listing),
    "mcp result": (results, result),
    "mcp kept": (listed_good, listed),
    "review": (reviews, reviewed),
    "typed edit": (lambda: [dumped({"order": 5, "to": "y", "at": None})], typed),
    "run edit": (edits, edited),
    "structured": (structured_good, structured),
    "contracts": (contracts, contracted),
    "reflector": (reflections, reflected),
    "decider": (decisions, decided),
    "responder": (lambda: [b"Done: it is 5.", b"<think>x</think> Done."], answered),
    "typed call": (lambda: [dumped(EVERY)], given),
    "typed result": (returns, returned),
    "executor": (plans, executed),
}
