"""A user's world that breaks its contract is found when it does, and named with the function."""

from __future__ import annotations

import gc
import math

import pytest

import agentlab as al
from agentlab.environments.base import (
    Begun,
    Call,
    Environment,
    Evidence,
    Outcome,
    Verdict,
    breach,
)
from agentlab.environments.guard import Guarded, guarded
from agentlab.environments.named import get_environment
from agentlab.errors import EnvironmentContractError
from agentlab.tools.tool import Tool

WORLD = {"n": 0, "deep": {"list": [1]}}


def go():
    return Call("go", {"by": 1})


class Counter(Environment):
    name = "counter"

    def tools(self):
        return (Tool("go", parameters={"type": "object"}, effect="write", service="environment"),)

    def apply(self, world, call):
        return Outcome({**world, "n": world["n"] + 1}, {"ok": True}, learned={"n": world["n"] + 1})

    def unmet(self, goal, world):
        return () if world["n"] >= 2 else ("n",)

    def candidates(self, belief, goal):
        return [go()]


def scenario():
    return al.Scenario(id="s", environment="counter", task="t", world=WORLD, goal=al.Goal())


def world():
    return {"n": 0, "deep": {"list": [1]}}


def evidence():
    return Evidence(initial=world(), world=world())


GIVEN = {
    "begin": lambda: (world(), go()), "apply": lambda: (world(), go()),
    "unmet": lambda: (al.Goal(), world()), "check": lambda: (al.Goal(), evidence()),
    "candidates": lambda: (world(), al.Goal()), "moves": lambda: (world(), al.Goal()),
    "initial": lambda: (scenario(),), "belief": lambda: (scenario(),),
    "capacities": lambda: (world(),), "key": lambda: (world(),),
    "estimate": lambda: (al.Goal(), world()), "disturb": lambda: (world(), go(), 0.5),
    "constrain": lambda: (world(), 0.5), "uses_up": lambda: (Call("go", {}),),
    "tools": lambda: (), "understood": lambda: (world(), {"n": 1}),
}  # fmt: skip
"""What each function of the contract is given."""


def asked(function, given, **functions):
    answer = getattr(guarded(type("Mine", (Counter,), functions)()), function)(*given)
    return list(answer) if function in ("candidates", "moves") and answer is not None else answer


def documents(given):
    for value in given:
        if isinstance(value, Evidence):
            yield value.world
        elif isinstance(value, Call):
            yield value.arguments
        elif isinstance(value, al.Scenario):
            yield value.world
        elif isinstance(value, al.Goal):
            yield value.conditions
        elif isinstance(value, dict):
            yield value


def right(function, given):
    return getattr(Counter(), function)(*given)


@pytest.mark.parametrize("function", GIVEN)
def test_what_keeps_the_contract_passes(function):
    given = GIVEN[function]()
    told = asked(function, given)
    wanted = right(function, given)
    assert told == (list(wanted) if isinstance(told, list) else wanted) or function == "tools"


@pytest.mark.parametrize("function", [f for f in GIVEN if f != "tools"])
@pytest.mark.parametrize("where", [0, 1])
def test_what_is_changed_is_found(function, where):
    given = GIVEN[function]()
    if len(list(documents(given))) <= where:
        pytest.skip("it is given less")

    def changes(self, *given):
        answer = right(function, given)
        list(documents(given))[where]["changed"] = 1
        return answer

    with pytest.raises(EnvironmentContractError, match=f"'counter': {function}.* changed the "):
        asked(function, given, **{function: changes})


def test_what_is_changed_deep_inside_is_found():
    def deep(self, world, call):
        world["deep"]["list"].append(2)
        return Outcome(world)

    with pytest.raises(EnvironmentContractError, match="apply of go changed the world"):
        asked("apply", GIVEN["apply"](), apply=deep)


def test_a_world_that_is_kept_and_changed_later_is_found():
    class Keeps(Counter):
        def initial(self, scenario):
            self.world = dict(scenario.world)
            return self.world

        def apply(self, world, call):
            self.world["n"] += 1
            return Outcome(self.world)

    watched = guarded(Keeps())
    start = watched.initial(scenario())
    with pytest.raises(EnvironmentContractError, match="apply of go changed the world"):
        watched.apply(start, go())


