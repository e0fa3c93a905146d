"""``chain``: n stages in a row, each necessary, faults independent: where the laws are exact.

With per-call fault rate λ and n stages, a plan that is never repaired succeeds with probability
(1−λ)^n, and one whose failed steps are tried k more times with (1−λ^(k+1))^n.

Every stage hands out a token that the next one asks for, so data flows along the whole chain.
``advance`` is quick; ``advance_slowly`` does the same in three times the time, so that there is a
way round a broken tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentlab.base.randomness import generator
from agentlab.base.schemas import object_schema
from agentlab.base.values import Document
from agentlab.environments.base import Call, Environment, Outcome, failed
from agentlab.environments.scenario import AnswerGoal, Goal, ReferencePlan, ReferenceStep, Scenario
from agentlab.environments.suites import Suite
from agentlab.tools.tool import Effect, Tool

LENGTHS = {"easy": 3, "medium": 6, "hard": 10}
NAMES = (
    "intake", "triage", "draft", "review", "costing", "approval",
    "scheduling", "assembly", "inspection", "handover", "billing", "archive",
)  # fmt: skip

_STAGE = object_schema(
    stage={"type": "string", "description": "Name of the stage to carry out"},
    token={"type": "string", "description": "Token of the stage before; 'start' for the first"},
)
_RESULT = object_schema(stage={"type": "string"}, token={"type": "string"})


class Chain(Environment):
    """Stages in a row, each asking for the token of the one before."""

    name = "chain"

    def tools(self) -> tuple[Tool, ...]:
        """Return ``advance`` and its slow alternative."""
        kind: dict[str, Any] = {
            "parameters": _STAGE,
            "returns": _RESULT,
            "effect": Effect.WRITE,
            "seen": ("token",),
        }
        return (
            Tool("advance", "Carry out the next stage of the chain", seconds=1.0, **kind),
            Tool("advance_slowly", "The same by hand", seconds=3.0, **kind),
        )

    def apply(self, world: Document, call: Call) -> Outcome:
        """Carry out a stage when it is its turn and the token is right."""
        stage, token = call.arguments["stage"], call.arguments["token"]
        stages, done = world["stages"], world["done"]
        if stage not in stages:
            message = f"no stage {stage!r}; stages: {', '.join(stages)}"
            return failed(world, "unknown_stage", message)
        if done >= len(stages) or stages[done] != stage:
            turn = stages[done] if done < len(stages) else "nothing"
            message = f"stage {stage!r} is not next; next is {turn}"
            learned: dict[str, Any] = {"done": done}
            if stage in stages[:done]:  # after a timeout one asks again, and must be able to go on
                token = world["tokens"][stage]
                message = f"stage {stage!r} is done, its token is {token}; next is {turn}"
                learned["seen"] = {token: True}
            return failed(world, "out_of_turn", message, learned)
        if token not in world["seen"] or token != self._expected(world):
            message = f"{token!r} is not the token that the stage before handed out"
            return failed(world, "wrong_token", message)
        fresh = world["tokens"][stage]
        learned = {"done": done + 1, "seen": {fresh: True}}
        changed = {**world, "done": done + 1, "seen": {**world["seen"], fresh: True}}
        return Outcome(changed, result={"stage": stage, "token": fresh}, learned=learned)

    @staticmethod
    def _expected(world: Document) -> str:
        done = world["done"]
        return "start" if done == 0 else str(world["tokens"][world["stages"][done - 1]])

    def unmet(self, goal: Goal, world: Document) -> tuple[str, ...]:
        """Return what of the chain is left."""
        wanted, done = goal.conditions["done"], world["done"]
        return () if done >= wanted else (f"{done} of {wanted} stages done",)

    def candidates(self, belief: Document, goal: Goal) -> Iterable[Call]:
        """Return the two ways to carry out the next stage."""
        if belief["done"] < len(belief["stages"]):
            stage = belief["stages"][belief["done"]]
            arguments = {"stage": stage, "token": self._expected(belief)}
            yield Call("advance", arguments)
            yield Call("advance_slowly", arguments)

    def moves(self, world: Document, goal: Goal) -> Iterable[Call]:
        """Return the two ways to carry out the next stage: there is nothing else to do."""
        return self.candidates(world, goal)

    def uses_up(self, call: Call) -> bool:
        """Return False: every stage is needed, once."""
        return False

    def key(self, world: Document) -> int:
        """Return the number of stages done: everything else follows from it."""
        return int(world["done"])

    def estimate(self, goal: Goal, world: Document) -> float:
        """Return the stages left, a second each."""
        return float(max(0, goal.conditions["done"] - world["done"]))


def generate(difficulty: str = "medium", seed: int = 0, length: int | None = None) -> Scenario:
    """Make a chain scenario.

    Parameters
    ----------
    difficulty : {"easy", "medium", "hard"}
        3, 6 or 10 stages.
    seed : int
        Draws the names and the tokens.
    length : int, optional
        Number of stages, 1 to 12, instead of the difficulty's.
    """
    n = length or LENGTHS[difficulty]
    rng = generator("chain", difficulty, seed, n)
    stages = sorted(rng.sample(NAMES, n), key=NAMES.index)
    tokens = {stage: f"{stage}-{rng.randrange(16**6):06x}" for stage in stages}
    handed = ["start", *(f"${{{stage}.token}}" for stage in stages[:-1])]
    steps = tuple(
        ReferenceStep.calling(stage, "advance", {"stage": stage, "token": token})
        for stage, token in zip(stages, handed, strict=True)
    )
    return Scenario(
        id=f"chain-{difficulty}-{seed:03d}" if length is None else f"chain-{n}-{seed:03d}",
        environment="chain",
        task=f"Carry out {', '.join(stages)} in this order and report the last token.",
        world={"stages": stages, "tokens": tokens, "done": 0, "seen": {"start": True}},
        goal=Goal(
            conditions={"done": n},
            answer=AnswerGoal(
                world=f"tokens.{stages[-1]}", tools=("advance", "advance_slowly"), result="token"
            ),
        ),
        reference=ReferencePlan(steps=steps, answer=f"${{{stages[-1]}.token}}"),
        difficulty=difficulty,
    )


def suite() -> Suite:
    """Return the 20 scenarios that are frozen in ``datasets/chain.jsonl``."""
    sizes = {"easy": 7, "medium": 7, "hard": 6}
    return Suite("chain", [generate(d, seed) for d, n in sizes.items() for seed in range(n)])
