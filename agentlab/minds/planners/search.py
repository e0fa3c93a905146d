"""``search``: A* over the belief, with the very functions that execution uses.

States are worlds, moves are the environment's candidate calls, the cost of a move is its simulated
duration plus a thousandth (so that of two equally quick plans the shorter wins). The environment's
``estimate`` guides it; with an admissible estimate the plan found is the quickest.

Tools that failed are gone round: one whose error said permanent, or that failed ``patience`` times
as a tool (unavailable, timeout, ...), is left out; a call that failed for a reason of its own, and
whose error taught nothing, is left out by itself. When that leaves no plan, only what is permanent
stays left out.

The plan is the sequence that was found. With several workers it is a partial order: of the
sequence's orderings only those stay that matter in this world (see ``ordering``). What is shortest
is still the sum of all durations: a slower machine that happens to be free is not thought of.

Arguments that must have been returned by an earlier call are lifted into ``${step.path}``
references, so that the plan says where its data comes from and adapts to what is found there.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from itertools import count
from typing import Any

from agentlab.base.documents import Json, digest
from agentlab.base.values import Document
from agentlab.environments.base import Begun, Call, Environment
from agentlab.environments.fault_plan import INFRASTRUCTURE
from agentlab.environments.scenario import Goal
from agentlab.errors import PlanError
from agentlab.minds.base import Kit, PlanRequest, checked_plan, tool_step
from agentlab.minds.planners.ordering import deordered, direct
from agentlab.plans.parsing import fresh_id
from agentlab.plans.references import STEP_ID, Reference
from agentlab.plans.task_plan import TaskPlan
from agentlab.state.records import Failure

STEP_COST = 1e-3
"""Added to each call's seconds, so that shorter plans win ties."""


class SearchExhausted(PlanError):
    """The search reached its cap before it found a plan or ruled one out."""


def shortest_plan(
    environment: Environment,
    goal: Goal,
    world: Document,
    allowed: Callable[[Call], bool] = lambda call: True,
    expansions: int = 50_000,
) -> list[tuple[Call, Json]] | None:
    """Find the quickest sequence of calls that reaches the goal.

    Parameters
    ----------
    environment : Environment
    goal : Goal
    world : dict
        Where to start: a belief or a world.
    allowed : callable
        Says whether a call may be used.
    expansions : int
        Cap on the worlds whose successors are made.

    Returns
    -------
    list of (Call, result), or None
        None: there is no plan within the allowed calls.

    Raises
    ------
    SearchExhausted
        The cap was reached.

    References
    ----------
    Hart, Nilsson & Raphael (1968), A formal basis for the heuristic determination of minimum cost
    paths.
    """
    ticket = count()
    start = environment.key(world)
    best: dict[Hashable, float] = {start: 0.0}
    came: dict[Hashable, tuple[Hashable, Call, Json]] = {}
    queue = [(environment.estimate(goal, world), 0.0, next(ticket), start, world)]
    while queue:
        _, spent, _, key, here = heapq.heappop(queue)
        if spent > best[key]:
            continue
        if not environment.unmet(goal, here):
            return _path(came, key)
        if expansions <= 0:
            raise SearchExhausted("the search reached its cap of expansions")
        expansions -= 1
        for call in environment.candidates(here, goal):
            if not allowed(call):
                continue
            begun = environment.begin(here, call)
            if not isinstance(begun, Begun):
                continue
            outcome = environment.apply(here, call)
            if outcome.error is not None:
                continue
            after = environment.key(outcome.world)
            cost = spent + begun.seconds + STEP_COST
            if cost < best.get(after, float("inf")) - 1e-9:
                best[after] = cost
                came[after] = (key, call, outcome.result)
                bound = cost + environment.estimate(goal, outcome.world)
                heapq.heappush(queue, (bound, cost, next(ticket), after, outcome.world))
    return None


def _path(
    came: Mapping[Hashable, tuple[Hashable, Call, Json]], key: Hashable
) -> list[tuple[Call, Json]]:
    path: list[tuple[Call, Json]] = []
    while key in came:
        key, call, result = came[key]
        path.append((call, result))
    return path[::-1]


