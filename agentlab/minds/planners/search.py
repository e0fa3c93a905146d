"""``search``, a model-based planner: A* over the belief, with the functions that execution uses.

It plans with the world's own model: what a call needs and does is known to it exactly, and only
what the agent believes of the world's state may be wrong. So it says what a planner could do that
makes no mistakes of its own; ``noise`` gives it some.

States are worlds, moves are the environment's candidate calls, the cost of a move is its simulated
duration plus a thousandth (so that of two equally quick plans the shorter wins). The environment's
``estimate`` guides it; with an admissible estimate the plan found is the quickest.

Tools that failed are gone round: one whose error said permanent, or that failed ``patience`` times
as a tool (unavailable, timeout, ...), is left out; a call that failed for a reason of its own, and
whose error taught nothing, is left out by itself. When that leaves no plan, only what is permanent
stays left out.

A plan ends with a call that shows the answer, where no result does (see ``answers``).

The plan is the sequence that was found. With several workers it is a partial order: of the
sequence's orderings only those stay that matter in this world (see ``ordering``). What is shortest
is still the sum of all durations: a slower machine that happens to be free is not thought of.

Arguments that must have been returned by an earlier call are lifted into ``${step.path}``
references, so that the plan says where its data comes from and adapts to what is found there.

With noise the plan that was found is spoilt (see ``noise``), and alternatives are kept. A mistake
is about the call that was meant: one that stands spoils this call in every plan of the scenario and
seed, and no other call. A replan searches again from where the world stands. Where the plan it
finds would repeat a call that has failed, the calls that are spoilt up to there are left out and
another way is searched for; where there is none, the plan stays as it was found.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from itertools import count

from agentlab.base.arguments import Flag, Positive, takes
from agentlab.base.documents import Json, digest
from agentlab.base.values import Document
from agentlab.environments.base import Begun, Call, Environment
from agentlab.environments.fault_plan import INFRASTRUCTURE
from agentlab.environments.scenario import Goal
from agentlab.errors import PlanError
from agentlab.minds.base import Kit, PlanRequest, checked_plan
from agentlab.minds.planners.answers import told
from agentlab.minds.planners.drafts import Draft, Made, drafted
from agentlab.minds.planners.noise import Noise
from agentlab.minds.planners.ordering import deordered
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
    """A model-based planner: A* over the belief (``privileged=True``: over the truth).

    Parameters
    ----------
    privileged : bool
        Plan on the true world instead of the belief.
    patience : int
        Failures as a tool after which a tool is left out, at least 1.
    expansions : int
        Cap on expanded worlds, for each search.
    noise : float
        Probability, 0 to 1, that a call of the plan that was found is spoilt, as of ``reference``.
    persistence : float
        Share, 0 to 1, of the mistakes that stand for the call in the scenario and seed. A replan
        makes them again where it comes to the call again, but may go another way.
    unparseable : float
        Probability, 0 to 1, that a reply is cut off and is no plan.

    Raises
    ------
    ValueError
        A number is out of its range.
    """

    @takes(privileged=Flag, patience=Positive, expansions=Positive)
    def __init__(
        self, privileged: bool = False, patience: int = 2, expansions: int = 50_000, *,
        noise: float = 0.0, persistence: float = 1.0, unparseable: float = 0.0,
    ) -> None:  # fmt: skip
        self.privileged, self.patience, self.expansions = privileged, patience, expansions
        self.noise = Noise(noise, persistence, unparseable)

    def plan(self, request: PlanRequest, kit: Kit) -> TaskPlan:
        """Return the quickest plan from where the belief stands.

        Raises
        ------
        PlanError
            There is none, or the lab has no simulated world to search.
        PlanParseError
            The reply was cut off (see ``unparseable``).
        """
        if kit.environment is None:
            raise PlanError("planner 'search' needs a scenario with a simulated world")
        draft = self._found(kit.environment, request, kit)
        reply = draft.reply(request)
        self.noise.cut(reply, list(draft.about.values()), request, kit)
        return checked_plan(reply, request, kit)

    def _found(self, environment: Environment, request: PlanRequest, kit: Kit) -> Draft:
        """Return the first plan found that repeats no failure of a spoilt call, else the first."""
        start = request.belief if request.world is None else request.world
        begun, later = _under_way(environment, start, request)
        first: Draft | None = None
        for allowed in _filters(request.failures, self.patience):
            left_out: set[Made] = set()
            while True:
                able = _without(left_out, allowed)
                try:
                    found = shortest_plan(environment, request.goal, later, able, self.expansions)
                except SearchExhausted:
                    if first is None:
                        raise
                    return first
                if found is None:
                    break
                known = [*request.results.values(), *(result for _, result in begun.values())]
                found = told(environment, request.goal, later, found, known, able)
                path = [*begun.values(), *found]
                before = [set(range(j)) for j in range(len(path))]
                if kit.workers > 1:
                    before = deordered(environment, start, path)
                draft = drafted(path, before, list(begun), request, environment, start)
                draft = draft.spoilt(self.noise, request, kit)
                blamed = draft.blamed(request.failures)
                if not blamed and draft.answered:
                    return draft
                first = first or draft
                if not blamed:
                    break  # the tool that shows the answer may be among those left out
                left_out |= blamed
        if first is None:
            raise PlanError("no plan reaches the goal from what is known")
        return first


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


def _without(left_out: Collection[Made], allowed: Callable[[Call], bool]) -> Callable[[Call], bool]:
    if not left_out:
        return allowed
    return lambda call: allowed(call) and (call.tool, digest(call.arguments)) not in left_out


def _filter(banned: set[str], failures: Collection[Failure]) -> Callable[[Call], bool]:
    calls = {(f.tool, f.arguments) for f in failures}

    def allowed(call: Call) -> bool:
        if call.tool in banned:
            return False
        return not calls or (call.tool, digest(call.arguments)) not in calls

    return allowed
