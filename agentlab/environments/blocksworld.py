"""``blocksworld``: the classic domain, four operators on the names of blocks.

``world["on"]`` maps each block to the block it lies on, "table" or "arm". Setting any block to
"table" is always consistent: what stands on it comes along. A belief may be inconsistent (two
blocks on one, an unknown place, a circle), so the functions that plan tolerate that. A call that
fails shows the blocks at hand, what is under them and what lies on them.

Planning rests on two facts about blocks on an unlimited table (Gupta and Nau, "On the complexity
of blocks-world planning", 1992). Which blocks have to move follows from the world and the goal
(``misplaced``). And a block whose final place is free should go there at once; only when there is
none, some block has to wait on the table, and which one is all that there is to search for.

``blocks`` adds tags, a crane and seals to these moves.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from agentlab.base.documents import merge_patch
from agentlab.base.schemas import object_schema
from agentlab.base.values import Document
from agentlab.environments.base import Call, Environment, Outcome, failed
from agentlab.environments.scenario import Goal
from agentlab.tools.tool import Effect, Tool

TABLE, ARM = "table", "arm"
TAKING = ("pick_up", "unstack")

Places = Mapping[str, str]
Move = tuple[str, str]
"""A block and the place it goes to."""


def torn(wanted: Mapping[str, object]) -> bool:
    """Say whether a goal wants a block in several places at once (a list of them): none can be."""
    return any(isinstance(place, list) for place in wanted.values())


def under(places: Places, block: str) -> list[str]:
    """Return the blocks below ``block``, nearest first.

    Examples
    --------
    >>> under({"a": "b", "b": "c", "c": "table"}, "a")
    ['b', 'c']
    """
    chain: list[str] = []
    below = places.get(block, TABLE)
    while below not in (TABLE, ARM) and len(chain) <= len(places):
        chain.append(below)
        below = places.get(below, TABLE)
    return chain


def misplaced(on: Places, wanted: Places) -> set[str]:
    """Return the blocks that have to move before every block is where it is wanted.

    A block has to move when it is wanted elsewhere, sits where another is wanted, or stands on a
    block that has to move. No other block ever needs to, but for one in the arm that is in the way.

    Examples
    --------
    >>> sorted(misplaced({"a": "b", "b": "table", "c": "table"}, {"c": "b"}))
    ['a', 'c']
    """
    owner = {place: block for block, place in wanted.items() if place != TABLE}
    moves: dict[str, bool] = {}
    for top in on:
        chain: list[str] = []
        block = top
        while block in on and block not in moves and len(chain) <= len(on):
            chain.append(block)
            block = on[block]
        moving = moves.get(block, False)
        for block in reversed(chain):
            place = on[block]
            moving = moving or wanted.get(block, place) != place or owner.get(place, block) != block
            moves[block] = moving
    return {block for block, moving in moves.items() if moving}


def worthwhile(on: Places, wanted: Places, fixed: Collection[str] = ()) -> list[Move]:
    """Return the moves worth making: one that is final if there is any, else all to the table.

    Empty when nothing has to move, or when a ``fixed`` (sealed) block would have to move or carry.
    """
    moving = misplaced(on, wanted)
    if not moving or (fixed and any(b in fixed or wanted.get(b) in fixed for b in moving)):
        return []
    covered = set(on.values())
    held = [block for block in on if on[block] == ARM][:1]
    loose = held or [block for block in on if block in moving and block not in covered]
    for block in loose:
        place = wanted.get(block, TABLE)
        if place == TABLE or (place not in moving and place not in covered):
            return [(block, place)]
    return [(block, TABLE) for block in loose if on[block] != TABLE]


def construct(on: Places, wanted: Places) -> list[Move]:
    """Return moves that reach ``wanted``: the first worthwhile one each time, without search."""
    moves: list[Move] = []
    while todo := worthwhile(on, wanted):
        moves.append(todo[0])
        on = {**on, todo[0][0]: todo[0][1]}
    return moves


def arm_seconds(on: Places, wanted: Places) -> float:
    """Return a lower bound on the seconds of moves: one to take and one to place a block.

    A block that stands above one that has to move, and will stand above it again, moves twice. (A
    crane that moves the lower one while the arm holds the upper one costs more than it saves.)
    """
    moving = misplaced(on, wanted)
    idle = any(place == ARM and b not in moving for b, place in on.items())
    seconds = 1.0 if moving and idle else 0.0
    for block in moving:
        held = on[block] == ARM
        later = moving.intersection(under(wanted, block))
        again = bool(later) and (held or not later.isdisjoint(under(on, block)))
        seconds += (1.0 if held else 2.0) + (2.0 if again else 0.0)
    return seconds


class Blocksworld(Environment):
    """The classic domain: four operators of one second each, on the names of blocks."""

    name = "blocksworld"

    def tools(self) -> tuple[Tool, ...]:
        """Return the four operators."""
        return arm_tools("Name", seen=False)

    def apply(self, world: Document, call: Call) -> Outcome:
        """Move a block when the preconditions hold; else say and show why not."""
        named = self._named(world, call)
        if isinstance(named, Outcome):
            return named
        block, other = named["block"], named.get("onto", named.get("off", TABLE))
        problem = _obstacle(world, call.tool, block, other)
        if problem:
            return refused(world, *problem, blocks=(block, other))
        place = ARM if call.tool in TAKING else other
        moved = {**world, "on": {**world["on"], block: place}}
        return Outcome(moved, {"block": block, "on": place}, learned={"on": {block: place}})

    def _named(self, world: Document, call: Call) -> dict[str, str] | Outcome:
        """Return the blocks that the arguments stand for."""
        for value in call.arguments.values():
            if value not in world["on"]:
                known = ", ".join(world["on"])
                return refused(world, "unknown_block", f"no block {value!r}; blocks: {known}")
        return call.arguments

    def unmet(self, goal: Goal, world: Document) -> tuple[str, ...]:
        """Return which blocks are not where they are wanted."""
        on, wanted = world["on"], goal.conditions.get("on", {})
        every = [(b, p) for b, ps in wanted.items() for p in (ps if isinstance(ps, list) else [ps])]
        return tuple(f"{b} is not on {place}" for b, place in every if on.get(b) != place)

    def candidates(self, belief: Document, goal: Goal) -> Iterable[Call]:
        """Return the next call of each worthwhile move; nothing is where the goal cannot be met."""
        on, wanted = belief["on"], goal.conditions.get("on", {})
        if torn(wanted):
            return
        for block, place in worthwhile(on, wanted):
            tool, arguments = arm_call(on[block], block, place)
            yield Call(tool, arguments)

    def moves(self, world: Document, goal: Goal) -> Iterable[Call]:
        """Return every call that the arm can make, also those that lead away."""
        yield from (Call(tool, arguments) for tool, arguments in arm_moves(world["on"], ()))

    def key(self, world: Document) -> Hashable:
        """Return where every block is."""
        return tuple(world["on"].values())

    def estimate(self, goal: Goal, world: Document) -> float:
        """Return the seconds of the moves that cannot be avoided."""
        wanted = goal.conditions.get("on", {})
        return inf if torn(wanted) else arm_seconds(world["on"], wanted)

    def disturb(self, world: Document, call: Call, draw: float) -> dict[str, Any] | None:
        """Let a block that ``call`` needs fall to the table, or another one be put on it."""
        named = self._named(world, call)
        if isinstance(named, Outcome):
            return None
        on, fixed = world["on"], fixed_blocks(world)
        used = [b for b in on if b in named.values() and b not in fixed]
        clear = [b for b in on if b not in on.values() and b not in fixed and on[b] != ARM]
        falls = [(b, TABLE) for b in used]
        lands = [(b, u) for u in used if u in clear for b in clear if b not in used]
        patches = [{"on": {block: place}} for block, place in falls + lands]
        spoils = [p for p in patches if self.apply(merge_patch(world, p), call).error]
        return spoils[int(draw * len(spoils))] if spoils else None


MOVED = object_schema(block={"type": "string"}, on={"type": "string"})


def arm_tools(kind: str, seen: bool) -> tuple[Tool, ...]:
    """Return the four operators on names or tags of blocks."""

    def make(name: str, description: str, **others: str) -> Tool:
        texts = {"block": f"{kind} of the block", **others}
        properties = {key: {"type": "string", "description": t} for key, t in texts.items()}
        needs = tuple(properties) if seen else ()
        schema = object_schema(**properties)
        return Tool(name, description, schema, MOVED, Effect.WRITE, 1.0, ("arm",), needs)

    return (
        make("pick_up", "Take a clear block from the table into the empty arm"),
        make("put_down", "Put the block in the arm on the table"),
        make("stack", "Put the block in the arm on a clear block", onto=f"{kind} of the lower one"),
        make("unstack", "Take a clear block off another", off=f"{kind} of the one it lies on"),
    )


def arm_call(source: str, block: str, place: str) -> tuple[str, dict[str, str]]:
    """Return the arm's next call towards moving ``block`` from ``source`` to ``place``."""
    if source == ARM:
        if place == TABLE:
            return "put_down", {"block": block}
        return "stack", {"block": block, "onto": place}
    if source == TABLE:
        return "pick_up", {"block": block}
    return "unstack", {"block": block, "off": source}


