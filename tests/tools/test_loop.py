"""Async tools: a loop of their own, deadlines, cancelling, and whatever escapes a coroutine."""

from __future__ import annotations

import _thread
import asyncio
import os
import threading
import time
from contextvars import ContextVar
from typing import Any

import pytest

import agentlab as al
from agentlab.errors import ToolFailure
from agentlab.minds.planners.fixed import Fixed
from agentlab.tools.cancel import CURRENT, CancelToken, cancel_token
from agentlab.tools.invocation import carried_out
from agentlab.tools.loop import LOOP, Loop, awaited
from agentlab.tools.tool import tool

PLACE: ContextVar[str] = ContextVar("place", default="nowhere")


async def where() -> str:
    return threading.current_thread().name


async def late(cleaned: list[bool]) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        cleaned.append(cancel_token().cancelled)


def comes(what: list[bool]) -> list[bool]:
    """Wait until something is in a list, for ten seconds."""
    for _ in range(1000):
        if what:
            break
        time.sleep(0.01)
    return what


def run(tools: Any, steps: int = 1, **options: Any) -> al.Run:
    plan = [
        {"name": f"s{i}", "actionType": "call_tool", "targetResource": tools[0].name,
         "parameters": {}} for i in range(steps)
    ]  # fmt: skip
    lab = al.Lab(tools=tools, planner=Fixed(plan), strategy="never", **options)
    made = al.autonomous.start(lab, "Go.")
    made.finish()
    assert made.replay().identical
    return made


def test_it_is_one_thread_that_starts_with_the_first_call():
    loop = Loop()
    names = {loop.wait(where(), 5, "where") for _ in range(3)}
    assert names == {"agentlab tools"}
    loop.close()


def test_calls_overlap():
    """Each of twenty calls waits until all have come: one after the other they never would."""
    come = []

    async def meet() -> int:
        come.append(1)
        while len(come) < 20:
            await asyncio.sleep(0)
        return len(come)

    made = run([tool(meet, timeout=60)], steps=20, workers=20)
    assert [c.result for c in made.state.calls] == [20] * 20


def test_it_works_where_a_loop_runs_already():
    async def cell() -> str:
        return awaited(where(), 5, "where")

    assert asyncio.run(cell()) == "agentlab tools"


def test_a_tool_that_makes_a_run_of_async_tools_does_not_wait_for_itself():
    async def outer() -> list[str]:
        return [c.result for c in run([tool(where)]).state.calls]

    assert carried_out(tool(outer, timeout=60), {}) == (["agentlab tools"], None)


def test_the_context_of_the_caller_is_copied():
    async def place() -> str:
        found = PLACE.get()
        PLACE.set("changed")
        return found

    token = PLACE.set("here")
    assert carried_out(tool(place), {}) == ("here", None)
    assert PLACE.get() == "here"
    PLACE.reset(token)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_call_is_cancelled_at_its_deadline(workers):
    cleaned: list[bool] = []

    async def slow() -> None:
        await late(cleaned)

    made = run([tool(slow, timeout=0.05)], workers=workers)
    assert made.state.calls[0].error.code == "timeout"
    assert comes(cleaned) == [True]
    assert not made.abandoned


def test_a_call_is_cancelled_with_its_token():
    cleaned: list[bool] = []
    began, token = threading.Event(), CancelToken()

    async def slow() -> None:
        began.set()
        await late(cleaned)

    told = []

    def work() -> None:
        CURRENT.set(token)
        told.append(carried_out(tool(slow), {}))

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    token.cancel()
    thread.join(20)
    assert (told[0][1].code, cleaned) == ("cancelled", [True])


def test_one_that_was_cancelled_before_it_began_never_begins():
    token = CancelToken()
    token.cancel()
    CURRENT.set(token)
    try:
        with pytest.raises(ToolFailure, match="cancelled"):
            awaited(late([]), 5, "late")
    finally:
        CURRENT.set(None)


def test_ctrl_c_goes_through_and_cancels():
    cleaned: list[bool] = []

    async def slow() -> None:
        _thread.interrupt_main()
        await late(cleaned)

    with pytest.raises(KeyboardInterrupt):
        carried_out(tool(slow), {})
    assert comes(cleaned) == [True]


def test_one_that_ignores_it_is_left():
    end = threading.Event()

    async def deaf() -> str:
        while not end.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "ended"

    assert carried_out(tool(deaf, timeout=0.05), {})[1].code == "timeout"
    assert carried_out(tool(where), {}) == ("agentlab tools", None)
    end.set()


def test_a_loop_that_a_tool_blocks_is_left_to_it():
    end = threading.Event()

    async def blocks() -> None:
        end.wait(60)

    assert carried_out(tool(blocks, timeout=0.05), {})[1].code == "timeout"
    assert carried_out(tool(where), {}) == ("agentlab tools", None)
    end.set()


def test_a_task_left_behind_that_exits_ends_neither_loop_nor_call():
    async def die() -> None:
        raise SystemExit(3)

    async def spawn() -> str:
        kept = asyncio.get_running_loop().create_task(die())
        while not kept.done():
            await asyncio.sleep(0)
        kept.exception()
        return "alive"

    assert carried_out(tool(spawn), {}) == ("alive", None)
    assert carried_out(tool(where), {}) == ("agentlab tools", None)


def test_a_client_of_another_loop_fails_with_a_word():
    event, closed = asyncio.Event(), asyncio.new_event_loop()
    other = asyncio.new_event_loop()

    async def bind() -> None:
        waiting = asyncio.ensure_future(event.wait())
        await asyncio.sleep(0)
        waiting.cancel()

    other.run_until_complete(bind())
    closed.close()

    async def bound() -> None:
        await event.wait()

    async def attached() -> None:
        await other.create_future()

    async def is_closed() -> None:
        closed.call_soon(print)

    async def wrapped() -> None:
        try:
            await bound()
        except RuntimeError as e:
            raise OSError("no connection") from e

    for function in (bound, attached, is_closed, wrapped):
        _, error = carried_out(tool(function), {})
        assert error.code == "exception"
        assert "event loop of their own" in error.message
        assert "made inside the tool" in error.message
    other.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_starts_a_loop_of_its_own():
    assert awaited(where(), 5, "where") == "agentlab tools"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if awaited(where(), 5, "where") == "agentlab tools" else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert awaited(where(), 5, "where") == "agentlab tools"


def test_what_is_closed_starts_again():
    LOOP.close()
    assert awaited(where(), 5, "where") == "agentlab tools"