def test_a_generator_that_changes_what_it_was_given_is_found():
    def candidates(self, belief, goal):
        yield go()
        belief["changed"] = 1
        yield go()

    with pytest.raises(EnvironmentContractError, match="candidates changed the world"):
        asked("candidates", GIVEN["candidates"](), candidates=candidates)


def test_a_result_that_the_world_keeps_is_the_callers_own():
    kept = {"list": [1]}
    outcome = asked("apply", GIVEN["apply"](), apply=lambda s, w, c: Outcome(w, kept, learned=kept))
    kept["list"].append(2)
    assert outcome.result == outcome.learned == {"list": [1]}


class Panic(BaseException):
    pass


RAISED = [SystemExit(3), Panic(), GeneratorExit(), KeyError("k"), RecursionError(), StopIteration()]


@pytest.mark.parametrize("function", GIVEN)
@pytest.mark.parametrize("error", RAISED, ids=lambda e: type(e).__name__)
def test_whatever_it_raises_is_a_breach(function, error):
    def raises(self, *given):
        raise error

    with pytest.raises(
        EnvironmentContractError, match=f"{function}.* raised {type(error).__name__}"
    ):
        asked(function, GIVEN[function](), **{function: raises})


def test_a_persons_interrupt_is_nobodys_breach():
    def raises(self, *given):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked("apply", GIVEN["apply"](), apply=raises)


@pytest.mark.filterwarnings("error")
def test_what_an_interrupt_left_behind_is_no_breach():
    left = breach(Counter(), "check")
    left.__enter__()
    del left  # as where Ctrl-C comes between the end of the block and that of the manager
    gc.collect()


async def later(self, *given):
    return None


WRONG = [
    ("tools", None), ("tools", ("go",)), ("begin", None), ("begin", Begun(-1.0)),
    ("begin", Begun(math.nan)), ("begin", Begun(math.inf)), ("begin", Begun("1")),
    ("begin", Begun(True)), ("begin", Begun(1.0, 3)), ("begin", (1.0, ())), ("apply", None),
    ("apply", (1, 2)), ("apply", Outcome(None)), ("apply", Outcome({"n": math.nan})),
    ("apply", Outcome({1: 2})), ("apply", Outcome({}, learned=[1])), ("apply", Outcome({}, {1})),
    ("apply", Outcome({}, error="no")), ("apply", Outcome({}, learned={"a": object()})),
    ("unmet", None), ("unmet", "text"), ("check", None), ("check", True),
    ("check", Verdict(True, None)), ("candidates", ["go"]), ("candidates", "go"),
    ("candidates", [Call("go", {"a": {1}})]), ("moves", 3), ("initial", None), ("belief", [1]),
    ("initial", {"n": math.inf}), ("capacities", None), ("capacities", {"a": "x"}), ("key", []),
    ("estimate", "x"), ("estimate", math.nan), ("disturb", [1]), ("constrain", {"a": {1}}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "answer"), WRONG, ids=lambda x: str(x)[:20])
def test_an_answer_of_another_kind_is_a_breach(function, answer):
    with pytest.raises(EnvironmentContractError, match=f"'counter': {function}"):
        asked(function, GIVEN[function](), **{function: lambda self, *given: answer})


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("function", sorted(set(GIVEN) - {"uses_up", "key"}))
def test_a_coroutine_is_no_answer(function):
    with pytest.raises(EnvironmentContractError, match=function):
        asked(function, GIVEN[function](), **{function: later})


def test_worlds_that_ship_are_not_watched():
    assert not isinstance(guarded(get_environment("travel")), Guarded)
    assert isinstance(guarded(Counter()), Guarded)


def test_all_that_a_world_may_be_asked_is_watched_or_its_own():
    asked = {n for n in vars(Environment) if not n.startswith("_")} - {"name", "clock", "registry"}
    assert asked == set(GIVEN) == {n for n in vars(Guarded) if n in vars(Environment)} & asked
    slow = type("Slow", (Counter,), {"clock": "wall", "name": "slow"})()
    assert (guarded(slow).clock, guarded(slow).name) == ("wall", "slow")
