"""Scenarios of ``travel``: routes from templates, offers around them, a plan made by construction.

A template is a route: stops with or without a hotel, and home again or not. For every leg and stay
the generator lays down offers whose order by price it knows, so it writes the reference plan
without searching: look at everything, then pay for the cheapest.

The budget is the price of that plan and a slack. The slack pays for going round two broken tools
(trains for flights, or the agency's fee for every leg) and for one offer that is gone, but is less
than the cheapest thing of the plan: whoever pays twice runs out of money.

``hidden`` makes the cheapest offer of a need, as the agent believes it, sold out or dearer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from random import Random

from agentlab.base.randomness import generator
from agentlab.base.values import Document
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.scenario import AnswerGoal, Goal, ReferencePlan, ReferenceStep, Scenario
from agentlab.environments.suites import Suite
from agentlab.environments.travel_tools import BOOKS, FEE, TOOLS


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of trip."""

    name: str
    hotels: tuple[bool, ...]
    """One for every stop: whether a hotel is needed there."""
    back: bool
    """Whether the trip ends where it began."""
    choosy: bool = False
    """Whether the day of the first leg is open by one and the hotels need three stars."""


TEMPLATES = {
    "easy": (
        Template("one_way", (True,), back=False),
        Template("there_and_back", (False,), back=True),
    ),
    "medium": (
        Template("round_trip", (True,), back=True),
        Template("conference", (True,), back=False, choosy=True),
        Template("stopover", (False, True), back=False),
    ),
    "hard": (
        Template("open_jaw", (True, True), back=False),
        Template("tour", (True, False), back=True),
        Template("two_cities", (True, True), back=True),
    ),
}

CITIES = (
    "Athens", "Berlin", "Dublin", "Lisbon", "Madrid", "Oslo",
    "Paris", "Prague", "Rome", "Turin", "Vienna", "Zurich",
)  # fmt: skip

FAULTS = FaultPlan.mixed(
    permanent=0.25, silent=0.2, error=0.5, timeout=0.1, timeout_after_commit=0.05, rate_limit=0.1,
    wrong_result=0.1, empty_result=0.05, world_change=0.1,
)  # fmt: skip
"""What may go wrong on a trip; the rate is the study's."""

_SECONDS = {tool.name: tool.seconds for tool in TOOLS}


@dataclass(frozen=True, slots=True)
class _Supply:
    """What was laid down for a need: its flights or hotels, and its cheapest train."""

    need: Document
    ranked: tuple[tuple[int, str], ...]
    """(price, id), cheapest first; the price of a hotel is for all nights."""
    train: int = 0


def suite() -> Suite:
    """Return the 60 scenarios of ``datasets/travel.jsonl``: 20 easy, 20 medium, 20 hard."""
    return Suite("travel", [generate(level, seed) for level in TEMPLATES for seed in range(20)])


def generate(difficulty: str = "medium", seed: int = 0) -> Scenario:
    """Make a travel scenario.

    Parameters
    ----------
    difficulty : {"easy", "medium", "hard"}
        Trips of two needs; of two or three, a quarter of them with something hidden; of four or
        five, half of them with something hidden.
    seed : int
        Draws everything but the template and whether something is hidden, which go round with it.
    """
    template = TEMPLATES[difficulty][seed % len(TEMPLATES[difficulty])]
    rng = generator("travel", difficulty, seed)
    offers: dict[str, Document] = {"flights": {}, "trains": {}, "hotels": {}}
    cities = rng.sample(CITIES, len(template.hotels) + 2)
    legs, stays = _needs(template, cities[:-1], rng)
    supplies = [_supply_stay(offers, stay, rng) for stay in stays]
    supplies += [_supply_leg(offers, leg, rng) for leg in legs]
    _distract(offers, legs[0], cities[-1], rng)
    spoilt = _spoilt(difficulty, seed, len(supplies), rng)
    hidden = _hidden([supplies[i] for i in spoilt], offers, rng)
    # the cheapest offer is out of the question where it is hidden that it is sold out or dearer
    left = [s.ranked[1:] if i in spoilt else s.ranked for i, s in enumerate(supplies)]
    budget = sum(ranked[0][0] for ranked in left) + _slack(supplies, left)
    asked = _asked(stays, rng)
    looks, pays = _steps(supplies, left, offers, last_waits=asked == "total")
    seconds = sum(_SECONDS[step.tool] for step in (*looks, *pays))
    deadline = round(1.5 * seconds + 45) if difficulty != "easy" and rng.random() < 0.4 else None
    answer, told, request = _answer(asked, stays, pays)
    return Scenario(
        id=f"travel-{difficulty}-{seed:03d}",
        environment="travel",
        task=_task(legs, stays, budget, deadline) + request,
        world={
            "cities": sorted(cities),
            **offers,
            "budget": budget,
            "spent": 0,
            "bookings": {},
            "seen": {},
        },
        hidden=hidden,
        goal=Goal(conditions={"legs": legs, "stays": stays}, answer=answer, deadline=deadline),
        reference=ReferencePlan(steps=(*looks, *pays), answer=told),
        difficulty=difficulty,
        cluster=f"{template.name}-{asked or 'book'}",
        faults=FAULTS,
    )


