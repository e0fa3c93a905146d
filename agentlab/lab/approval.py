"""Approval: a call that a person must let through.

It is asked for in one place, where a step is submitted, so every workflow asks alike. The order is:
resolve the parameters, ask, count the attempt, draw the fault. A step that waits is held: it stays
pending, has no attempt and no fault, takes no worker and no resource, and is not ready.

What was said is a ``Review`` of this step, this attempt and these arguments. ``begin_call`` lets
nothing else through, so no way leads round it: other arguments and another attempt ask anew.

A lab may answer by itself, ``Lab(review=...)``, in the same visit. Where nobody can be asked,
inside a sub-agent, a call that needs approval is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentlab.base.documents import Json, digest
from agentlab.errors import AgentLabError, ReplayError, RunError, UnknownNameError, seen
from agentlab.lab.bench import Bench, StepOutcome
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep
from agentlab.state.records import Failure
from agentlab.state.state import EXECUTE_NEXT_TASK, WAIT_FOR_REVIEW, State
from agentlab.state.tool_loop import Answer, PendingApproval, Review
from agentlab.tools.tool import Tool
from agentlab.trace.journal import Address

REJECTED = "rejected"
"""Error code of a call that a person did not let through."""


def admitted(
    state: State, bench: Bench, step: TaskStep, arguments: dict[str, Any], attempt: int
) -> tuple[State, dict[str, Any] | None, StepOutcome | None]:
    """Ask whether a step may start.

    Parameters
    ----------
    arguments : dict
        Resolved.
    attempt : int
        The one that would start.

    Returns
    -------
    tuple of State, arguments or None, StepOutcome or None
        The arguments to start with; or how the step ends without having started; or neither of
        them: it is held until somebody answers.
    """
    asked = digest(arguments)
    review = state.loop.review_of(step.step_id, attempt)
    if review is None or review.asked != asked:
        pending = _pending(state, bench, step, arguments, attempt, asked)
        if bench.reviewer is None:
            if not bench.ancestors:
                return _held(state, pending), None, None
            text = "needs a person's approval, and none can be asked inside a sub-agent"
            return state, None, StepOutcome(error=f"{step.label} {text}: give Lab(review=...)")
        try:
            review = answer_of_lab(state, bench, pending)
        except ReplayError:
            raise
        except AgentLabError as e:
            return state, None, StepOutcome(error=f"the review of {step.label} failed: {e}")
        state = with_review(state, bench, pending, review)
    if review.answer is Answer.REJECT:
        why = f": {review.reason}" if review.reason else ""
        return state, None, StepOutcome(error=f"{REJECTED}: {review.by} did not approve{why}")
    return state, dict(review.arguments), None


def lets_through(state: State, address: Address, arguments: Json) -> bool:
    """Say whether a review lets a call at this address start with these arguments.

    It does so once: for the step that was just submitted, and not when it is under way or over.
    """
    step_id, attempt = address.step_id, address.attempt
    review = state.loop.review_of(step_id, attempt)
    if review is None or review.allows != digest(arguments) or state.task_plan is None:
        return False
    step = next((s for s in state.task_plan.steps if s.step_id == step_id), None)
    starts = step is not None and step.status is StepStatus.RUNNING
    starts = starts and state.attempts.get(step_id, 0) == attempt
    return starts and all(u.step_id != step_id for u in state.under_way)


def reviewed(
    pending: PendingApproval, tools: Mapping[str, Tool], answer: str,
    arguments: Mapping[str, Any] | None = None, reason: str = "", by: str = "",
) -> Review:  # fmt: skip
    """Return what was said of a call that waits.

    Parameters
    ----------
    answer : {"approve", "edit", "reject"}
    arguments : mapping, optional
        With answer "edit": those to call with.

    Raises
    ------
    UnknownNameError
        There is no such answer.
    RunError
        Arguments without an edit, an edit without arguments, or arguments that the tool's schema
        refuses.
    """
    known = [a.value for a in Answer]
    if answer not in known:
        raise UnknownNameError("answer", str(answer), known)
    if (arguments is not None) != (answer == Answer.EDIT):
        raise RunError(f"arguments come with the answer 'edit' and no other, got {seen(answer)}")
    if not isinstance(arguments, Mapping | None):
        raise RunError(f"expected the arguments by name, a mapping, got {seen(arguments)}")
    given = pending.arguments if arguments is None else dict(arguments)
    tool = tools.get(pending.tool)
    problem = None if tool is None or answer == Answer.REJECT else tool.check(given)
    if problem is not None:
        raise RunError(f"{problem}; {seen(pending.call_id)} still waits")
    return Review(
        call_id=pending.call_id, attempt=pending.attempt, asked=pending.asked,
        answer=Answer(answer), arguments=given, reason=reason, by=by,
        allows="" if answer == Answer.REJECT else digest(given),
    )  # fmt: skip


def with_review(state: State, bench: Bench, pending: PendingApproval, review: Review) -> State:
    """Return the state in which a call was reviewed, and record who said what of it."""
    bench.recorder.mark(
        "decision", "review", visit=state.visit, step_id=pending.call_id, attempt=pending.attempt,
        now=state.now, input={"tool": pending.tool, "arguments": pending.arguments},
        output={
            "answer": review.answer.value, "arguments": review.arguments, "by": review.by,
            "reason": review.reason,
        },
    )  # fmt: skip
    rest = tuple(p for p in state.held if p.call_id != pending.call_id)
    if review.answer is Answer.REJECT:
        state = _counted(state, pending)
    reviews = state.loop.reviews.set(f"{pending.call_id}#{pending.attempt}", review)
    return going_on(state.replace(loop=state.loop.replace(pending_approvals=rest, reviews=reviews)))


def going_on(state: State) -> State:
    """Return the state in which the node that waited looks again whether it has to."""
    waited = state.next_action == WAIT_FOR_REVIEW
    return state.replace(next_action=EXECUTE_NEXT_TASK) if waited else state


def still_held(state: State, before: TaskPlan | None) -> State:
    """Drop the questions about steps that are gone, or that the plan now says otherwise."""
    if not state.held or state.task_plan is before:
        return state
    now = {s.step_id: s for s in state.task_plan.steps} if state.task_plan is not None else {}
    then = {s.step_id: s for s in before.steps} if before is not None else {}
    kept = tuple(p for p in state.held if _same(now.get(p.call_id), then.get(p.call_id)))
    return going_on(state.replace(loop=state.loop.replace(pending_approvals=kept)))


def _same(now: TaskStep | None, then: TaskStep | None) -> bool:
    if now is None or then is None or now.status is not StepStatus.PENDING:
        return False
    fields = ("action_type", "target_resource", "parameters")
    return all(getattr(now, f) == getattr(then, f) for f in fields)


def _pending(
    state: State, bench: Bench, step: TaskStep, arguments: dict[str, Any], attempt: int, asked: str
) -> PendingApproval:
    tool = bench.tools.get(step.target_resource)
    before = [r for r in state.task_results if r.step_id == step.step_id and r.attempt]
    reason = ""
    if before:
        reason = f"attempt {before[-1].attempt} ended with: {before[-1].error or 'no error'}"
        if before[-1].error is None:
            reason += "; it took effect"
        elif state.outcome_unknown(step.step_id):
            reason += "; it may have taken effect"
    return PendingApproval(
        call_id=step.step_id, tool=step.target_resource, arguments=arguments, attempt=attempt,
        asked=asked, effect="" if tool is None else tool.effect.value, reason=reason,
        since=state.now,
    )  # fmt: skip


def _held(state: State, pending: PendingApproval) -> State:
    key = (pending.call_id, pending.attempt, pending.asked)
    if any((p.call_id, p.attempt, p.asked) == key for p in state.held):
        return state
    rest = tuple(p for p in state.held if p.call_id != pending.call_id)
    return state.replace(loop=state.loop.replace(pending_approvals=(*rest, pending)))


def answer_of_lab(state: State, bench: Bench, pending: PendingApproval) -> Review:
    """Return the lab's own answer; a function's goes through the journal, as contacts do."""
    reviewer = bench.reviewer
    if not callable(reviewer):
        return reviewed(pending, bench.tools, str(reviewer), by="lab")
    address = Address(state.visit, f"(review {pending.call_id}#{pending.attempt})")
    known = bench.journal.find(address, "review", pending.asked)
    if known is not None and known.finished and known.request == pending.asked:
        told = known.result
    else:
        told = read_answer(reviewer(pending))
        bench.journal.finish(address, "review", pending.asked, told, None)
    return reviewed(
        pending, bench.tools, told["answer"], told.get("arguments"), told.get("reason", ""),
        told.get("by", "lab"),
    )  # fmt: skip


def read_answer(said: Any) -> dict[str, Any]:
    """Read an answer: the word, or a mapping with it and perhaps more.

    Raises
    ------
    RunError
        It is neither.
    """
    told = {"answer": said} if isinstance(said, str) else said
    fields = {"answer", "arguments", "reason", "by"}
    if not isinstance(told, Mapping) or "answer" not in told or not fields.issuperset(told):
        raise RunError(
            "expected 'approve', 'reject', or a dict with answer, and perhaps arguments, reason "
            f"and by; got {seen(said)}"
        )
    return dict(told)


def _counted(state: State, pending: PendingApproval) -> State:
    """Count a rejection among the failures: planners go round it, and nobody tries it again."""
    failure = Failure(
        tool=pending.tool, arguments=pending.asked, code=REJECTED, permanent=True
    )  # fmt: skip
    return state.replace(failures=state.failures.append(failure))
