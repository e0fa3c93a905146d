"""Scenarios of ``blocks``: eight templates at three sizes.

A reference plan looks, then makes the first worthwhile move each time (``construct``), then seals.
It is not searched for, and it need not be the shortest.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentlab.base.randomness import generator
from agentlab.base.values import Document
from agentlab.environments.base import Call
from agentlab.environments.blocks import READS, SEALING
from agentlab.environments.blocksworld import (
    ARM,
    TABLE,
    Blocksworld,
    Move,
    Places,
    arm_call,
    construct,
    under,
)
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.scenario import AnswerGoal, Goal, ReferencePlan, ReferenceStep, Scenario
from agentlab.environments.suites import Suite
from agentlab.errors import UnknownNameError

SIZES = {"easy": (3, 4), "medium": (5, 6), "hard": (8, 10)}
CALLS = {"easy": range(4, 9), "medium": range(8, 17), "hard": range(14, 25)}
"""How many calls of the arm a reference plan may have."""
NAMES = (
    "amber", "black", "blue", "brown", "cyan", "green",
    "grey", "orange", "pink", "purple", "red", "white",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of scenario."""

    goal: str
    """"tower": all in one; "invert": one tower upside down; "regroup": several; "dig": a few."""
    sealed: bool = False
    """The first tower of the goal is to be sealed."""
    answer: str = ""
    """What is asked for: "tag", "seal" or nothing."""
    moved: bool = False
    """Someone has moved a block, so the belief is wrong."""


TEMPLATES = {
    "tower": Template("tower"),
    "invert": Template("invert"),
    "regroup": Template("regroup"),
    "dig": Template("dig", answer="tag"),
    "weld": Template("regroup", sealed=True),
    "certificate": Template("tower", sealed=True, answer="seal"),
    "moved": Template("regroup", moved=True),
    "moved_weld": Template("regroup", sealed=True, answer="seal", moved=True),
}
FAULTS = FaultPlan.mixed(
    permanent=0.2, silent=0.15, error=0.6, timeout=0.1, timeout_after_commit=0.1,
    wrong_result=0.1, latency_spike=0.1,
)  # fmt: skip


def generate(difficulty: str = "medium", seed: int = 0, template: str | None = None) -> Scenario:
    """Make a scenario.

    Parameters
    ----------
    difficulty : {"easy", "medium", "hard"}
        3-4, 5-6 or 8-10 blocks.
    seed : int
        Draws the blocks, their places and the goal.
    template : str, optional
        One of `TEMPLATES`; by default ``seed`` goes round them.

    Raises
    ------
    UnknownNameError
        No such difficulty or template.
    """
    if difficulty not in SIZES:
        raise UnknownNameError("difficulty", difficulty, SIZES)
    name = template or list(TEMPLATES)[seed % len(TEMPLATES)]
    if name not in TEMPLATES:
        raise UnknownNameError("template", name, TEMPLATES)
    kind = TEMPLATES[name]
    rng = generator("blocks", difficulty, seed, name)
    blocks = sorted(rng.sample(NAMES, rng.randint(*SIZES[difficulty])))
    while True:
        on, wanted = _problem(rng, blocks, kind.goal)
        calls = arm_calls(on, construct(on, wanted))
        moved = _misremember(rng, on, wanted) if kind.moved else {}
        if len(calls) in CALLS[difficulty] and bool(moved) == kind.moved:
            break
    bottoms = [block for block, place in wanted.items() if place == TABLE]
    sealed = [b for b in bottoms if b in wanted.values()][:1] if kind.sealed else []
    tags = [f"tag-{value:04x}" for value in rng.sample(range(16**4), len(blocks))]
    answer, told, request = _answer(wanted, sealed, kind)
    return Scenario(
        id=f"blocks-{difficulty}-{seed:03d}",
        environment="blocks",
        task=_task(wanted, sealed, kind) + request,
        world={
            "on": {**on, **moved},
            "tags": dict(zip(blocks, tags, strict=True)),
            "seals": {},
            "seen": {},
        },
        hidden={"on": {block: on[block] for block in moved}} if moved else {},
        goal=Goal(conditions={"on": wanted, "seals": sealed}, answer=answer),
        reference=_reference(calls, sealed, told),
        difficulty=difficulty,
        cluster=f"blocks-{name}-{difficulty}",
        faults=FAULTS,
    )


def suite() -> Suite:
    """Return the 40 scenarios that are frozen in ``datasets/blocks.jsonl``."""
    sizes = {"easy": 13, "medium": 13, "hard": 14}
    return Suite("blocks", [generate(d, seed) for d, n in sizes.items() for seed in range(n)])


