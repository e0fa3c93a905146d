"""``travel``: book a trip within a budget: data flow, alternatives, payments that stand.

Flights, trains and hotels are offers, maps from id to what is sold. A goal lists needs: legs (from
where to where, on which days) and stays (city, nights, at least so many stars). A booking that
fits a need meets it. Ids must have been shown by a read before they can be booked, nothing can be
given back, and booking the same thing twice pays twice: nothing stops a caller who repeats a
payment whose outcome it does not know.

The budget is in the world and the payment system holds to it: a payment above it is refused, and
the refusal lists what was paid so far. So a second ticket by mistake shows when the money for
something else is gone. ``list_bookings`` shows it earlier.

There are two ways or more to do anything (quick ones first):

=======  ====================================================  =================================
to       a leg                                                 a stay
=======  ====================================================  =================================
look     search_flights, search_trains, ask_agency (both)      search_hotels, hotel_directory
book     book_flight, book_train, agency_book (either; a fee)  book_hotel, call_hotel
=======  ====================================================  =================================

Left out: cancelling, times of day, several travellers. Needs of a goal differ in their places, so
that no booking meets two of them. The scenarios are made in ``generators``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from agentlab.base.documents import digest, merge_patch
from agentlab.base.values import Document
from agentlab.environments.base import Call, Environment, Outcome, failed, fitting, showing
from agentlab.environments.scenario import Goal
from agentlab.environments.travel_tools import (
    BOOKS,
    FEE,
    FREE,
    MOST_NIGHTS,
    SHOWS,
    TOOLS,
)
from agentlab.tools.tool import Tool

_SECONDS = {tool.name: tool.seconds for tool in TOOLS}
_ID = {tool.name: tool.seen[0] for tool in TOOLS if tool.seen}
_LOOK = {kind: min(_SECONDS[t] for t in SHOWS if kind in SHOWS[t]) for kind in FREE}
_PAY = {kind: min(_SECONDS[t] for t in BOOKS if kind in BOOKS[t]) for kind in FREE}


@dataclass(frozen=True, slots=True)
class _Option:
    """An offer that fits a need and is not sold out."""

    cost: int
    """For all nights, without a fee."""
    id: str
    kind: str
    seen: bool


class Travel(Environment):
    """Trips to book: offers, a budget, payments that stand."""

    name = "travel"

    def tools(self) -> tuple[Tool, ...]:
        """Return the eleven tools."""
        return TOOLS

    def apply(self, world: Document, call: Call) -> Outcome:
        """Show offers, book one, or list what is booked."""
        if call.tool in SHOWS:
            return _show(world, call)
        return _book(world, call) if call.tool in BOOKS else _list(world)

    def unmet(self, goal: Goal, world: Document) -> tuple[str, ...]:
        """Return the needs that no booking meets, and a broken budget."""
        reasons = [f"not booked: {_describe(need)}" for need in _open(goal, world)]
        if world["spent"] > world["budget"]:
            reasons.append(f"spent {world['spent']} of {world['budget']}")
        return tuple(reasons)

    def candidates(self, belief: Document, goal: Goal) -> Iterable[Call]:
        """Return the calls that serve the next need, cheapest offer first.

        Needs share nothing but the money, so their order changes no cost and one order is enough:
        look first, pay later. That is: ways to look at what the first need without a seen option
        can be met with; when all have one, ways to pay for (or look further at) the first need's.
        Options are those that leave enough for the cheapest ones of all other needs; of a kind the
        two cheapest, for they differ in nothing but the price.

        When the trip is booked, what may still be asked for is the answer.
        """
        needs, options, spare = _outlook(goal, belief)
        if not needs:
            yield Call("list_bookings")
            return
        if not all(options):
            return
        cheapest = [each[0].cost for each in options]
        options = [[o for o in each if o.cost - each[0].cost <= spare] for each in options]
        if not all(options):
            return
        unseen = (i for i, each in enumerate(options) if not any(o.seen for o in each))
        first = next(unseen, 0)
        money = cheapest[first] + spare
        for kind in FREE:
            for option in [o for o in options[first] if o.seen and o.kind == kind][:2]:
                yield from _ways_to_pay(needs[first], option, money)
        yield from _ways_to_look(belief, [o for o in options[first] if not o.seen])

    def moves(self, world: Document, goal: Goal) -> Iterable[Call]:
        """Return the ways to look at, and to pay for, whatever meets an open need.

        A hotel may be paid for longer than is needed, as far as the money goes.
        """
        left = world["budget"] - world["spent"]
        for need in _open(goal, world):
            options = _options(need, world)
            yield from _ways_to_look(world, [o for o in options if not o.seen])
            for option in [o for o in options if o.seen]:
                yield from _ways_to_pay(need, option, left)
                nights = need.get("nights", MOST_NIGHTS)
                for more in range(nights + 1, MOST_NIGHTS + 1):
                    longer = replace(option, cost=option.cost // nights * more)
                    yield from _ways_to_pay({**need, "nights": more}, longer, left)
        if goal.answer is not None and world["bookings"]:
            yield Call("list_bookings")

    def key(self, world: Document) -> tuple[Any, ...]:
        """Return the money, what was seen and booked, and what every offer is and costs now."""
        offers = [
            (offer_id, offer.get("price"), offer.get(free))
            for kind, free in FREE.items()
            for offer_id, offer in world[kind].items()
        ]
        money = (world["budget"], world["spent"])
        return (*money, frozenset(world["seen"]), frozenset(world["bookings"]), *offers)

    def estimate(self, goal: Goal, world: Document) -> float:
        """Return the seconds to look at (if not yet seen) and pay for the quickest options.

        Infinite when a need has no option left or the money cannot suffice.
        """
        _, options, spare = _outlook(goal, world)
        if spare < 0 or not all(options):
            return math.inf
        return sum(
            min(_PAY[o.kind] + (0.0 if o.seen else _LOOK[o.kind]) for o in each) for each in options
        )

    def disturb(self, world: Document, call: Call, draw: float) -> dict[str, Any] | None:
        """Sell out what a call is about to book, or raise its price by 10 to 25 %."""
        found = _find(world, call) if call.tool in BOOKS else None
        if found is None:
            return None
        kind, offer_id, offer = found
        price = math.ceil(offer["price"] * (1.1 + 0.3 * (draw - 0.5)))
        return {kind: {offer_id: {FREE[kind]: 0} if draw < 0.5 else {"price": price}}}

    understood = staticmethod(fitting)

    def constrain(self, world: Document, draw: float) -> dict[str, Any] | None:
        """Lower the budget by 1 to 4 %, not below what is spent."""
        cut = math.ceil(world["budget"] * (0.01 + 0.03 * draw))
        budget = max(world["spent"], world["budget"] - cut)
        return {"budget": budget} if budget < world["budget"] else None


def _open(goal: Goal, world: Document) -> list[Document]:
    """Return the needs that no booking meets: stays, then legs, which have more alternatives."""
    needs = (*goal.conditions.get("stays", ()), *goal.conditions.get("legs", ()))
    booked = world["bookings"].values()
    return [need for need in needs if not any(_fits(need, booking) for booking in booked)]


def _fits(need: Document, thing: Document) -> bool:
    """Say whether an offer or a booking is what the need asks for."""
    if "city" in need:
        return bool(
            thing.get("city") == need["city"]
            and thing.get("stars", 0) >= need["stars"]
            and thing.get("nights", need["nights"]) >= need["nights"]
        )
    return bool(
        thing.get("destination") == need["destination"]
        and thing.get("origin") == need["origin"]
        and need["earliest"] <= thing.get("day", 0) <= need["latest"]
    )


def _describe(need: Document) -> str:
    if "city" in need:
        return f"{need['nights']} nights in {need['city']}"
    return f"{need['origin']} to {need['destination']}"


def _whole(kind: str, offer: Document) -> bool:
    """Say whether an offer still has its price: in a belief, a silent fault may have made it up."""
    return "price" in offer and FREE[kind] in offer


def _outlook(goal: Goal, world: Document) -> tuple[list[Document], list[list[_Option]], int]:
    """Return the open needs, the options of each, cheapest first, and the money to spare.

    To spare is what is left after the cheapest option of every open need.
    """
    needs = _open(goal, world)
    options: list[list[_Option]] = []
    spare = world["budget"] - world["spent"]
    for need in needs:
        fitting = _options(need, world)
        spare -= fitting[0].cost if fitting else 0
        options.append(fitting)
    return needs, options, int(spare)


def _options(need: Document, world: Document) -> list[_Option]:
    """Return what meets a need and is not sold out, cheapest first."""
    nights, seen = need.get("nights", 1), world["seen"]
    fitting = [
        _Option(offer["price"] * nights, offer_id, kind, offer_id in seen)
        for kind in (("hotels",) if "city" in need else ("flights", "trains"))
        for offer_id, offer in world[kind].items()
        if _fits(need, offer) and _whole(kind, offer) and offer[FREE[kind]] > 0
    ]
    return sorted(fitting, key=lambda option: (option.cost, option.id))


def _ways_to_pay(need: Document, option: _Option, money: int) -> Iterator[Call]:
    nights = {"nights": need["nights"]} if "city" in need else {}
    for tool, kinds in BOOKS.items():
        if option.kind in kinds and option.cost + _fee(tool) <= money:
            yield Call(tool, {_ID[tool]: option.id, **nights})


def _ways_to_look(belief: Document, options: list[_Option]) -> Iterator[Call]:
    yielded = set()
    for option in options:
        offer = belief[option.kind][option.id]
        names = ("city",) if option.kind == "hotels" else ("origin", "destination", "day")
        arguments = {name: offer[name] for name in names}
        for tool, kinds in SHOWS.items():
            way = (tool, *arguments.values())
            if option.kind in kinds and way not in yielded:
                yielded.add(way)
                yield Call(tool, arguments)


def _fee(tool: str) -> int:
    return FEE if tool == "agency_book" else 0


def _find(world: Document, call: Call) -> tuple[str, str, Document] | None:
    """Return kind, id and offer that a booking call names, if it exists."""
    offer_id = call.arguments[_ID[call.tool]]
    for kind in BOOKS[call.tool]:
        if offer_id in world[kind]:
            return kind, offer_id, world[kind][offer_id]
    return None


def _show(world: Document, call: Call) -> Outcome:
    """Show what is free; that something is sold out is learned from its absence."""
    for name, value in call.arguments.items():
        if name != "day" and value not in world["cities"]:
            message = f"no {name} {value!r}; cities: {', '.join(world['cities'])}"
            return failed(world, "unknown_city", message, permanent=True)
    result: dict[str, Any] = {}
    learned: dict[str, Any] = {}
    seen: list[str] = []
    for kind in SHOWS[call.tool]:
        learned[kind] = {
            offer_id: offer
            for offer_id, offer in world[kind].items()
            if call.arguments.items() <= offer.items() and _whole(kind, offer)
        }
        free = [{"id": i, **offer} for i, offer in learned[kind].items() if offer[FREE[kind]] > 0]
        result[kind] = sorted(free, key=lambda offer: (offer["price"], offer["id"]))
        seen += [offer["id"] for offer in free]
    return showing(world, result, learned, seen)


def _book(world: Document, call: Call) -> Outcome:
    """Pay for an offer that was shown, is free and can be afforded."""
    offer_id, found = call.arguments[_ID[call.tool]], _find(world, call)
    if found is None:
        what = " or ".join(kind.removesuffix("s") for kind in BOOKS[call.tool])
        anywhere = any(offer_id in world[kind] for kind in FREE)
        names = BOOKS[call.tool] if anywhere else (*BOOKS[call.tool], "seen")
        gone: dict[str, Any] = {name: {offer_id: None} for name in names}
        message = f"there is no {what} {offer_id!r}"
        return failed(world, "unknown_offer", message, gone, permanent=True)
    kind, _, offer = found
    if offer_id not in world["seen"]:
        message = f"{offer_id!r} is not known yet: no search has shown it"
        return failed(world, "not_seen", message, {"seen": {offer_id: None}})
    free = FREE[kind]
    if offer[free] < 1:
        gone = {kind: {offer_id: {free: 0}}}
        return failed(world, "sold_out", f"no {free} left: {offer_id}", gone, permanent=True)
    stay = {"nights": call.arguments["nights"]} if kind == "hotels" else {}
    cost = offer["price"] * stay.get("nights", 1) + _fee(call.tool)
    spent, budget = world["spent"], world["budget"]
    if spent + cost > budget:
        paid = ", ".join(f"{b['offer']} {b['paid']}" for b in _in_order(world)) or "nothing yet"
        message = f"{offer_id} costs {cost}; {spent} of {budget} are spent ({paid})"
        learned = {**_account(world), kind: {offer_id: offer}}
        return failed(world, "over_budget", message, learned, permanent=True)
    return _pay(world, kind, offer_id, cost, stay)


def _pay(world: Document, kind: str, offer_id: str, cost: int, stay: dict[str, Any]) -> Outcome:
    offer, number = world[kind][offer_id], len(world["bookings"]) + 1
    code = digest([offer_id, number])[:6].upper()
    facts = {name: value for name, value in offer.items() if name not in ("price", FREE[kind])}
    booking = {
        "code": code, "kind": kind, "offer": offer_id, "number": number, "paid": cost,
        **facts, **stay,
    }  # fmt: skip
    sold = {**offer, FREE[kind]: offer[FREE[kind]] - 1}
    money = {"spent": world["spent"] + cost, "budget": world["budget"]}
    learned = {**money, kind: {offer_id: sold}, "bookings": {code: booking}}
    result = {"code": code, "offer": offer_id, "paid": cost, **money}
    return Outcome(merge_patch(world, learned), result, learned=learned)


def _list(world: Document) -> Outcome:
    account = _account(world)
    return Outcome(world, {**account, "bookings": _in_order(world)}, learned=account)


def _in_order(world: Document) -> list[Document]:
    return sorted(world["bookings"].values(), key=lambda booking: int(booking["number"]))


def _account(world: Document) -> dict[str, Any]:
    """Return what a full statement teaches."""
    return {name: world[name] for name in ("spent", "budget", "bookings")}
