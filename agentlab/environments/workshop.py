"""``workshop``: orders made of parts, on machines that are shared: parallel plans, makespan.

An order is a product of several parts. A part has a route, the operations that it needs in order,
each on a machine that is held meanwhile; its size times the machine's pace is how long that takes.
When all its parts are done an order is assembled, inspected and delivered. Of some machines there
are several (``capacities``), so what a plan gains by going on with two parts at once is limited by
what they share.

Information comes first: a job card must have been read before its parts can be worked on, and a
blank must have been seen on the shelf before it is cut. There are two ways to do anything, the
first quicker, the second without the machine:

========  ==============  ==================      ========  ==============  ===================
to        by machine      by hand                 to        by machine      by hand
========  ==============  ==================      ========  ==============  ===================
read      read_card       ask_foreman             paint     spray           brush
look      check_shelf     count_shelf             dry       kiln_dry        air_dry
cut       saw             cut_by_hand             join      assemble        assemble_on_floor
turn      turn            carve                   inspect   gauge           inspect_by_eye
drill     drill           drill_by_hand           deliver   drive           carry
weld      weld            rivet
========  ==============  ==================      ========  ==============  ===================

A machine may be out of order and a blank may be gone, which only trying (or looking) shows. A
delivery cannot be taken back, and an order that was not inspected is delivered all the same, and
then no longer inspected. The scenarios are made in ``generators``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from agentlab.base.documents import digest
from agentlab.base.schemas import object_schema
from agentlab.base.values import Document
from agentlab.environments.base import Begun, Call, Environment, Outcome, failed, fitting, showing
from agentlab.environments.scenario import Goal
from agentlab.tools.calls import ToolError
from agentlab.tools.tool import Effect, Tool


class Way(NamedTuple):
    """One way to do something."""

    tool: str
    seconds: float
    """For a part of size 1."""
    machine: str = ""
    """What is held meanwhile; empty: nothing that could be short."""


WAYS: dict[str, tuple[Way, Way]] = {
    "cut": (Way("saw", 3, "saw"), Way("cut_by_hand", 8, "bench")),
    "turn": (Way("turn", 5, "lathe"), Way("carve", 13, "bench")),
    "drill": (Way("drill", 2, "drill"), Way("drill_by_hand", 6, "bench")),
    "weld": (Way("weld", 4, "welder"), Way("rivet", 9, "bench")),
    "paint": (Way("spray", 3, "booth"), Way("brush", 7, "bench")),
    "dry": (Way("kiln_dry", 4, "kiln"), Way("air_dry", 10)),
}
"""Operations on a part."""

FINISHING: dict[str, tuple[Way, Way]] = {
    "assembled": (Way("assemble", 5, "bench"), Way("assemble_on_floor", 11)),
    "inspected": (Way("gauge", 2, "gauge"), Way("inspect_by_eye", 6)),
    "delivered": (Way("drive", 4, "van"), Way("carry", 12)),
}
"""What happens to a whole order, in this sequence."""

READS = (Way("read_card", 1), Way("ask_foreman", 4, "foreman"))
LOOKS = (Way("check_shelf", 1), Way("count_shelf", 5, "foreman"))

OPERATION = {way.tool: (name, way) for name, ways in WAYS.items() for way in ways}
STAGE = {way.tool: (name, way) for name, ways in FINISHING.items() for way in ways}
STAGES = tuple(FINISHING)

_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
_ROUTE = {"type": "array", "items": _TEXT}
_PART = object_schema(id=_TEXT, name=_TEXT, material=_TEXT, size=_COUNT, route=_ROUTE, done=_COUNT)
_BLANK = object_schema(id=_TEXT, material=_TEXT)
_WORKED = object_schema(part=_TEXT, done=_COUNT, left=_COUNT)
_STAGED = object_schema(["order", "stage"], order=_TEXT, stage=_TEXT, certificate=_TEXT)


def _operation(name: str, way: Way) -> Tool:
    cuts = name == "cut"
    parameters = object_schema(part=_TEXT, **({"blank": _TEXT} if cuts else {}))
    text = f"{name.capitalize()} a part; takes {way.seconds:g} s for each unit of its size"
    return _tool(way, text, parameters, _WORKED, Effect.WRITE, tuple(parameters["properties"]))


def _tool(
    way: Way, text: str, parameters: Document, returns: Document, effect: Effect,
    seen: tuple[str, ...] = (),
) -> Tool:  # fmt: skip
    holds = (way.machine,) if way.machine else ()
    return Tool(
        way.tool, text, parameters, returns, effect, way.seconds, holds, seen,
        timeout=max(10.0, 9 * way.seconds),
    )  # fmt: skip


def _tools() -> Iterator[Tool]:
    order, material = object_schema(order=_TEXT), object_schema(material=_TEXT)
    card = object_schema(order=_TEXT, parts={"type": "array", "items": _PART})
    shelf = object_schema(blanks={"type": "array", "items": _BLANK})
    for way in READS:
        yield _tool(way, "Show the job card of an order: its parts", order, card, Effect.READ)
    for way in LOOKS:
        yield _tool(way, "Show the blanks of a material", material, shelf, Effect.READ)
    for name, ways in WAYS.items():
        yield from (_operation(name, way) for way in ways)
    words = {
        "assembled": "Assemble an order of which all parts are done",
        "inspected": "Inspect an assembled order; returns its certificate",
        "delivered": "Deliver an assembled order; cannot be taken back",
    }
    for name, ways in FINISHING.items():
        effect = Effect.IRREVERSIBLE if name == "delivered" else Effect.WRITE
        yield from (_tool(way, words[name], order, _STAGED, effect) for way in ways)


TOOLS = tuple(_tools())


class Workshop(Environment):
    """Orders of parts with routes over shared machines."""

    name = "workshop"

    def tools(self) -> tuple[Tool, ...]:
        """Return the reads, the operations and what finishes an order, each in two ways."""
        return TOOLS

    def capacities(self, world: Document) -> Mapping[str, int]:
        """Return how many there are of each machine."""
        return {name: int(machine.get("count", 1)) for name, machine in world["machines"].items()}

    def begin(self, world: Document, call: Call) -> Begun | ToolError:
        """Start a call; an operation takes longer on a larger part."""
        tool = self.registry[call.tool]
        if call.tool not in OPERATION:
            return Begun(tool.seconds, tool.holds)
        size = world["parts"].get(call.arguments["part"], {}).get("size", 1)
        return Begun(tool.seconds * size, tool.holds)

    def apply(self, world: Document, call: Call) -> Outcome:
        """Show, work on a part, or bring an order to its next stage."""
        if call.tool in OPERATION:
            return _worked(world, call)
        if call.tool in STAGE:
            return _staged(world, call)
        return _shelf(world, call) if "material" in call.arguments else _card(world, call)

    def unmet(self, goal: Goal, world: Document) -> tuple[str, ...]:
        """Return which orders are not delivered, or were not inspected before."""
        orders = world["orders"]
        return tuple(
            f"order {name} is not {stage}"
            for name in goal.conditions.get("orders", ())
            for stage in STAGES[1:]
            if not orders.get(name, {}).get(stage)
        )

    def candidates(self, belief: Document, goal: Goal) -> Iterable[Call]:
        """Return the ways to do the next thing: parts share no cost, so one sequence will do.

        An order's card is read first, then for each part a blank is found, and its route followed.
        """
        for name in goal.conditions.get("orders", ()):
            order = belief["orders"].get(name, {})
            if order.get("delivered"):
                continue
            for part_id, part in _parts(belief, name):
                operation = _next(part)
                if part_id not in belief["seen"]:
                    yield from (Call(way.tool, {"order": name}) for way in READS)
                    return
                if operation is not None:
                    yield from self._ways_on(belief, part_id, part, operation)
                    return
            stage = next(s for s in STAGES if not order.get(s))
            ways = [w for w in FINISHING[stage] if _works(belief, w)]
            yield from (Call(way.tool, {"order": name}) for way in ways)
            return

    def moves(self, world: Document, goal: Goal) -> Iterable[Call]:
        """Return the ways to do whatever comes next, of every order and part and with every blank.

        An order that is delivered uninspected is a dead end. What is done to an order can be done
        again, to be told its certificate.
        """
        wanted: set[str] = set()
        for name in goal.conditions.get("orders", ()):
            order, parts = world["orders"].get(name, {}), _parts(world, name)
            unseen = [i for i, _ in parts if i not in world["seen"]]
            yield from (Call(way.tool, {"order": name}) for way in (READS if unseen else ()))
            for part_id, part in parts:
                operation = _next(part)
                if operation == "cut":
                    wanted.add(part["material"])
                if operation is not None and part_id in world["seen"]:
                    yield from _ways_to_work(world, part_id, part, operation)
            left = [s for s in STAGES if not order.get(s)]
            again = [s for s in STAGES if order.get(s)]
            told = goal.answer is not None and order.get("inspected")
            ready = left[:1] if all(_next(part) is None for _, part in parts) else []
            for stage in (*ready, *(again if told else ())):
                ways = [w for w in FINISHING[stage] if _works(world, w)]
                yield from (Call(way.tool, {"order": name}) for way in ways)
        for material in sorted(wanted):
            there = [i for i, b in world["blanks"].items() if b["material"] == material]
            if not world["seen"].keys() >= set(there):
                yield from (Call(way.tool, {"material": material}) for way in LOOKS)

    def uses_up(self, call: Call) -> bool:
        """Say whether a call takes a blank; all else is needed, once, for its part or order."""
        return "blank" in call.arguments

    @staticmethod
    def _ways_on(belief: Document, part_id: str, part: Document, operation: str) -> Iterator[Call]:
        blank = {}
        if operation == "cut":
            material = part.get("material")
            blanks = [i for i, b in belief["blanks"].items() if b.get("material") == material]
            found = [i for i in blanks if i in belief["seen"]]
            if blanks and not found:
                yield from (Call(way.tool, {"material": material}) for way in LOOKS)
            if not found:
                return
            blank = {"blank": min(found)}
        for way in WAYS.get(operation, ()):
            if _works(belief, way):
                yield Call(way.tool, {"part": part_id, **blank})

    def key(self, world: Document) -> Hashable:
        """Return what is done, what is left on the shelf, what was seen and which machines work."""
        parts = ((i, p.get("done"), p.get("size")) for i, p in sorted(world["parts"].items()))
        orders = (
            (i, *(bool(o.get(s)) for s in STAGES)) for i, o in sorted(world["orders"].items())
        )
        works = ((i, m.get("works"), m.get("count")) for i, m in sorted(world["machines"].items()))
        return (*parts, *orders, *works, frozenset(world["blanks"]), frozenset(world["seen"]))

    def estimate(self, goal: Goal, world: Document) -> float:
        """Return the seconds of what is left, each thing done in the quickest way that works."""
        total = 0.0
        for name in goal.conditions.get("orders", ()):
            order, parts = world["orders"].get(name, {}), _parts(world, name)
            if order.get("delivered"):
                continue
            total += sum(_quickest(world, FINISHING[s]) for s in STAGES if not order.get(s))
            if any(i not in world["seen"] for i, _ in parts):
                total += READS[0].seconds
            for _, part in parts:
                left = part.get("route", ())[part.get("done", 0) :]
                size = part.get("size", 1)
                total += size * sum(_quickest(world, WAYS[o]) for o in left if o in WAYS)
        return total

    def disturb(self, world: Document, call: Call, draw: float) -> dict[str, Any] | None:
        """Take the blank away that is about to be cut, or break the machine that is used."""
        blank = call.arguments.get("blank")
        if blank in world["blanks"] and draw < 0.5:
            return {"blanks": {blank: None}}
        machine = next(iter(self.registry[call.tool].holds), None)
        return {"machines": {machine: {"works": False}}} if machine in world["machines"] else None

    understood = staticmethod(fitting)

    def constrain(self, world: Document, draw: float) -> dict[str, Any] | None:
        """Take one of several machines of a kind out of service."""
        several = sorted(i for i, m in world["machines"].items() if m.get("count", 1) > 1)
        if not several:
            return None
        chosen = several[int(draw * len(several))]
        return {"machines": {chosen: {"count": world["machines"][chosen]["count"] - 1}}}


def _parts(world: Document, order: str) -> list[tuple[str, Document]]:
    return [(i, p) for i, p in sorted(world["parts"].items()) if p.get("order") == order]


def _ways_to_work(world: Document, part_id: str, part: Document, operation: str) -> Iterator[Call]:
    """Return the ways to carry out an operation, with every blank that was seen and will do."""
    blanks: list[dict[str, str]] = [{}]
    if operation == "cut":
        fitting = (i for i, b in world["blanks"].items() if b["material"] == part["material"])
        blanks = [{"blank": i} for i in sorted(fitting) if i in world["seen"]]
    for way in WAYS.get(operation, ()):
        if _works(world, way):
            yield from (Call(way.tool, {"part": part_id, **blank}) for blank in blanks)


def _next(part: Document) -> str | None:
    """Return the operation that a part needs next."""
    left = part.get("route", [])[part.get("done", 0) :]
    return left[0] if left else None


def _works(world: Document, way: Way) -> bool:
    return bool(world["machines"].get(way.machine, {}).get("works", True))


def _quickest(world: Document, ways: Iterable[Way]) -> float:
    return min((w.seconds for w in ways if _works(world, w)), default=math.inf)


def _card(world: Document, call: Call) -> Outcome:
    name = call.arguments["order"]
    if name not in world["orders"]:
        return failed(world, "unknown_order", f"there is no order {name!r}", permanent=True)
    parts = dict(_parts(world, name))
    shown = [
        {"id": i, **{k: v for k, v in part.items() if k != "order"}} for i, part in parts.items()
    ]
    return showing(world, {"order": name, "parts": shown}, {"parts": parts}, parts)


def _shelf(world: Document, call: Call) -> Outcome:
    """Show what is there; that a blank is gone is learned from its absence."""
    material = call.arguments["material"]
    there = {i: b for i, b in world["blanks"].items() if b["material"] == material}
    shown = [{"id": i, **blank} for i, blank in sorted(there.items())]
    return showing(world, {"blanks": shown}, {"blanks": there}, there)


def _worked(world: Document, call: Call) -> Outcome:
    """Carry an operation out on a part that is known, comes next, and has what it takes."""
    operation, way = OPERATION[call.tool]
    part_id, blank_id = call.arguments["part"], call.arguments.get("blank")
    part = world["parts"].get(part_id)
    for kind, value in (("parts", part_id), ("blanks", blank_id)):
        if value is not None and value not in world[kind]:
            gone: dict[str, Any] = {kind: {value: None}, "seen": {value: None}}
            one = kind.removesuffix("s")
            return failed(world, f"no_{one}", f"there is no {one} {value!r}", gone, permanent=True)
        if value is not None and value not in world["seen"]:
            text = f"{value!r} is not known yet: nothing has shown it"
            return failed(world, "not_seen", text, {"seen": {value: None}})
    learned: dict[str, Any] = {"parts": {part_id: part}}
    if _next(part) != operation:
        wanted = _next(part) or "nothing"
        return failed(world, "wrong_operation", f"{part_id} needs {wanted} next", learned)
    if not _works(world, way):
        return _broken(world, way)
    blanks = world["blanks"]
    if blank_id is not None:
        if blanks[blank_id]["material"] != part["material"]:
            text = f"{part_id} is made of {part['material']}, {blank_id} is not"
            learned["blanks"] = {blank_id: blanks[blank_id]}
            return failed(world, "wrong_material", text, learned, permanent=True)
        blanks = {i: b for i, b in blanks.items() if i != blank_id}
        learned["blanks"] = {blank_id: None}
    done = {**part, "done": part["done"] + 1}
    learned["parts"] = {part_id: done}
    world = {**world, "parts": {**world["parts"], part_id: done}, "blanks": blanks}
    left = len(part["route"]) - done["done"]
    result = {"part": part_id, "done": done["done"], "left": left}
    return Outcome(world, result, learned=learned)


def _broken(world: Document, way: Way) -> Outcome:
    learned = {"machines": {way.machine: world["machines"][way.machine]}}
    return failed(
        world, "out_of_order", f"the {way.machine} is out of order", learned, permanent=True
    )


def _staged(world: Document, call: Call) -> Outcome:
    """Bring an order to a stage; doing it again changes nothing."""
    stage, way = STAGE[call.tool]
    name = call.arguments["order"]
    if name not in world["orders"]:
        return failed(world, "unknown_order", f"there is no order {name!r}", permanent=True)
    order, parts = world["orders"][name], dict(_parts(world, name))
    learned: dict[str, Any] = {"orders": {name: order}, "parts": parts}
    open_parts = [i for i, part in parts.items() if _next(part) is not None]
    if open_parts:
        text = f"not all parts of {name} are done: {', '.join(open_parts)}"
        return failed(world, "not_done", text, learned)
    if stage != STAGES[0] and not order.get("assembled"):
        return failed(world, "not_assembled", f"{name} is not assembled", learned)
    if stage == "inspected" and order.get("delivered") and not order.get(stage):
        return failed(world, "gone", f"{name} was delivered uninspected", learned, permanent=True)
    if not _works(world, way):
        return _broken(world, way)
    mark: Any = True
    if stage == "inspected":
        mark = f"cert-{digest([name, sorted(parts)])[:6]}"
    order = {**order, stage: order.get(stage) or mark}
    world = {**world, "orders": {**world["orders"], name: order}}
    told = {"certificate": order["inspected"]} if order.get("inspected") else {}
    result = {"order": name, "stage": stage, **told}
    return Outcome(world, result, learned={"orders": {name: order}})