def _needs(
    template: Template, route: list[str], rng: Random
) -> tuple[list[Document], list[Document]]:
    """Return the legs and the stays of a trip along ``route``, home first."""
    day, legs, stays = rng.randint(3, 9), [], []
    stops = [*route, route[0]] if template.back else route
    for i, (origin, destination) in enumerate(pairwise(stops)):
        earliest = day - 1 if template.choosy and i == 0 else day
        leg = {"origin": origin, "destination": destination}
        legs.append({**leg, "earliest": earliest, "latest": day})
        if i < len(template.hotels) and template.hotels[i]:
            nights = rng.randint(2, 3)
            stars = 3 if template.choosy else 1
            stays.append({"city": destination, "nights": nights, "stars": stars})
            day += nights
    return legs, stays


def _supply_leg(offers: dict[str, Document], leg: Document, rng: Random) -> _Supply:
    """Lay down flights and dearer trains that serve a leg, and cheap flights a day off."""
    route = (leg["origin"], leg["destination"])
    base, flights, trains = rng.randint(115, 190), [], []
    for day in range(leg["earliest"], leg["latest"] + 1):
        price = base + rng.randint(2, 6) * (leg["latest"] - day)
        for more in (0, rng.randint(5, 9), rng.randint(18, 40)):
            flights.append(_ride(offers["flights"], "F", route, day, price + more, rng))
        for more in (rng.randint(10, 14), rng.randint(15, 30)):
            trains.append(_ride(offers["trains"], "T", route, day, price + more, rng))
    for day in (leg["earliest"] - 1, leg["latest"] + 1):
        _ride(offers["flights"], "F", route, day, base - rng.randint(5, 30), rng)
    return _Supply(leg, tuple(sorted(flights)), train=min(trains)[0])


def _supply_stay(offers: dict[str, Document], stay: Document, rng: Random) -> _Supply:
    """Lay down hotels that will do, and a cheap one with too few stars where stars matter."""
    city, nights, price, ranked = stay["city"], stay["nights"], rng.randint(56, 90), []
    for more in (0, rng.randint(4, 8), rng.randint(9, 14)):
        stars = rng.randint(stay["stars"], 5)
        hotel = _hotel(offers["hotels"], city, stars, price + more, rng)
        ranked.append(((price + more) * nights, hotel))
    if stay["stars"] > 1:
        _hotel(offers["hotels"], city, stay["stars"] - 1, price - rng.randint(10, 20), rng)
    return _Supply(stay, tuple(ranked))


def _distract(offers: dict[str, Document], leg: Document, city: str, rng: Random) -> None:
    """Lay down offers in a city that nobody asked for."""
    for kind, letter in (("flights", "F"), ("trains", "T")):
        route = (leg["origin"], city)
        _ride(offers[kind], letter, route, leg["latest"], rng.randint(60, 110), rng)
    _hotel(offers["hotels"], city, 4, rng.randint(40, 60), rng)


def _ride(
    market: Document, letter: str, route: tuple[str, str], day: int, price: int, rng: Random
) -> tuple[int, str]:
    facts = {"origin": route[0], "destination": route[1], "day": day, "price": price}
    return price, _add(market, letter, {**facts, "seats": rng.randint(2, 9)}, rng)


def _hotel(market: Document, city: str, stars: int, price: int, rng: Random) -> str:
    facts = {"city": city, "stars": stars, "price": price}
    return _add(market, "H", {**facts, "rooms": rng.randint(2, 9)}, rng)


def _add(market: Document, letter: str, offer: Document, rng: Random) -> str:
    offer_id = rng.choice([i for n in range(10, 100) if (i := f"{letter}{n}") not in market])
    market[offer_id] = offer
    return offer_id


def _spoilt(difficulty: str, seed: int, needs: int, rng: Random) -> set[int]:
    """Choose the needs whose cheapest offer is not what the agent believes."""
    if difficulty == "hard" and seed % 2 == 0:
        return set(rng.sample(range(needs), rng.randint(1, 2)))
    return {rng.randrange(needs)} if difficulty == "medium" and seed % 4 == 1 else set()


