"""``blocks``: towers of blocks, an arm and a crane: long plans, preconditions, known optima.

To the moves of ``blocksworld`` it adds what replanning needs:

- reads before writes: tools take tags, which ``look`` (or ``survey``, slower) shows;
- a way round every tool: ``crane_move`` lifts a block, even out of the arm, onto another or the
  table, slower and without the arm; ``bolt`` does what ``weld`` does;
- something irreversible: a sealed tower never moves and takes no block. Its seal is a number that
  tells what was sealed. A goal lists the towers to seal, by bottom block, and no other may be;
- a belief that may be wrong about where a block lies, until ``look`` or a call that fails shows it.

The world is ``on`` (block to block, "table" or "arm"), ``tags`` (block to tag), ``seals`` (bottom
block to number) and ``seen`` (tags that were read).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from agentlab.base.documents import digest
from agentlab.base.schemas import object_schema
from agentlab.base.values import Document
from agentlab.environments.base import Call, Outcome
from agentlab.environments.blocksworld import (
    ARM,
    MOVED,
    TABLE,
    Blocksworld,
    arm_call,
    arm_moves,
    arm_seconds,
    arm_tools,
    fixed_blocks,
    misplaced,
    refused,
    under,
    where,
    worthwhile,
)
from agentlab.environments.scenario import Goal
from agentlab.tools.tool import Effect, Tool

READS = ("look", "survey")
SEALING = ("weld", "bolt")
SEAL_SECONDS = 2.0

_BLOCK = object_schema(name={"type": "string"}, tag={"type": "string"}, on={"type": "string"})
_VIEW = object_schema(blocks={"type": "array", "items": _BLOCK}, seals={"type": "object"})


class Blocks(Blocksworld):
    """Blocks with tags that have to be read, a crane, and towers that can be sealed."""

    name = "blocks"

    def tools(self) -> tuple[Tool, ...]:
        """Return the arm's tools, the reads, the crane and the two ways to seal."""
        tag = {"type": "string", "description": "Tag of the block"}
        onto = {"type": "string", "description": "Tag of the one to put it on (none: the table)"}
        bottom = {"type": "string", "description": "Tag of the bottom block of the tower"}
        crane = object_schema(["block"], block=tag, onto=onto)
        seal: dict[str, Any] = {
            "parameters": object_schema(bottom=bottom),
            "returns": object_schema(tower={"type": "array"}, seals={"type": "object"}),
            "effect": Effect.IRREVERSIBLE,
            "seen": ("bottom",),
        }
        view: dict[str, Any] = {"parameters": object_schema(), "returns": _VIEW}
        shows = "every block's tag, what it lies on, and the seals"
        return (
            Tool("look", f"Photograph {shows}", seconds=1.0, **view),
            Tool("survey", f"Note down by hand {shows}", seconds=4.0, **view),
            *arm_tools("Tag", seen=True),
            Tool(
                "crane_move", "Lift a clear block, even out of the arm, without using the arm",
                crane, MOVED, Effect.WRITE, 5.0, ("crane",), ("block", "onto"),
            ),
            Tool("weld", "Seal a tower for good", seconds=SEAL_SECONDS, **seal),
            Tool("bolt", "The same by hand", seconds=8.0, **seal),
        )  # fmt: skip

    def apply(self, world: Document, call: Call) -> Outcome:
        """Look, seal or move."""
        if call.tool in READS:
            return _look(world)
        if call.tool in SEALING:
            named = self._named(world, call)
            return named if isinstance(named, Outcome) else _seal(world, named["bottom"])
        return super().apply(world, call)

    def _named(self, world: Document, call: Call) -> dict[str, str] | Outcome:
        """Return the blocks behind the tags; a tag that is none, or unread, is to be forgotten."""
        blocks = {tag: block for block, tag in world["tags"].items() if block in world["on"]}
        for value in call.arguments.values():
            forget = {"seen": {value: None}}
            if value not in blocks:
                message = f"no block carries the tag {value!r}"
                return refused(world, "unknown_tag", message, learned=forget)
            if value not in world["seen"]:
                message = f"the tag {value!r} has not been read; look or survey first"
                return refused(world, "unread_tag", message, learned=forget)
        return {name: blocks[value] for name, value in call.arguments.items()}

    def unmet(self, goal: Goal, world: Document) -> tuple[str, ...]:
        """Return which blocks are not where they are wanted, and which seals are wrong."""
        seals, to_seal = world["seals"], goal.conditions.get("seals", ())
        return (
            *super().unmet(goal, world),
            *(f"the tower on {b} is not sealed" for b in to_seal if b not in seals),
            *(f"the tower on {b} must not be sealed" for b in seals if b not in to_seal),
        )

    def candidates(self, belief: Document, goal: Goal) -> Iterable[Call]:
        """Return the reads while a tag is unread, and each worthwhile move by arm and by crane.

        Sealing comes last: it saves nothing earlier. In a dead end there is nothing to try.
        """
        tags, seen = belief["tags"], belief["seen"]
        if any(tag not in seen for tag in tags.values()):
            yield from map(Call, READS)
        for tool, named in self._ways(belief, goal):
            arguments = {name: tags.get(block) for name, block in named.items()}
            if all(tag in seen for tag in arguments.values()):
                yield Call(tool, arguments)

    @staticmethod
    def _ways(belief: Document, goal: Goal) -> Iterator[tuple[str, dict[str, str]]]:
        on, wanted, seals = belief["on"], goal.conditions.get("on", {}), belief["seals"]
        to_seal = goal.conditions.get("seals", ())
        if any(bottom not in to_seal for bottom in seals):
            return
        for block, place in worthwhile(on, wanted, fixed_blocks(belief)):
            yield arm_call(on[block], block, place)
            onto = {} if place == TABLE else {"onto": place}
            yield "crane_move", {"block": block, **onto}
        if not misplaced(on, wanted):
            for bottom in [b for b in to_seal if b not in seals][:1]:
                for tool in SEALING:
                    yield tool, {"bottom": bottom}

    def moves(self, world: Document, goal: Goal) -> Iterable[Call]:
        """Return the reads that show something new, every call of arm and crane, and the seals.

        Sealing a tower that is not as it is wanted is a dead end. What is sealed can be sealed
        again, to be told its number.
        """
        tags, seen, asked = world["tags"], world["seen"], goal.answer is not None
        if asked or any(tag not in seen for tag in tags.values()):
            yield from map(Call, READS)
        for tool, named in (*_liftings(world), *_sealings(world, goal, asked)):
            arguments = {name: tags.get(block) for name, block in named.items()}
            if all(tag in seen for tag in arguments.values()):
                yield Call(tool, arguments)

    def key(self, world: Document) -> Hashable:
        """Return where every block is, what is sealed and which tags were read."""
        return (*world["on"].values(), frozenset(world["seals"]), frozenset(world["seen"]))

    def estimate(self, goal: Goal, world: Document) -> float:
        """Return the seconds of moves, seals and a read that cannot be avoided."""
        wanted, seals = goal.conditions.get("on", {}), world["seals"]
        to_seal = [b for b in goal.conditions.get("seals", ()) if b not in seals]
        tags, seen = world["tags"], world["seen"]
        needed = misplaced(world["on"], wanted).union(to_seal)
        read = 1.0 if any(tags.get(block) not in seen for block in needed) else 0.0
        return arm_seconds(world["on"], wanted) + SEAL_SECONDS * len(to_seal) + read


