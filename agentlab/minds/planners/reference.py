"""``reference``: the scenario's gold plan, spoilt by noise of known size where wanted (``noise``).

It knows one plan. So a mistake that stands for the scenario and seed is made again by every replan
that comes to the same step; ``search(noise=ε)`` has other ways to take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from agentlab.base.documents import Json, digest
from agentlab.environments.scenario import ReferencePlan, ReferenceStep
from agentlab.errors import PlanError
from agentlab.minds.base import INITIAL, REMAINING, Kit, PlanRequest, checked_plan, tool_step
from agentlab.minds.planners.noise import Noise, spoilt
from agentlab.plans.parsing import fresh_id
from agentlab.plans.references import references, rename
from agentlab.plans.task_plan import TaskPlan, TaskStep

PLANS = 512
"""How many gold plans are kept parsed."""


class Reference:
    """The gold plan; on a replan, those of its steps that were not completed.

    Parameters
    ----------
    noise : float
        Probability, 0 to 1, that a step is spoilt.
    persistence : float
        Share, 0 to 1, of the mistakes that stand for the scenario and seed; 0: each plan draws all
        of them anew, so that replanning mends them for nothing.
    unparseable : float
        Probability, 0 to 1, that a reply is cut off and is no plan.

    Raises
    ------
    ConfigError
        One is no number from 0 to 1.
    """

    def __init__(
        self, noise: float = 0.0, *, persistence: float = 1.0, unparseable: float = 0.0
    ) -> None:
        self.noise = Noise(noise, persistence, unparseable)

    def plan(self, request: PlanRequest, kit: Kit) -> TaskPlan:
        """Return the gold plan, or what is left of it.

        Raises
        ------
        PlanError
            The scenario has no reference plan.
        PlanParseError
            The reply was cut off (see ``unparseable``).
        """
        scenario = kit.scenario
        if scenario is None or scenario.reference is None:
            raise PlanError("planner 'reference' needs a scenario with a reference plan")
        gold = scenario.reference
        stays = (
            request.under_way if request.scope != REMAINING else (*request.done, *request.under_way)
        )
        if self.noise.silent and request.scope == INITIAL and not request.taken:
            return _whole(gold, request, kit)
        about = _about(gold)
        mistakes = self.noise.mistakes(about, request, kit)
        lasting = {i: m for i, m in mistakes.items() if m.stands}
        whole = spoilt(gold.steps, lasting, kit)
        done = _standing((*gold.steps, *whole), stays)
        left = [i for i in about if i not in done]
        twice = {s.step_id for s in whole} - about.keys()  # once more, where that was still to come
        again = (twice - done.keys()) & _due(request)
        steps = spoilt(gold.steps, mistakes, kit, [*left, *again])
        reply = _reply(steps, gold, request, done)
        self.noise.cut(reply, [about[i] for i in left], request, kit)
        return checked_plan(reply, request, kit)


_PLANS: dict[tuple[object, ...], tuple[TaskPlan, tuple[object, ...]]] = {}
"""Gold plans that were parsed, by the identity of what they were made of, which is kept beside."""


def _whole(gold: ReferencePlan, request: PlanRequest, kit: Kit) -> TaskPlan:
    """Return the gold plan from the start: a value, the same for every run of a lab."""
    parts = (gold, kit.tools)
    key = (*map(id, parts), request.user_input, request.number, *sorted(request.results))
    known = _PLANS.get(key)
    if known is None:
        known = checked_plan(_reply(list(gold.steps), gold, request, {}), request, kit), parts
        if len(_PLANS) >= PLANS:
            _PLANS.clear()
        _PLANS[key] = known
    return known[0]


def _about(gold: ReferencePlan) -> dict[str, Json]:
    """Return what each step does; of steps that do the same, also which of them it is."""
    times: Counter[str] = Counter()
    about: dict[str, Json] = {}
    for step in gold.steps:
        does: list[Json] = [step.tool, step.arguments]
        number = times[digest(does)]
        times[digest(does)] += 1
        about[step.step_id] = [*does, number] if number else does
    return about


def _standing(steps: Iterable[ReferenceStep], stays: Iterable[TaskStep]) -> dict[str, str]:
    """Map ids of steps to those that stand for them (same name and tool).

    Who would send a step to the same wrong tool again takes it for done.
    """
    by_name = {(s.name, s.target_resource): s.step_id for s in stays}
    return {s.step_id: by_name[s.step_id, s.tool] for s in steps if (s.step_id, s.tool) in by_name}


def _due(request: PlanRequest) -> set[str]:
    """Return the names of the steps that the earlier plan had still to do."""
    if request.scope != REMAINING or request.earlier is None:
        return set()
    return {s.name for s in request.earlier.remaining}


def _reply(
    steps: list[ReferenceStep], gold: ReferencePlan, request: PlanRequest, done: dict[str, str]
) -> dict[str, Any]:
    taken = set(request.taken)
    ids = dict(done)
    for step in steps:
        ids[step.step_id] = fresh_id(step.step_id, taken)
        taken.add(ids[step.step_id])

    def name(step: str) -> str:
        return ids.get(step, step)

    running = {s.step_id for s in request.under_way}
    here = {s.step_id for s in steps} | {d for d, i in done.items() if i in running}
    replies = []
    for step in steps:
        dependencies = tuple(name(d) for d in step.dependencies if d in here)
        item = tool_step(ids[step.step_id], step.tool, rename(step.arguments, name), dependencies)
        replies.append({**item, "name": step.step_id})
    answer = gold.answer
    if answer is not None and any(r.step not in ids for r in references(answer)):
        answer = None  # noise dropped the step that the answer comes from
    return {
        "userIntent": request.user_input,
        "summary": f"reference plan, {len(replies)} steps",
        "steps": replies,
        "answer": None if answer is None else rename(answer, name),
    }
