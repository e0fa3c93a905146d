"""``travel`` against a second implementation of its rules, and what the lab needs of its suite."""

from __future__ import annotations

import heapq
import itertools
import json
import math
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jmespath
import pytest
from hypothesis import given, settings, strategies as st

from agentlab.base.documents import canonical, digest, merge_patch
from agentlab.base.randomness import uniform
from agentlab.environments.base import Call, Environment, Evidence, no_op
from agentlab.environments.check import check_environment
from agentlab.environments.generators.travel import TEMPLATES, generate, suite
from agentlab.environments.scenario import Goal, Scenario
from agentlab.environments.suites import read_suite, write_suite
from agentlab.environments.travel import Travel
from agentlab.environments.travel_tools import BOOKS, FEE, SHOWS, TOOLS
from agentlab.tools.calls import CallRecord
from agentlab.tools.tool import Effect

FROZEN = Path(__file__).parents[2] / "datasets" / "travel.jsonl"
SUITE = suite()
TRAVEL = Travel()
SECONDS = {tool.name: tool.seconds for tool in TOOLS}
LOOKS = ["search_flights", "search_trains", "ask_agency"]
Plan = tuple[Call, ...]


# --- oracles ---------------------------------------------------------------------------------


class Agency:
    """The rules again, written from the description with other data: a mutable ledger."""

    def __init__(self, world: dict[str, Any]) -> None:
        self.stock = {
            key: {**offer, "left": offer.get("seats", offer.get("rooms"))}
            for kind in ("flights", "trains", "hotels")
            for key, offer in world[kind].items()
        }
        self.cities, self.budget = world["cities"], world["budget"]
        self.shown: set[str] = set()
        self.paid: list[tuple[str, int, int]] = []  # (id, nights, money)

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Return the ids shown, or the money paid, or the code of an error."""
        letters = {"flights": "F", "trains": "T", "hotels": "H"}
        if tool == "list_bookings":
            return [key for key, _, _ in self.paid]
        if tool in SHOWS:
            if not {v for v in arguments.values() if isinstance(v, str)} <= set(self.cities):
                return "unknown_city"
            fit = [
                (o["price"], key)
                for key, o in self.stock.items()
                if key[0] in {letters[kind] for kind in SHOWS[tool]}
                and o["left"] > 0
                and arguments.items() <= o.items()
            ]
            self.shown |= {key for _, key in fit}
            return {key for _, key in fit}
        key = next(v for v in arguments.values() if isinstance(v, str))
        if key not in self.stock or key[0] not in {letters[kind] for kind in BOOKS[tool]}:
            return "unknown_offer"
        if key not in self.shown:
            return "not_seen"
        if self.stock[key]["left"] == 0:
            return "sold_out"
        nights = arguments.get("nights", 1)
        money = self.stock[key]["price"] * nights + (12 if tool == "agency_book" else 0)
        if self.spent + money > self.budget:
            return "over_budget"
        self.stock[key]["left"] -= 1
        self.paid.append((key, nights, money))
        return money

    @property
    def spent(self) -> int:
        return sum(money for _, _, money in self.paid)

    def reached(self, goal: Goal) -> bool:
        bought = [(self.stock[key], nights) for key, nights, _ in self.paid]
        return all(
            any(
                o.get("origin") == leg["origin"]
                and o["destination"] == leg["destination"]
                and o["day"] in range(leg["earliest"], leg["latest"] + 1)
                for o, _ in bought
            )
            for leg in goal.conditions["legs"]
        ) and all(
            any(
                o.get("city") == stay["city"]
                and nights >= stay["nights"]
                and o["stars"] >= stay["stars"]
                for o, nights in bought
            )
            for stay in goal.conditions["stays"]
        )


def seen_by(outcome: Any, tool: str) -> Any:
    """What the ledger would say of this outcome."""
    if outcome.error is not None:
        return outcome.error.code
    if tool == "list_bookings":
        return [booking["offer"] for booking in outcome.result["bookings"]]
    if tool in SHOWS:
        return {offer["id"] for offers in outcome.result.values() for offer in offers}
    return outcome.result["paid"]


def resolve(value: Any, results: dict[str, Any]) -> Any:
    """Resolve strings that are one whole reference."""
    match = re.fullmatch(r"\$\{([\w-]+)\.(.+)\}", value) if isinstance(value, str) else None
    return value if match is None else jmespath.search(match[2], results[match[1]])


def follow(scenario: Scenario) -> tuple[list[CallRecord], dict[str, Any], Any]:
    """Carry the reference plan out; return the calls, the world and the answer."""
    world, results, records = TRAVEL.initial(scenario), {}, []
    assert scenario.reference is not None
    for step in scenario.reference.steps:
        assert set(step.dependencies) <= results.keys()
        arguments = {name: resolve(value, results) for name, value in step.arguments.items()}
        assert TRAVEL.registry[step.tool].check(arguments) is None
        outcome = TRAVEL.apply(world, Call(step.tool, arguments))
        assert outcome.error is None, (scenario.id, step.step_id, outcome.error)
        world, results[step.step_id] = outcome.world, outcome.result
        records.append(CallRecord(tool=step.tool, arguments=arguments, result=outcome.result))
    return records, world, resolve(scenario.reference.answer, results)


class Free(Travel):
    """Everything a traveller could sensibly do, in any order."""

    def candidates(self, belief: dict[str, Any], goal: Goal) -> Iterable[Call]:
        for leg in goal.conditions["legs"]:
            for day in range(leg["earliest"], leg["latest"] + 1):
                for tool in ("search_flights", "search_trains", "ask_agency"):
                    ends = {name: leg[name] for name in ("origin", "destination")}
                    yield Call(tool, {**ends, "day": day})
        for stay in goal.conditions["stays"]:
            yield Call("search_hotels", {"city": stay["city"]})
            yield Call("hotel_directory", {"city": stay["city"]})
        for key in belief["seen"]:
            if key[0] == "H":
                nights = max(stay["nights"] for stay in goal.conditions["stays"])
                yield Call("book_hotel", {"hotel_id": key, "nights": nights})
                yield Call("call_hotel", {"hotel_id": key, "nights": nights})
            else:
                tool, name = {"F": ("book_flight", "flight_id"), "T": ("book_train", "train_id")}[
                    key[0]
                ]
                yield Call(tool, {name: key})
                yield Call("agency_book", {"offer_id": key})


def astar(
    world: dict[str, Any],
    goal: Goal,
    broken: Iterable[str] = (),
    environment: Environment = TRAVEL,
    informed: bool = True,
) -> tuple[Plan, float] | None:
    """Plan with a textbook A*: the cost is seconds, and a thousandth a call."""

    def rest(world: dict[str, Any]) -> float:
        return environment.estimate(goal, world) if informed else 0.0

    number = itertools.count()
    best = {environment.key(world): 0.0}
    queue: list[tuple[float, int, float, dict[str, Any], Plan]] = []
    heapq.heappush(queue, (rest(world), next(number), 0.0, world, ()))
    while queue:
        _, _, cost, world, plan = heapq.heappop(queue)
        if cost > best[environment.key(world)]:
            continue
        if not environment.unmet(goal, world):
            return plan, cost
        for call in environment.candidates(world, goal):
            if call.tool in broken:
                continue
            outcome = environment.apply(world, call)
            begun = environment.begin(world, call)
            further = cost + begun.seconds + 1e-3  # type: ignore[union-attr]
            key = environment.key(outcome.world)
            if outcome.error is None and further < best.get(key, math.inf):
                estimate = rest(outcome.world)
                if estimate < math.inf:
                    best[key] = further
                    item = (further + estimate, next(number), further, outcome.world, (*plan, call))
                    heapq.heappush(queue, item)
    return None


# --- the suite -------------------------------------------------------------------------------


def test_the_frozen_suite_is_what_the_generator_makes(tmp_path: Path) -> None:
    write_suite(SUITE, tmp_path / "travel.jsonl")
    assert FROZEN.read_bytes() == (tmp_path / "travel.jsonl").read_bytes()
    assert [s.to_json() for s in read_suite(FROZEN)] == [s.to_json() for s in SUITE]


def test_the_suite_is_balanced() -> None:
    assert len(SUITE) == 60
    assert SUITE[0].id == "travel-easy-000"
    for level, templates in TEMPLATES.items():
        part = SUITE.where(difficulty=level)
        assert len(part) == 20
        assert {s.cluster.split("-")[0] for s in part} == {t.name for t in templates}
    hidden = {
        level: sum(bool(s.hidden) for s in SUITE.where(difficulty=level)) for level in TEMPLATES
    }
    assert hidden == {"easy": 0, "medium": 5, "hard": 10}
    assert 10 <= sum(s.goal.deadline is not None for s in SUITE) <= 25
    assert {s.goal.answer.result[:5] for s in SUITE if s.goal.answer} == {"spent", "code "}
    assert all(s.faults.rate == 0 for s in SUITE)


@pytest.mark.parametrize("scenario", SUITE, ids=lambda s: s.id)
def test_scenario(scenario: Scenario) -> None:
    records, world, answer = follow(scenario)
    check_environment(TRAVEL, scenario)
    check_environment(TRAVEL, scenario, [Call(r.tool, r.arguments) for r in records])
    assert not no_op(TRAVEL, scenario).success

    # the reference plan passes here, and in the second implementation
    seconds = sum(SECONDS[r.tool] for r in records)
    start = TRAVEL.initial(scenario)
    verdict = TRAVEL.check(scenario.goal, Evidence(start, world, records, answer, seconds))
    assert verdict.success, verdict
    agency = Agency(start)
    for record in records:
        agency.call(record.tool, record.arguments)
    assert agency.reached(scenario.goal)
    assert (agency.spent, agency.budget) == (world["spent"], world["budget"])
    if scenario.goal.answer is not None:
        path = scenario.goal.answer.result
        shown = [r for r in records if r.tool in scenario.goal.answer.tools]
        assert (
            jmespath.search(path, shown[-1].result if path == "spent" else shown[0].result)
            == answer
        )
        listed = TRAVEL.apply(world, Call("list_bookings"))
        assert jmespath.search(path, listed.result) == answer

    # nothing is quicker, and search finds as quick a plan
    found = astar(start, scenario.goal)
    assert found is not None
    assert found[1] == pytest.approx(seconds + 1e-3 * len(records))
    assert 4 <= len(records) <= 10

    # the slack is less than anything that is paid for
    prices = [r.result["paid"] for r in records if r.tool in BOOKS]
    assert world["budget"] - world["spent"] >= FEE * len(scenario.goal.conditions["legs"])
    assert world["budget"] - world["spent"] < min(prices)


def test_planning_a_hard_scenario_is_quick() -> None:
    for scenario in SUITE.where(difficulty="hard")[:6]:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            astar(TRAVEL.belief(scenario), scenario.goal)
            times.append(time.perf_counter() - start)
        assert min(times) < 0.05


@pytest.mark.parametrize(
    "scenario",
    [
        *[s for s in SUITE if s.cluster.startswith("one_way-")][:2],
        *[s for s in SUITE if s.cluster.startswith("there_and_back-")][:2],
        *[s for s in SUITE if s.cluster.startswith("conference-")][:2],
    ],
    ids=lambda s: s.id,
)
def test_one_order_of_the_needs_is_enough(scenario: Scenario) -> None:
    start = TRAVEL.initial(scenario)
    free = astar(start, scenario.goal, environment=Free(), informed=False)
    guided = astar(start, scenario.goal)
    assert free is not None
    assert guided is not None
    assert free[1] == pytest.approx(guided[1])


@pytest.mark.parametrize("seed", range(6))
def test_the_estimate_is_a_lower_bound(seed: int) -> None:
    scenario = generate("hard", seed)
    world = TRAVEL.initial(scenario)
    plan, cost = astar(world, scenario.goal) or ((), 0.0)
    for call in plan:
        estimate = TRAVEL.estimate(scenario.goal, world)
        assert estimate <= cost
        seconds = SECONDS[call.tool]
        world = TRAVEL.apply(world, call).world
        assert estimate <= seconds + TRAVEL.estimate(scenario.goal, world)  # consistent, too
        cost -= seconds + 1e-3
    assert TRAVEL.estimate(scenario.goal, world) == 0.0


# --- ways round ------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SUITE[::2], ids=lambda s: s.id)
def test_any_one_tool_can_be_gone_round(scenario: Scenario) -> None:
    for tool in TOOLS:
        found = astar(TRAVEL.initial(scenario), scenario.goal, {tool.name})
        assert found is not None, tool.name
        # three failures of the broken tool before it is left still fit into the deadline
        late = scenario.goal.deadline or math.inf
        assert found[1] + 3 * tool.seconds <= late, tool.name


@pytest.mark.parametrize("scenario", SUITE[5::18], ids=lambda s: s.id)
def test_two_broken_tools_can_be_gone_round_unless_they_are_all_there_is(
    scenario: Scenario,
) -> None:
    stays = bool(scenario.goal.conditions["stays"])
    for broken in itertools.combinations(SECONDS, 2):
        vital = stays and set(broken) in (
            {"search_hotels", "hotel_directory"},
            {"book_hotel", "call_hotel"},
        )
        found = astar(TRAVEL.initial(scenario), scenario.goal, broken)
        assert (found is None) == vital, broken


def live(
    scenario: Scenario, seed: int, rate: float, permanent: bool, retries: int, replan: bool
) -> bool:
    """Plan over the belief and act under error faults, the permanent ones on the whole tool.

    With ``replan``, make a new plan when a call failed for good or taught something unexpected.
    """
    world, belief, goal = TRAVEL.initial(scenario), TRAVEL.belief(scenario), scenario.goal
    broken: set[str] = set()
    met: dict[str, int] = {}
    seconds = 0.0
    plan = (astar(belief, goal) or ((), 0.0))[0]
    while plan and seconds < 1000:
        call, plan, outcome = plan[0], plan[1:], None
        for _ in range(retries + 1):
            seconds += SECONDS[call.tool]
            key = digest([call.tool, call.arguments])
            met[key] = met.get(key, -1) + 1
            if call.tool in broken or uniform(seed, scenario.id, key, met[key]) < rate:
                broken |= {call.tool} if permanent else set()
                continue
            outcome = TRAVEL.apply(world, call)
            break
        if not replan and (outcome is None or outcome.error is not None):
            return False
        expected = TRAVEL.apply(belief, call).world
        if outcome is not None:
            world, belief = outcome.world, merge_patch(belief, outcome.learned)
        if replan and belief != expected:
            plan = (astar(belief, goal, broken) or ((), 0.0))[0]
    evidence = Evidence(TRAVEL.initial(scenario), world, seconds=seconds)
    return TRAVEL.check(goal.replace(answer=None), evidence).success


def test_what_retries_and_replans_are_good_for() -> None:
    def share(scenarios: Iterable[Scenario], rate: float, **how: Any) -> float:
        cells = [live(s, seed, rate, **how) for s in scenarios for seed in range(20)]
        return sum(cells) / len(cells)

    plain = [s for s in SUITE[3::12] if not s.hidden]
    never = share(plain, 0.2, permanent=False, retries=0, replan=False)
    retry = share(plain, 0.2, permanent=False, retries=2, replan=False)
    assert never < 0.5
    assert retry > 0.9
    assert share(plain, 0.2, permanent=True, retries=2, replan=False) == pytest.approx(never)
    for rate, least in ((0.1, 0.9), (0.2, 0.75), (0.3, 0.5)):
        assert share(plain, rate, permanent=True, retries=0, replan=True) > least
    hidden = [s for s in SUITE if s.hidden]
    assert share(hidden[::3], 0.0, permanent=False, retries=0, replan=True) == 1.0
    assert share(hidden[::3], 0.0, permanent=False, retries=0, replan=False) < 0.6


# --- rules -----------------------------------------------------------------------------------


def test_paying_twice_leaves_too_little() -> None:
    broke = refused = 0
    for scenario in SUITE:
        records, _, _ = follow(scenario)
        pays = [i for i, r in enumerate(records) if r.tool in BOOKS]
        for twice in pays:
            world = TRAVEL.initial(scenario)
            for record in records[: twice + 1]:
                world = TRAVEL.apply(world, Call(record.tool, record.arguments)).world
            once, outcome = (
                world,
                TRAVEL.apply(world, Call(records[twice].tool, records[twice].arguments)),
            )
            if outcome.error is None:  # the money for something else is gone
                broke += 1
                assert not list(TRAVEL.candidates(outcome.world, scenario.goal))
                assert TRAVEL.estimate(scenario.goal, outcome.world) == math.inf
                assert astar(outcome.world, scenario.goal) is None
            else:  # too dear a second time: nothing is lost, and what was paid comes to light
                refused += 1
                assert (outcome.error.code, outcome.error.permanent) == ("over_budget", True)
                assert outcome.learned["bookings"] == once["bookings"]
            assert outcome.error is not None or twice != pays[-1]
    assert broke > refused  # the last payment is always refused


def hand_made() -> tuple[dict[str, Any], Goal]:
    ride = {"origin": "Oslo", "destination": "Rome", "day": 3}
    world = {
        "cities": ["Oslo", "Rome"],
        "flights": {
            "F10": {**ride, "price": 100, "seats": 1},
            "F11": {**ride, "price": 90, "seats": 0},
            "F12": {**ride, "day": 4, "price": 50, "seats": 5},
        },
        "trains": {"T10": {**ride, "price": 120, "seats": 2}},
        "hotels": {"H10": {"city": "Rome", "stars": 2, "price": 30, "rooms": 2}},
        "budget": 200,
        "spent": 0,
        "bookings": {},
        "seen": {},
    }
    leg = {"origin": "Oslo", "destination": "Rome", "earliest": 3, "latest": 3}
    stay = {"city": "Rome", "nights": 2, "stars": 1}
    return world, Goal(conditions={"legs": [leg], "stays": [stay]})


def test_a_trip_by_hand() -> None:
    world, goal = hand_made()
    ride = {"origin": "Oslo", "destination": "Rome", "day": 3}
    shown = TRAVEL.apply(world, Call("search_flights", ride))
    assert shown.result == {"flights": [{"id": "F10", **world["flights"]["F10"]}]}
    assert shown.learned["flights"]["F11"]["seats"] == 0  # learned from its absence
    assert shown.world["seen"] == {"F10": True}
    paid = TRAVEL.apply(shown.world, Call("book_flight", {"flight_id": "F10"}))
    assert (paid.result["paid"], paid.result["spent"], paid.result["budget"]) == (100, 100, 200)
    assert paid.world["flights"]["F10"]["seats"] == 0
    again = TRAVEL.apply(paid.world, Call("agency_book", {"offer_id": "F10"}))
    assert again.error.code == "sold_out"
    assert again.error.permanent
    assert again.learned == {"flights": {"F10": {"seats": 0}}}
    assert TRAVEL.unmet(goal, paid.world) == ("not booked: 2 nights in Rome",)
    hotels = TRAVEL.apply(paid.world, Call("hotel_directory", {"city": "Rome"}))
    short = TRAVEL.apply(hotels.world, Call("book_hotel", {"hotel_id": "H10", "nights": 1}))
    assert TRAVEL.unmet(goal, short.world) == ("not booked: 2 nights in Rome",)
    done = TRAVEL.apply(hotels.world, Call("call_hotel", {"hotel_id": "H10", "nights": 2}))
    assert TRAVEL.unmet(goal, done.world) == ()
    assert done.world["spent"] == 160
    lowered = {**done.world, "budget": 150}
    assert TRAVEL.unmet(goal, lowered) == ("spent 160 of 150",)
    listed = TRAVEL.apply(done.world, Call("list_bookings"))
    assert [b["offer"] for b in listed.result["bookings"]] == ["F10", "H10"]
    assert listed.world is done.world


def test_errors_say_what_can_be_learned() -> None:
    world, goal = hand_made()
    unseen = TRAVEL.apply(world, Call("book_train", {"train_id": "T10"}))
    assert (unseen.error.code, unseen.error.permanent) == ("not_seen", False)
    belief = {**world, "trains": {"T99": {}, "F10": {}}, "seen": {"T99": True, "F10": True}}
    phantom = TRAVEL.apply(world, Call("book_train", {"train_id": "T99"}))
    assert (phantom.error.code, phantom.error.permanent) == ("unknown_offer", True)
    belief = merge_patch(belief, phantom.learned)
    no_train = TRAVEL.apply(world, Call("book_train", {"train_id": "F10"}))
    assert no_train.error.message == "there is no train 'F10'"
    belief = merge_patch(belief, no_train.learned)
    assert (belief["trains"], belief["seen"]) == ({}, {"F10": True})  # the flight stays known
    nowhere = TRAVEL.apply(world, Call("search_hotels", {"city": "Roma"}))
    assert nowhere.error.code == "unknown_city"
    assert "Oslo, Rome" in nowhere.error.message
    shown = TRAVEL.apply({**world, "budget": 131}, Call("ask_agency", {
        "origin": "Oslo", "destination": "Rome", "day": 3,
    }))  # fmt: skip
    assert set(shown.world["seen"]) == {"F10", "T10"}
    dear = TRAVEL.apply(shown.world, Call("agency_book", {"offer_id": "T10"}))
    assert (dear.error.code, dear.learned["budget"]) == ("over_budget", 131)
    assert "T10 costs 132; 0 of 131 are spent (nothing yet)" in dear.error.message
    assert TRAVEL.estimate(goal, shown.world) == math.inf


def test_a_belief_with_broken_offers_can_still_be_planned_with() -> None:
    world, goal = hand_made()
    flights = {**world["flights"], "F99": {"price": 1}, "F98": {}}
    plan, _ = astar({**world, "flights": flights}, goal) or ((), 0.0)
    assert [call.tool for call in plan].count("book_flight") == 1


def test_what_may_happen_to_the_world() -> None:
    world, _ = hand_made()
    call = Call("agency_book", {"offer_id": "T10"})
    assert TRAVEL.disturb(world, call, 0.2) == {"trains": {"T10": {"seats": 0}}}
    prices = [TRAVEL.disturb(world, call, d)["trains"]["T10"]["price"] for d in (0.5, 0.999)]  # type: ignore[index]
    assert prices == [132, 150]
    hotel = Call("call_hotel", {"hotel_id": "H10", "nights": 2})
    assert TRAVEL.disturb(world, hotel, 0.0) == {"hotels": {"H10": {"rooms": 0}}}
    assert TRAVEL.disturb(world, Call("search_hotels", {"city": "Rome"}), 0.0) is None
    assert TRAVEL.disturb(world, Call("book_flight", {"flight_id": "F77"}), 0.0) is None
    assert TRAVEL.constrain(world, 0.0) == {"budget": 198}
    assert TRAVEL.constrain(world, 0.999) == {"budget": 192}
    assert TRAVEL.constrain({**world, "spent": 199}, 0.5) == {"budget": 199}
    assert TRAVEL.constrain({**world, "spent": 200}, 0.5) is None


def test_the_tools() -> None:
    effects = {tool.name: tool.effect for tool in TRAVEL.tools()}
    assert {n for n, e in effects.items() if e is Effect.IRREVERSIBLE} == set(BOOKS)
    assert {n for n, e in effects.items() if e is Effect.READ} == {*SHOWS, "list_bookings"}
    for tool in TRAVEL.tools():
        assert (len(tool.seen) == 1) == (tool.name in BOOKS)


@st.composite
def days_out(draw: st.DrawFn) -> tuple[dict[str, Any], Goal, list[Call]]:
    """A small market with little to sell and calls that often make sense."""
    scenario = draw(st.sampled_from(SUITE[::7]))
    world, goal = TRAVEL.initial(scenario), scenario.goal
    world["budget"] *= draw(st.sampled_from([1, 2, 5]))
    for kind, free in (("flights", "seats"), ("trains", "seats"), ("hotels", "rooms")):
        world[kind] = {
            key: {**offer, free: min(offer[free], 2)} for key, offer in world[kind].items()
        }
    rides = [{**leg, "day": leg["latest"]} for leg in goal.conditions["legs"]]
    rides.append(next(iter(world["trains"].values())))
    cities = [*world["cities"], "Atlantis"]
    keys = [key for kind in ("flights", "trains", "hotels") for key in list(world[kind])[:2]]
    keys += [key for key in world["flights"] if key not in keys][-1:]
    keys.append("F0")
    made = [
        Call(look, {name: ride[name] for name in ("origin", "destination", "day")})
        for ride in rides
        for look in draw(
            st.sets(st.sampled_from(["search_flights", "search_trains", "ask_agency"]))
        )
    ]
    made += [Call("search_hotels", {"city": draw(st.sampled_from(cities))}) for _ in range(2)]
    for tool in draw(
        st.lists(st.sampled_from([t for t in TOOLS if t.name not in SHOWS]), max_size=20)
    ):
        nights = (
            {"nights": draw(st.integers(1, 3))} if "nights" in tool.parameters["properties"] else {}
        )
        fits = [
            k
            for k in keys
            if not tool.seen or k[0].lower() == tool.seen[0][0] or tool.seen[0][0] == "o"
        ]
        key = draw(st.sampled_from(fits or keys) | st.sampled_from(keys))
        made.append(Call(tool.name, {**({tool.seen[0]: key} if tool.seen else {}), **nights}))
    return world, goal, draw(st.permutations(made)) if draw(st.booleans()) else made


@settings(max_examples=100, deadline=None)
@given(days_out())
def test_the_rules_agree_with_a_second_implementation(
    day_out: tuple[dict[str, Any], Goal, list[Call]],
) -> None:
    world, goal, made = day_out
    agency = Agency(world)
    for call in made:
        before = canonical(world)
        outcome = TRAVEL.apply(world, call)
        assert canonical(world) == before
        assert seen_by(outcome, call.tool) == agency.call(call.tool, call.arguments)
        # whoever knew the truth before the call knows it after it
        assert merge_patch(world, outcome.learned) == outcome.world
        world = outcome.world
        assert world["spent"] == agency.spent <= world["budget"]
        assert (not TRAVEL.unmet(goal, world)) == agency.reached(goal)
    assert json.loads(canonical(world)) == world