class Search:
    """A* over the belief (``privileged=True``: over the truth).

    Parameters
    ----------
    privileged : bool
        Plan on the true world instead of the belief.
    patience : int
        Failures as a tool after which a tool is left out, at least 1.
    expansions : int
        Cap on expanded worlds.
    """

    def __init__(
        self, privileged: bool = False, patience: int = 2, expansions: int = 50_000
    ) -> None:
        if patience < 1 or expansions < 1:
            raise ValueError("expected patience and expansions of at least 1")
        self.privileged, self.patience, self.expansions = privileged, patience, expansions

    def plan(self, request: PlanRequest, kit: Kit) -> TaskPlan:
        """Return the quickest plan from where the belief stands.

        Raises
        ------
        PlanError
            There is none, or the lab has no simulated world to search.
        """
        environment = kit.environment
        if environment is None:
            raise PlanError("planner 'search' needs a scenario with a simulated world")
        start = request.belief if request.world is None else request.world
        begun, later = _under_way(environment, start, request)
        for allowed in _filters(request.failures, self.patience):
            found = shortest_plan(environment, request.goal, later, allowed, self.expansions)
            if found is not None:
                path = [*begun.values(), *found]
                before = [set(range(j)) for j in range(len(path))]
                if kit.workers > 1:
                    before = deordered(environment, start, path)
                reply = _reply(path, before, list(begun), request, environment)
                return checked_plan(reply, request, kit)
        raise PlanError("no plan reaches the goal from what is known")


def _under_way(
    environment: Environment, world: Document, request: PlanRequest
) -> tuple[dict[str, tuple[Call, Json]], Document]:
    """Return what the calls under way are expected to return, and the world after them."""
    begun: dict[str, tuple[Call, Json]] = {}
    for step in request.under_way:
        call = Call(step.target_resource, step.parameters)
        if call.tool not in environment.registry:
            continue
        outcome = environment.apply(world, call)
        if outcome.error is None:
            begun[step.step_id], world = (call, outcome.result), outcome.world
    return begun, world


def _filters(failures: Collection[Failure], patience: int) -> list[Callable[[Call], bool]]:
    """Return what may be called: first without all that failed, then without what is permanent."""
    if not failures:
        return [lambda call: True]
    times: Counter[str] = Counter()
    for f in failures:
        times[f.tool] += f.count if f.code in INFRASTRUCTURE else 0
    banned = {tool for tool, n in times.items() if n >= patience}
    broken = {f.tool for f in failures if f.code in INFRASTRUCTURE and f.permanent}
    own = [f for f in failures if f.code not in INFRASTRUCTURE and not f.explained]
    return [_filter(banned | broken, own), _filter(broken, [f for f in own if f.permanent])]


def _filter(banned: set[str], failures: Collection[Failure]) -> Callable[[Call], bool]:
    calls = {(f.tool, f.arguments) for f in failures}

    def allowed(call: Call) -> bool:
        if call.tool in banned:
            return False
        return not calls or (call.tool, digest(call.arguments)) not in calls

    return allowed


def _reply(
    path: list[tuple[Call, Json]], before: list[set[int]], begun: list[str], request: PlanRequest,
    environment: Environment,
) -> dict[str, Any]:  # fmt: skip
    """Return the plan in a planner's reply form; the first calls are those of steps under way."""
    taken = set(request.taken)
    earlier: list[tuple[str, Json]] = list(request.results.items())
    made = [(step_id, result) for step_id, (_, result) in zip(begun, path, strict=False)]
    steps: list[dict[str, Any]] = []
    answer = None
    needed = list(zip(path, before, direct(before), strict=True))
    for (call, result), before_it, last in needed[len(begun) :]:
        step_id = fresh_id(call.tool, taken)
        taken.add(step_id)
        seen = environment.registry[call.tool].seen
        known = earlier + [made[i] for i in sorted(before_it)]
        arguments = {k: _lifted(v, known) if k in seen else v for k, v in call.arguments.items()}
        steps.append(tool_step(step_id, call.tool, arguments, tuple(made[i][0] for i in last)))
        made.append((step_id, result))
    wanted = request.goal.answer
    if wanted is not None:
        makers = {s["stepId"] for s in steps if s["targetResource"] in wanted.tools} | {
            s.step_id
            for s in (*request.done, *request.under_way)
            if s.target_resource in wanted.tools
        }
        sources = [step_id for step_id, _ in earlier + made if step_id in makers]
        answer = str(Reference(sources[-1], wanted.result)) if sources else None
    return {
        "userIntent": request.user_input,
        "summary": f"{len(steps)} steps found by search",
        "steps": steps,
        "answer": answer,
    }


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