def _hidden(spoilt: list[_Supply], offers: dict[str, Document], rng: Random) -> Document:
    """Return the patch that makes the cheapest offer of these needs sold out or dearer."""
    hidden: Document = {}
    for supply in spoilt:
        offer_id = supply.ranked[0][1]
        kind, free, more = (
            ("hotels", "rooms", 20) if "city" in supply.need else ("flights", "seats", 40)
        )
        dearer = {"price": offers[kind][offer_id]["price"] + more + rng.randint(0, more // 2)}
        hidden.setdefault(kind, {})[offer_id] = {free: 0} if rng.random() < 0.5 else dearer
    return hidden


def _slack(supplies: list[_Supply], left: list[tuple[tuple[int, str], ...]]) -> int:
    """Return the money for trains or the agency on all legs, and for one offer that is gone."""
    legs = [(s.train, ranked) for s, ranked in zip(supplies, left, strict=True) if s.train]
    trains = sum(max(0, train - ranked[0][0]) for train, ranked in legs)
    gone = max(ranked[1][0] - ranked[0][0] for ranked in left)
    return max(trains, FEE * len(legs)) + gone


def _asked(stays: list[Document], rng: Random) -> str:
    draw = rng.random()
    if draw < 0.5:
        return "nothing"
    return "code" if draw < 0.75 and len(stays) == 1 else "total"


def _steps(
    supplies: list[_Supply],
    left: list[tuple[tuple[int, str], ...]],
    offers: dict[str, Document],
    last_waits: bool,
) -> tuple[list[ReferenceStep], list[ReferenceStep]]:
    """Return the reads, then the payments, of the plan that takes the cheapest offers left."""
    looks: list[ReferenceStep] = []
    pays: list[ReferenceStep] = []
    for supply, ranked in zip(supplies, left, strict=True):
        need, offer_id = supply.need, ranked[0][1]
        if "city" in need:
            one, place, arguments = "hotel", need["city"], {"city": need["city"]}
            chosen = {"nights": need["nights"]}
        else:
            one, place, flight = "flight", need["destination"], offers["flights"][offer_id]
            arguments = {name: flight[name] for name in ("origin", "destination", "day")}
            chosen = {}
        look = f"{one}s_{place.lower()}"
        chosen[f"{one}_id"] = f"${{{look}.{one}s[?id=='{offer_id}'].id | [0]}}"
        waits = last_waits and len(pays) == len(supplies) - 1
        after = [step.step_id for step in pays] if waits else []
        looks.append(ReferenceStep.calling(look, f"search_{one}s", arguments))
        pays.append(ReferenceStep.calling(f"{one}_{place.lower()}", f"book_{one}", chosen, after))
    return looks, pays


def _answer(
    asked: str, stays: list[Document], pays: list[ReferenceStep]
) -> tuple[AnswerGoal | None, str | None, str]:
    """Return what is asked for, how the plan answers it, and the words of the request."""
    if asked == "total":
        total = AnswerGoal(world="spent", tools=(*BOOKS, "list_bookings"), result="spent")
        told = f"${{{pays[-1].step_id}.spent}}"  # the last payment says what was spent in all
        return total, told, " Report the total that was spent."
    if asked == "nothing":
        return None, None, ""
    city = stays[0]["city"]
    code = AnswerGoal(
        world=f"max_by(values(bookings)[?city=='{city}'], &number).code",
        tools=("book_hotel", "call_hotel", "list_bookings"),
        result=f"code || (bookings[?city=='{city}'] | [-1].code)",
    )
    told = f"${{hotel_{city.lower()}.code}}"
    return code, told, " Report the confirmation code of the hotel."


def _task(legs: list[Document], stays: list[Document], budget: int, deadline: int | None) -> str:
    words = []
    for leg in legs:
        days = f"day {leg['latest']}"
        if leg["earliest"] < leg["latest"]:
            days = f"day {leg['earliest']} or {leg['latest']}"
        words.append(f"from {leg['origin']} to {leg['destination']} on {days}")
    for stay in stays:
        stars = f" with at least {stay['stars']} stars" if stay["stars"] > 1 else ""
        words.append(f"a hotel in {stay['city']}{stars} for {stay['nights']} nights")
    text = f"Book a trip for one: {'; '.join(words)}. Spend at most {budget} in all."
    return text if deadline is None else f"{text} Be done within {deadline} seconds."
