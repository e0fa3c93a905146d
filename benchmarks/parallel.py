"""Parallel plans: makespan against the critical path and against the optimum, wall time of threads.

The plans are drawn: five to seven steps of 1 to 9 s, up to two dependencies each. Without shared
resources there is a worker for every step. With them, steps need a saw, an oven, one of two lathes,
or two of these, and there are two to four workers; the optimum is the shortest of the schedules
that result when the steps are put, in every possible order, each into the earliest gap that fits.
In threads the tools sleep for tenths of a second, and wall time is compared with the longest way.
"""

from __future__ import annotations

import time
from itertools import permutations
from random import Random

from measure import Row, found_in, report

import agentlab as al

Begun, Environment, Outcome = (
    found_in(name, "environments.base") for name in ("Begun", "Environment", "Outcome")
)
Fixed = found_in("Fixed", "minds.planners.fixed", "planners.fixed")
critical_path = found_in("critical_path", "plans.graph")
timing = found_in("timing", "study.cells")
Tool = found_in("Tool", "tools.tool")

PLANS = 50
MACHINES = {"lathe": 2, "oven": 1, "saw": 1}
UNIT = 0.1
SLEEPS = {
    "a": (3, ""), "b": (2, ""), "c": (2, "b"), "d": (4, "ac"), "e": (5, ""), "f": (1, ""),
    "g": (3, "f"),
}  # fmt: skip
"""Step to its units of sleep and what it waits for."""


class Yard(Environment):
    """A call takes the seconds it is given and holds what it names, and does nothing."""

    name = "yard"

    def tools(self):
        return (Tool("work"),)

    def capacities(self, world):
        return MACHINES

    def begin(self, world, call):
        return Begun(call.arguments["seconds"], tuple(call.arguments["holds"]))

    def apply(self, world, call):
        return Outcome(world, {})

    def unmet(self, goal, world):
        return ()


def drawn(rng: Random, shared: bool) -> list[dict]:
    """Return the steps of a plan."""
    steps = []
    for i in range(rng.randint(5, 7)):
        after = sorted(rng.sample(range(i), min(i, rng.choice([0, 0, 1, 1, 2]))))
        holds = rng.sample(sorted(MACHINES), rng.choice([0, 1, 1, 2])) if shared else []
        steps.append(
            {
                "stepId": f"s{i}", "name": f"s{i}", "actionType": "call_tool",
                "targetResource": "work", "dependencies": after,
                "parameters": {"seconds": rng.randint(1, 9), "holds": holds},
            }
        )  # fmt: skip
    return steps


def carried_out(steps: list[dict], workers: int) -> dict[str, float]:
    """Return makespan and critical path of a run of the plan."""
    scenario = al.Scenario(id="y", environment="yard", task="t", world={}, goal=al.Goal())
    run = al.autonomous.start(
        al.Lab(scenario, environment=Yard(), planner=Fixed(steps), workers=workers)
    )
    run.finish()
    assert all(s.status == "completed" for s in run.plan.steps)
    return timing(run)


def optimum(steps: list[dict], workers: int) -> int:
    """Return the shortest makespan, by every order of the steps."""
    limits = {**MACHINES, "worker": workers}
    seconds = [s["parameters"]["seconds"] for s in steps]
    after = [s["dependencies"] for s in steps]
    needs = [["worker", *s["parameters"]["holds"]] for s in steps]
    best = sum(seconds)
    for order in permutations(range(len(steps))):
        place = {i: n for n, i in enumerate(order)}
        if any(place[k] > place[i] for i in order for k in after[i]):
            continue
        used: dict[str, list[int]] = {name: [0] * sum(seconds) for name in limits}
        ends: dict[int, int] = {}
        for i in order:
            start = max((ends[k] for k in after[i]), default=0)
            while any(
                used[name][t] >= limits[name]
                for name in needs[i]
                for t in range(start, start + seconds[i])
            ):
                start += 1
            ends[i] = start + seconds[i]
            if ends[i] >= best:
                break
            for name in needs[i]:
                for t in range(start, ends[i]):
                    used[name][t] += 1
        else:
            best = max(ends.values())
    return best


def slept() -> tuple[float, float]:
    """Return the wall time of a plan of sleeping tools in threads, and its critical path."""

    @al.tool(parameters={"type": "object"})
    def sleep(seconds):
        """Sleep."""
        time.sleep(seconds)

    steps = [
        {
            "stepId": name, "name": name, "actionType": "call_tool", "targetResource": "sleep",
            "dependencies": list(after), "parameters": {"seconds": units * UNIT},
        }
        for name, (units, after) in SLEEPS.items()
    ]  # fmt: skip
    run = al.autonomous.start(al.Lab(tools=[sleep], planner=Fixed(steps), workers=4))
    started = time.perf_counter()
    run.finish()
    wall = time.perf_counter() - started
    _, path = critical_path(run.plan, lambda s: s.parameters["seconds"])
    return wall, path


def rows() -> list[Row]:
    rng = Random(7)
    free = [carried_out(drawn(rng, shared=False), 7) for _ in range(PLANS)]
    length, path = (sum(f[k] for f in free) for k in ("makespan", "critical_path"))
    plans = [(drawn(rng, shared=True), rng.randint(2, 4)) for _ in range(PLANS)]
    found = [(carried_out(*plan)["makespan"], optimum(*plan)) for plan in plans]
    ours, best = (float(sum(column)) for column in zip(*found, strict=True))
    worst = max(made / shortest for made, shortest in found)
    wall, longest = min((slept() for _ in range(5)), key=lambda pair: pair[0])
    return [
        Row(f"{PLANS} plans without shared resources, makespans in all", length, "s", path,
            "critical paths", "equal", all(f["makespan"] == f["critical_path"] for f in free)),
        Row(f"{PLANS} with them, the worst {worst:.2f} × its optimum", ours, "s", best, "optima",
            "each ≤ 1.05 ×", worst <= 1.05),
        Row("tools that sleep, in threads, wall time (best of 5)", wall, "s", longest,
            "critical path", "≤ 1.15 ×", wall <= 1.15 * longest),
    ]  # fmt: skip


if __name__ == "__main__":
    report(rows())
