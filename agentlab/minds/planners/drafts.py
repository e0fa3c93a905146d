"""Drafts: calls that were found become the steps of a plan, spoilt where noise says so.

A call that was found is ground: its arguments are values. In a step, what must have been returned
by an earlier call is lifted into a ``${step.path}`` reference.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentlab.base.documents import Json, digest
from agentlab.base.values import Document
from agentlab.environments.base import Call, Environment
from agentlab.environments.fault_plan import INFRASTRUCTURE
from agentlab.environments.scenario import ReferenceStep
from agentlab.minds.base import Kit, PlanRequest, tool_step
from agentlab.minds.planners.answers import right_answer, shows
from agentlab.minds.planners.noise import Mistake, Noise, spoilt
from agentlab.minds.planners.ordering import direct
from agentlab.plans.parsing import fresh_id
from agentlab.plans.references import STEP_ID, Reference
from agentlab.state.records import Failure

Made = tuple[str, str]
"""A call as failures name it: tool, digest of arguments."""


@dataclass(frozen=True)
class Draft:
    """Steps of a plan, with the calls that they are meant to be.

    Parameters
    ----------
    calls : mapping of str to Call
        By step id, in order.
    meant : sequence of ReferenceStep
        What the calls would be as steps.
    steps : sequence of ReferenceStep
        What is planned: ``meant``, or what noise made of it.
    answer : Reference or None
        Where the answer comes from.
    mistakes : mapping of str to Mistake
        By step id.
    answered : bool
        Whether the answer is shown somewhere, as far as it is known, or none is asked for.
    """

    calls: Mapping[str, Call]
    meant: Sequence[ReferenceStep]
    steps: Sequence[ReferenceStep]
    answer: Reference | None = None
    mistakes: Mapping[str, Mistake] = field(default_factory=dict)
    answered: bool = True

    @property
    def about(self) -> dict[str, Json]:
        """What each step is meant to do."""
        return {i: [c.tool, c.arguments] for i, c in self.calls.items()}

    def spoilt(self, noise: Noise, request: PlanRequest, kit: Kit) -> Draft:
        """Return the draft with mistakes in it.

        What depended on a step that is gone depends on what that one needed: the order is what was
        proved.
        """
        mistakes = noise.mistakes(self.about, request, kit)
        if not mistakes:
            return self
        steps = _reduced(spoilt(_closed(self.meant), mistakes, kit))
        return replace(self, steps=steps, mistakes=mistakes)

    def blamed(self, failures: Collection[Failure]) -> set[Made]:
        """Return the spoilt calls up to the first that would be made as it has failed before.

        Faults of tools say nothing about a mistake.
        """
        failed = {(f.tool, f.arguments) for f in failures if f.code not in INFRASTRUCTURE}
        if not failed or not self.mistakes:
            return set()
        ids, meant = list(self.calls), {s.step_id: s for s in self.meant}
        for step in self.steps:
            step_id = step.step_id
            if step_id not in meant:  # what is planned twice has come before
                continue
            call, lifted = self.calls[step_id], meant[step_id].arguments
            arguments = {
                k: call.arguments[k] if k in lifted and lifted[k] == v else v
                for k, v in step.arguments.items()
            }
            if (step.tool, digest(arguments)) in failed:
                found = [i for i in ids[: ids.index(step_id) + 1] if i in self.mistakes]
                return {(self.calls[i].tool, digest(self.calls[i].arguments)) for i in found}
        return set()

    def reply(self, request: PlanRequest) -> dict[str, Any]:
        """Return the plan in a planner's reply form."""
        steps = [tool_step(s.step_id, s.tool, s.arguments, s.dependencies) for s in self.steps]
        source = self.answer
        lost = (
            source is not None
            and source.step in self.calls
            and all(s.step_id != source.step for s in self.steps)
        )
        return {
            "userIntent": request.user_input,
            "summary": f"{len(steps)} steps found by search",
            "steps": steps,
            "answer": None if source is None or lost else str(source),
        }


