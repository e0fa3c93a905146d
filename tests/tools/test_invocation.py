"""Calls of functions: whatever escapes one is an error of its step, wherever it is called."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

import agentlab as al
from agentlab.errors import TOLD, ToolFailure
from agentlab.minds.planners.fixed import Fixed
from agentlab.tools.invocation import carried_out
from agentlab.tools.tool import tool


class Panic(BaseException):
    """As a native extension's panic is."""


class Mute(Exception):
    def __str__(self) -> str:
        raise Panic("no text")

    __repr__ = __str__


RAISED = [
    (Panic("out of bounds"), "exception", "Panic: out of bounds"),
    (SystemExit(3), "exception", "SystemExit: 3"),
    (GeneratorExit(), "exception", "GeneratorExit: "),
    (asyncio.CancelledError(), "exception", "CancelledError: "),
    (MemoryError(), "exception", "MemoryError: "),
    (RecursionError("deep"), "exception", "RecursionError: deep"),
    (BaseExceptionGroup("two", [Panic(), KeyboardInterrupt()]), "exception",
     "BaseExceptionGroup: two (2 sub-exceptions)"),
    (Mute(), "exception", "Mute: (its text raised Panic)"),
    (ValueError("half \ud800"), "exception", r"ValueError: half \ud800"),
    (ValueError("x" * 10**6), "exception", "ValueError: xxx"),
    (ToolFailure("gone", code="sold_out"), "sold_out", "gone"),
    (ToolFailure(Mute(), code=5, permanent=None), "5", "(its text raised Panic)"),  # type: ignore[arg-type]
    (ToolFailure("\ud800" * 10**5, code="c" * 10**5), "ccc", r"\ud800"),
]  # fmt: skip


def both(error: BaseException) -> list[Any]:
    def fail() -> None:
        raise error

    async def fail_later() -> None:
        raise error

    return [tool(fail, name="fail"), tool(fail_later, name="fail")]


@pytest.mark.parametrize(("error", "code", "text"), RAISED, ids=lambda x: str(type(x).__name__))
def test_whatever_escapes_is_an_error_that_can_be_kept(error, code, text):
    for found in both(error):
        result, told = carried_out(found, {})
        assert result is None
        assert told.code.startswith(code)
        assert told.message.startswith(text)
        assert len(str(told)) < TOLD + 400
        str(told).encode("utf-8")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "error", [RAISED[0][0], RAISED[1][0], RAISED[6][0], RAISED[7][0], RAISED[8][0], RAISED[11][0]],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_it_is_recorded_stored_and_replayed(tmp_path, error, workers):
    def fine() -> str:
        return "fine"

    steps = [
        {"name": n, "actionType": "call_tool", "targetResource": n, "parameters": {}}
        for n in ("fail", "fine")
    ]
    for i, found in enumerate(both(error)):
        lab = al.Lab(tools=[found, fine], planner=Fixed(steps), strategy="never", workers=workers)
        run = al.autonomous.start(lab, "Go.", store=tmp_path / str(i))
        run.finish()
        calls = {c.tool: c for c in run.state.calls}
        assert calls["fail"].error.code in ("exception", "5")
        assert (calls["fine"].result, calls["fail"].committed) == ("fine", False)
        assert not run.abandoned
        loaded = al.Run.resume(tmp_path / str(i), lab)
        assert loaded.state.digest == run.state.digest
        assert run.replay().identical
        assert loaded.replay().identical


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("effect", ["read", "idempotent", "write", "irreversible"])
@pytest.mark.parametrize("strategy", ["retry(3)", "retry_then_replan(2)", "on_error"])
def test_a_result_that_is_no_json_took_effect_and_is_never_retried(strategy, effect, workers):
    made = []

    def pay(n: int) -> dict[str, Any]:
        made.append(n)
        return {"rows": [{"ok": 1}, {"score": math.nan}]}

    steps = [
        {"name": f"s{n}", "actionType": "call_tool", "targetResource": "pay",
         "parameters": {"n": n}}
        for n in range(4)
    ]  # fmt: skip
    lab = al.Lab(
        tools=[tool(effect=effect)(pay)], planner=Fixed(steps), strategy=strategy, workers=workers
    )
    run = al.autonomous.start(lab, "Pay.")
    run.finish()
    assert len(made) == len(set(made)) > 0
    for call in run.state.calls:
        assert (call.error.code, call.error.permanent, call.committed) == ("not_json", True, True)
        assert "rows[1].score is nan" in call.error.message
    assert run.replay().identical


def test_arguments_and_results_are_each_calls_own():
    kept = {"list": [1]}

    def spoil(box: list[int], other: Any) -> dict[str, Any]:
        box.append(2)
        other.append(2)
        return kept

    sent = {"box": [1], "other": [1]}
    result, _ = carried_out(tool(spoil), sent)
    kept["list"].append(2)
    assert (result, sent) == ({"list": [1]}, {"box": [1], "other": [1]})
