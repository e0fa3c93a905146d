"""``reference``: the scenario's gold plan, optionally spoilt by noise of known size.

With noise ε each step is spoilt with probability ε, in one of five ways: dropped, swapped with the
next, doubled, sent to a wrong tool, or given a wrong argument. The draws are keyed by (seed,
scenario, plan number), so a replan draws anew and two arms draw alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from agentlab.base.randomness import generator
from agentlab.environments.scenario import ReferencePlan, ReferenceStep, Scenario
from agentlab.errors import PlanError
from agentlab.minds.base import INITIAL, REMAINING, Kit, PlanRequest, checked_plan, tool_step
from agentlab.plans.parsing import fresh_id
from agentlab.plans.references import references, rename
from agentlab.plans.task_plan import TaskPlan, TaskStep

PLANS = 512
"""How many gold plans are kept parsed."""
NOISE = ("drop", "swap", "insert", "wrong_target", "wrong_argument")


class Reference:
    """The gold plan; on a replan, those of its steps that were not completed.

    Parameters
    ----------
    noise : float
        Probability, 0 to 1, that a step is spoilt.
    """

    def __init__(self, noise: float = 0.0) -> None:
        if not 0 <= noise <= 1:
            raise ValueError(f"expected noise between 0 and 1, got {noise!r}")
        self.noise = noise

    def plan(self, request: PlanRequest, kit: Kit) -> TaskPlan:
        """Return the gold plan, or what is left of it.

        Raises
        ------
        PlanError
            The scenario has no reference plan.
        """
        scenario = kit.scenario
        if scenario is None or scenario.reference is None:
            raise PlanError("planner 'reference' needs a scenario with a reference plan")
        gold = scenario.reference
        stays = (
            request.under_way if request.scope != REMAINING else (*request.done, *request.under_way)
        )
        done = _standing(gold, stays)
        steps = [s for s in gold.steps if s.step_id not in done]
        if not self.noise and request.scope == INITIAL and not request.taken:
            return _whole(gold, request, kit)
        if self.noise:
            rng = generator(request.seed, scenario.id, "noise", request.number)
            steps = _spoil(steps, self.noise, rng, scenario, kit)
        return checked_plan(_reply(steps, gold, request, done), request, kit)


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


def _standing(gold: ReferencePlan, stays: Iterable[TaskStep]) -> dict[str, str]:
    """Map gold step ids to the steps that stand for them (same name and tool)."""
    by_name = {(s.name, s.target_resource): s.step_id for s in stays}
    return {
        s.step_id: by_name[s.step_id, s.tool] for s in gold.steps if (s.step_id, s.tool) in by_name
    }


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


def _spoil(
    steps: list[ReferenceStep], noise: float, rng: Random, scenario: Scenario, kit: Kit
) -> list[ReferenceStep]:
    spoilt: list[ReferenceStep] = []
    rest = list(steps)
    while rest:
        step = rest.pop(0)
        if rng.random() >= noise:
            spoilt.append(step)
            continue
        kind = rng.choice(NOISE)
        if kind == "swap" and rest:
            spoilt += [rest.pop(0), step]
        elif kind == "insert":
            spoilt += [step, step.replace(step_id=f"{step.step_id}_again")]
        elif kind == "wrong_target":
            others = sorted(set(kit.tools) - {step.tool})
            spoilt.append(_wrong_target(step, rng.choice(others), kit) if others else step)
        elif kind == "wrong_argument" and step.arguments:
            spoilt.append(_wrong_argument(step, rng))
    return _repaired(spoilt, steps)


def _wrong_target(step: ReferenceStep, tool: str, kit: Kit) -> ReferenceStep:
    """Send a step to another tool, without the arguments that this one does not know.

    Planning would refuse unknown arguments; missing ones fail the step when it runs.
    """
    schema = kit.tools[tool].parameters
    arguments = step.arguments
    if schema.get("additionalProperties") is False:
        arguments = {k: v for k, v in arguments.items() if k in schema.get("properties", {})}
    return step.replace(tool=tool, arguments=arguments)


def _wrong_argument(step: ReferenceStep, rng: Random) -> ReferenceStep:
    key = rng.choice(sorted(step.arguments))
    value = step.arguments[key]
    wrong: Any = f"not-{value}" if isinstance(value, str) and "${" not in value else "wrong"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        wrong = value + 1
    return step.replace(arguments={**step.arguments, key: wrong})


def _repaired(spoilt: list[ReferenceStep], gold: list[ReferenceStep]) -> list[ReferenceStep]:
    """Keep the spoilt plan well-formed: what refers to a dropped or later step loses the value.

    A plan with a dangling reference would be refused before it runs, which is not the error that
    noise stands for.
    """
    dropped = {s.step_id for s in gold} - {s.step_id for s in spoilt}
    kept: list[ReferenceStep] = []
    for step in spoilt:
        earlier = {s.step_id for s in kept}
        later = {s.step_id for s in spoilt} - earlier
        arguments = {
            k: "unknown" if any(r.step in dropped | later for r in references(v)) else v
            for k, v in step.arguments.items()
        }
        dependencies = tuple(d for d in step.dependencies if d in earlier)
        kept.append(step.replace(arguments=arguments, dependencies=dependencies))
    return kept