def drafted(
    path: Sequence[tuple[Call, Json]], before: Sequence[set[int]], begun: Sequence[str],
    request: PlanRequest, environment: Environment, start: Document,
) -> Draft:  # fmt: skip
    """Return the draft of a plan: the first calls of the path are those of steps under way.

    ``start`` is the world, or the belief, that the path begins in.
    """
    taken = set(request.taken)
    earlier: list[tuple[str, Json]] = list(request.results.items())
    made = [(step_id, result) for step_id, (_, result) in zip(begun, path, strict=False)]
    calls: dict[str, Call] = {}
    steps: list[ReferenceStep] = []
    needed = list(zip(path, before, direct(before), strict=True))
    for (call, result), before_it, last in needed[len(begun) :]:
        step_id = fresh_id(call.tool, taken)
        taken.add(step_id)
        seen = environment.registry[call.tool].seen
        known = earlier + [made[i] for i in sorted(before_it)]
        arguments = {k: _lifted(v, known) if k in seen else v for k, v in call.arguments.items()}
        after = [made[i][0] for i in last]
        steps.append(ReferenceStep.calling(step_id, call.tool, arguments, after))
        calls[step_id] = call
        made.append((step_id, result))
    right, wanted = right_answer(environment, request.goal, start, list(path)), request.goal.answer
    shown = [i for i, result in earlier + made if wanted and shows(wanted, result, right)]
    answer = Reference(shown[-1], wanted.result) if wanted and shown else None
    return Draft(
        calls, steps, steps, answer or _answer(steps, earlier + made, request),
        answered=wanted is None or right is None or bool(shown),
    )  # fmt: skip


def _closed(steps: Sequence[ReferenceStep]) -> list[ReferenceStep]:
    """Return the steps with all that must be over before as dependencies."""
    before: dict[str, dict[str, None]] = {}
    for step in steps:
        direct_ones = dict.fromkeys(step.dependencies)
        before[step.step_id] = {i: None for d in direct_ones for i in (*before.get(d, ()), d)}
    return [s.replace(dependencies=tuple(before[s.step_id])) for s in steps]


def _reduced(steps: Sequence[ReferenceStep]) -> list[ReferenceStep]:
    """Return the steps without the dependencies that follow from others."""
    before = {s.step_id: set(s.dependencies) for s in steps}
    return [
        s.replace(
            dependencies=tuple(
                d for d in s.dependencies if not any(d in before.get(o, ()) for o in s.dependencies)
            )
        )
        for s in steps
    ]


def _answer(
    steps: Sequence[ReferenceStep], results: Sequence[tuple[str, Json]], request: PlanRequest
) -> Reference | None:
    """Return where the answer may come from, where nothing is known to show it."""
    wanted = request.goal.answer
    if wanted is None:
        return None
    makers = {s.step_id for s in steps if s.tool in wanted.tools} | {
        s.step_id for s in (*request.done, *request.under_way) if s.target_resource in wanted.tools
    }
    sources = [step_id for step_id, _ in results if step_id in makers]
    return Reference(sources[-1], wanted.result) if sources else None


def _lifted(value: Json, known: list[tuple[str, Json]]) -> Json:
    """Return a reference to the latest result that holds ``value``, or the value itself."""
    for step_id, result in reversed(known):
        path = locate(result, value)
        if path is not None:
            return str(Reference(step_id, path))
    return value


def locate(document: Json, value: Json) -> str | None:
    """Return a JMESPath that picks ``value`` out of ``document`` by what it is, or None.

    Examples
    --------
    >>> locate({"flights": [{"id": "F1"}, {"id": "F2"}]}, "F2")
    "flights[?id=='F2'] | [0].id"
    """
    if isinstance(document, dict):
        for key, item in document.items():
            if type(item) is type(value) and item == value:
                return _key(key)
            inner = locate(item, value)
            if inner is not None:
                return f"{_key(key)}{'' if inner.startswith('[') else '.'}{inner}"
    elif isinstance(document, list):
        for item in document:
            if isinstance(item, dict):
                for key, leaf in item.items():
                    if isinstance(leaf, str) and leaf == value:
                        return f"[?{_key(key)}=={_literal(leaf)}] | [0].{_key(key)}"
            elif isinstance(item, str) and item == value:
                return f"[?@=={_literal(item)}] | [0]"
    return None


def _key(key: str) -> str:
    return key if STEP_ID.fullmatch(key) and "-" not in key else json.dumps(key)


def _literal(text: str) -> str:
    if "'" not in text and "\\" not in text:
        return f"'{text}'"
    return "`" + json.dumps(text, ensure_ascii=False).replace("`", "\\`") + "`"