def _liftings(world: Document) -> Iterator[tuple[str, dict[str, str]]]:
    """Return every call of arm and crane that can be made."""
    on, fixed = world["on"], fixed_blocks(world)
    yield from arm_moves(on, fixed)
    clear = [b for b in on if b not in on.values() and b not in fixed]
    for block in clear:
        if on[block] != TABLE:
            yield "crane_move", {"block": block}
        for place in clear:
            if place != block and on[place] != ARM:
                yield "crane_move", {"block": block, "onto": place}


def _sealings(world: Document, goal: Goal, again: bool) -> Iterator[tuple[str, dict[str, str]]]:
    """Return the seals of towers that are as they are wanted; of sealed ones only ``again``."""
    on, wanted, seals = world["on"], goal.conditions.get("on", {}), world["seals"]
    moving = misplaced(on, wanted)
    for bottom in goal.conditions.get("seals", ()):
        tower = {b for b in on if bottom in (b, *under(on, b))}
        unfinished = any(b in tower or wanted.get(b) in tower for b in moving)
        if on.get(bottom) == TABLE and (again if bottom in seals else not unfinished):
            yield from ((tool, {"bottom": bottom}) for tool in SEALING)


def _look(world: Document) -> Outcome:
    on, tags, seals = world["on"], world["tags"], world["seals"]
    seen = dict.fromkeys(tags.values(), True)
    learned = {"on": on, "tags": tags, "seals": seals, "seen": seen}
    blocks = [{"name": b, "tag": tag, "on": on.get(b, TABLE)} for b, tag in tags.items()]
    looked = {**world, "seen": {**world["seen"], **seen}}
    return Outcome(looked, {"blocks": blocks, "seals": seals}, learned=learned)


def _seal(world: Document, bottom: str) -> Outcome:
    """Seal a tower; sealing it again changes nothing and tells its number."""
    on, seals = world["on"], world["seals"]
    if on[bottom] != TABLE:
        return refused(world, "not_bottom", f"{bottom} is {where(on[bottom])}", blocks=(bottom,))
    heights = {b: len(below) for b in on if bottom in (below := under(on, b))}
    tower = [bottom, *sorted(heights, key=lambda b: (heights[b], b))]
    seal = {bottom: seals.get(bottom) or f"seal-{digest(tower)[:6]}"}
    sealed = {**world, "seals": {**seals, **seal}}
    return Outcome(sealed, {"tower": tower, "seals": seal}, learned={"seals": seal})