def _piles(rng: random.Random, blocks: Sequence[str], count: int) -> dict[str, str]:
    """Return the blocks in so many towers, in random order."""
    order = rng.sample(blocks, len(blocks))
    bottoms = {0, *rng.sample(range(1, len(blocks)), count - 1)}
    on = {b: TABLE if i in bottoms else order[i - 1] for i, b in enumerate(order)}
    return dict(sorted(on.items()))


def _problem(
    rng: random.Random, blocks: Sequence[str], goal: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return where the blocks are and where they are wanted."""
    several = range(2, max(2, len(blocks) // 3) + 1)
    if goal == "invert":
        on = _piles(rng, blocks, 1)
        above = {place: block for block, place in on.items()}
        return on, {block: above.get(block, TABLE) for block in on}
    on = _piles(rng, blocks, rng.choice(several))
    if goal == "dig":
        deep = sorted(blocks, key=lambda b: (len(under(on, b)), b))[: len(blocks) // 2 + 1]
        picked = rng.sample(deep, min(len(deep), 1 + len(blocks) // 3))
        return on, dict(sorted(zip(picked[1:], picked, strict=False)))
    return on, _piles(rng, blocks, 1 if goal == "tower" else rng.choice(several))


def _misremember(rng: random.Random, on: Places, wanted: Places) -> dict[str, str]:
    """Return a false place of one block such that a plan made on it fails; empty: none found."""
    tops = [b for b in on if b not in on.values()]
    false = [(b, p) for b in tops for p in (TABLE, *tops) if p not in (b, on[b]) and on[b] != TABLE]
    rng.shuffle(false)
    for block, place in false:
        believed = {**on, block: place}
        world: Document = {"on": on}
        for tool, arguments in arm_calls(believed, construct(believed, wanted)):
            outcome = Blocksworld().apply(world, Call(tool, arguments))
            if outcome.error:
                return {block: place}
            world = outcome.world
    return {}


def arm_calls(on: Places, moves: Iterable[Move]) -> list[tuple[str, dict[str, str]]]:
    """Return the arm's calls, by name, that carry out ``moves``."""
    calls = []
    for block, place in moves:
        if on[block] != ARM:
            calls.append(arm_call(on[block], block, place))
        calls.append(arm_call(ARM, block, place))
        on = {**on, block: place}
    return calls


def _reference(
    calls: Sequence[tuple[str, dict[str, str]]], sealed: Sequence[str], answer: str | None
) -> ReferencePlan:
    named = [*calls, *(("weld", {"bottom": block}) for block in sealed)]
    steps = [ReferenceStep(step_id="look", tool="look")]
    for tool, arguments in named:
        subject = next(iter(arguments.values()))
        tags = {key: f"${{look.{_tag_path(block)}}}" for key, block in arguments.items()}
        before = (steps[-1].step_id,)
        steps.append(ReferenceStep.calling(f"{tool}_{subject}", tool, tags, before))
    return ReferencePlan(steps=tuple(steps), answer=answer)


def _tag_path(block: str) -> str:
    return f"blocks[?name=='{block}'].tag | [0]"


def _answer(
    wanted: Places, sealed: Sequence[str], kind: Template
) -> tuple[AnswerGoal | None, str | None, str]:
    """Return what is asked for, how the plan answers it, and the words of the request."""
    if kind.answer == "tag":
        block = next(iter(wanted))
        path = _tag_path(block)
        goal = AnswerGoal(world=f"tags.{block}", tools=READS, result=path)
        return goal, f"${{look.{path}}}", f" Report the tag of {block}."
    if kind.answer == "seal":
        path = f"seals.{sealed[0]}"
        goal = AnswerGoal(world=path, tools=SEALING, result=path)
        return goal, f"${{weld_{sealed[0]}.{path}}}", " Report the number of the seal."
    return None, None, ""


def _task(wanted: Places, sealed: Sequence[str], kind: Template) -> str:
    if kind.goal == "dig":
        text = "; ".join(f"{block} on {place}" for block, place in wanted.items())
        text = f"Arrange the blocks so that these lie directly on one another: {text}."
    else:
        tops = [block for block in wanted if block not in wanted.values()]
        towers = [", ".join([*reversed(under(wanted, top)), top]) for top in tops]
        text = f"Build these towers, each from the bottom up: {'; '.join(towers)}."
    if sealed:
        text += f" Then seal the tower on {sealed[0]}, and no other, for good."
    return text
