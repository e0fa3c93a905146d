"""What many tests use: the reply form of a step, and tools that note each of their calls."""

from __future__ import annotations

import inspect
from functools import lru_cache
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

import agentlab as al
from agentlab.base.registry import KINDS, registry
from agentlab.environments.chain import generate
from agentlab.errors import ToolFailure
from agentlab.lab.handler import Handler
from agentlab.minds.planners.fixed import Fixed


@pytest.fixture(scope="session", autouse=True)
def state_of_nobody(tmp_path_factory):
    """What tests agree to is not written into the state of who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


def reply(step_id: str, tool: str = "note", *dependencies: Any, **fields: Any) -> dict[str, Any]:
    """Return a step in a planner's reply form; ``fields`` in its spelling."""
    return {
        "stepId": step_id,
        "name": step_id,
        "actionType": "call_tool",
        "targetResource": tool,
        "dependencies": list(dependencies),
        **fields,
    }


class Notebook:
    """Function tools that write down every call; ``made`` lists (tool, arguments)."""

    def __init__(self) -> None:
        self.made: list[tuple[str, dict[str, Any]]] = []

    def tool(self, name: str = "note", do: Any = None, **options: Any) -> Any:
        def call(**arguments: Any) -> Any:
            self.made.append((name, arguments))
            return arguments if do is None else do(**arguments)

        call.__doc__ = f"Note {name}."
        options = {"parameters": {"type": "object"}, "effect": "write", **options}
        return al.tool(call, name=name, **options)

    def broken(self, name: str = "broken", **failure: Any) -> Any:
        def fail(**arguments: Any) -> Any:
            raise ToolFailure("it is broken", **failure)

        return self.tool(name, fail)

    def lab(self, *plans: Any, tools: Any = (), **options: Any) -> al.Lab:
        """Return a lab with the plans given beforehand, ``note``, ``broken`` and more tools."""
        options.setdefault("planner", Fixed(*plans))
        options.setdefault("executor", "simulated")
        return al.Lab(tools=[self.tool(), self.broken(), *tools], **options)

    def start(self, *plans: Any, tools: Any = (), **options: Any) -> al.Run:
        return al.autonomous.start(self.lab(*plans, tools=tools, **options), "do it")

    def run(self, *plans: Any, tools: Any = (), **options: Any) -> al.Run:
        run = self.start(*plans, tools=tools, **options)
        run.finish()
        return run


@pytest.fixture(scope="session")
def step():
    return reply


@pytest.fixture
def notes():
    return Notebook()


@pytest.fixture(scope="session")
def notebook():
    """The class, for tests that need a fresh one for each example."""
    return Notebook


class Heard(Handler):
    """A handler that notes what it is told, in ``events``: the kind and the arguments of each."""

    def __init__(self) -> None:
        self.events: list[SimpleNamespace] = []

    def __getattribute__(self, name: str) -> Any:
        if not (name.startswith("on_") and hasattr(Handler, name)):
            return super().__getattribute__(name)
        bind = inspect.signature(getattr(Handler, name)).bind
        return lambda *given: self.events.append(
            SimpleNamespace(
                kind=name.removeprefix("on_"), **dict([*bind(self, *given).arguments.items()][1:])
            )
        )


@pytest.fixture(scope="session")
def heard():
    """The class, as several tests need one for each example."""
    return Heard


@pytest.fixture(scope="session")
def chain():
    """Make a chain scenario; the default has three stages."""
    return lambda length=3, seed=0: generate("medium", seed, length=length)


def shortest(tasks: Any, limits: Any) -> float:
    """Return the shortest makespan: every choice of what to start at every finish, idling too."""
    limits = dict(limits)

    @lru_cache(None)
    def left(done: frozenset[int], running: tuple[Any, ...]) -> float:
        if len(done) == len(tasks):
            return 0
        under_way = {i for i, _ in running}
        ready = [
            i
            for i, t in enumerate(tasks)
            if i not in done | under_way and set(t.after) <= done
        ]  # fmt: skip
        best = float("inf")
        for count in range(len(ready) + 1):
            for chosen in combinations(ready, count):
                now = running + tuple((i, tasks[i].seconds) for i in chosen)
                if not now or over(tasks, [i for i, _ in now], limits):
                    continue
                step = min(t for _, t in now)
                ended = done | {i for i, t in now if t == step}
                rest = tuple(sorted((i, t - step) for i, t in now if t > step))
                best = min(best, step + left(frozenset(ended), rest))
        return best

    return left(frozenset(), ())


def over(tasks: Any, together: list[int], limits: dict[str, int]) -> bool:
    """Say whether tasks under way together use too much of something."""
    names = [r for i in together for r in tasks[i].needs]
    return any(names.count(r) > limits.get(r, 1) for r in names)


@pytest.fixture(scope="session")
def optimum():
    """Find the shortest makespan of tasks by brute force."""
    return shortest


@pytest.fixture
def fresh_names(monkeypatch):
    """Nothing that a user registered, and whatever the test registers is forgotten."""
    for kind in KINDS:
        monkeypatch.setattr(registry(kind), "_own", {})
        monkeypatch.setattr(registry(kind), "_made", {})