def arm_moves(on: Places, fixed: Collection[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Return every call that the arm can make where ``fixed`` blocks neither move nor carry."""
    clear = [b for b in on if b not in on.values() and b not in fixed]
    held = next((b for b in on if on[b] == ARM), None)
    if held is None:
        yield from (arm_call(on[b], b, ARM) for b in clear)
    else:
        yield from (arm_call(ARM, held, place) for place in (TABLE, *clear) if place != held)


def _obstacle(world: Document, tool: str, block: str, other: str) -> tuple[str, str] | None:
    """Return code and message of the first precondition that does not hold."""
    on = world["on"]
    here = on[block]
    source = {"crane_move": here, "pick_up": TABLE, "unstack": other}.get(tool, ARM)
    if here != source:
        return "not_there", f"{block} is {where(here)}, not {where(source)}"
    clear = [block, other] if tool in ("stack", "crane_move") and other != TABLE else [block]
    for needed in clear:
        rider = next((b for b, place in on.items() if place == needed), None)
        if rider is not None:
            return "not_clear", f"{rider} lies on {needed}"
    if tool in TAKING:
        held = next((b for b, place in on.items() if place == ARM), None)
        if held is not None:
            return "arm_full", f"the arm holds {held}"
    if len(clear) == 2 and (block == other or on[other] == ARM):
        return "bad_target", f"{block} cannot be put on {other}, which is {where(on[other])}"
    sealed = sorted(fixed_blocks(world).intersection((block, other)))
    return ("sealed", f"{sealed[0]} is part of a sealed tower") if sealed else None


def where(place: str) -> str:
    """Put a place into words."""
    return "in the arm" if place == ARM else f"on {place}"


def refused(
    world: Document,
    code: str,
    message: str,
    blocks: Sequence[str] = (),
    learned: dict[str, Any] | None = None,
) -> Outcome:
    """Return an error that shows ``blocks``, all below them, what lies on them and in the arm.

    Everything below is part of it so that what is learned never closes a circle in a belief.
    """
    on = world["on"]
    touched = set(blocks) - {TABLE}
    shown = {b for block in touched for b in (block, *under(on, block))}
    shown |= {b for b, place in on.items() if touched and (place in touched or place == ARM)}
    if shown:
        learned = {"on": {b: on[b] for b in on if b in shown}}
        if world.get("seals"):
            learned["seals"] = world["seals"]
    return failed(world, code, message, learned)


def fixed_blocks(world: Document) -> set[str]:
    """Return the blocks of sealed towers."""
    on, seals = world["on"], world.get("seals")
    return {b for b in on if not seals.keys().isdisjoint((b, *under(on, b)))} if seals else set()
