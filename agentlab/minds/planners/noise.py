"""Noise: mistakes of known size in a plan, and which of them a replan makes again.

With noise ε each step of a plan is spoilt with probability ε, in one of five ways: dropped, swapped
with the next, doubled, sent to a wrong tool, or given a wrong argument. A reply is garbled with
probability ``unparseable``: it is cut off, and goes the way of every reply that is no plan.

A mistake is about something: a step's is about what the step does, its tool and arguments, a cut is
about the steps that the reply was to hold. The share ``persistence`` of them *stand*: they are
drawn from (seed, scenario, what they are about), so a replan that plans the step once more makes
the mistake once more, wherever in the plan it comes. The others are drawn from the number of the
plan as well, and those of replies from how often the plan was asked for. Neither knows the arm, so
arms of a seed err alike, and what is spoilt at a low ε is spoilt at a higher one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentlab.base.documents import Json, canonical, digest
from agentlab.base.randomness import generator, uniform
from agentlab.base.strict_json import read_json
from agentlab.environments.scenario import ReferenceStep
from agentlab.errors import ConfigError, JsonError, PlanParseError, seen
from agentlab.minds.base import Kit, PlanRequest
from agentlab.plans.parsing import fresh_id
from agentlab.plans.references import references

MISTAKES = ("drop", "swap", "insert", "wrong_target", "wrong_argument")
"""What may happen to a step, each as likely as the others."""

Names = tuple[object, ...]
"""What draws are keyed by."""


@dataclass(frozen=True)
class Mistake:
    """What goes wrong with a step, and what its details are drawn from."""

    kind: str
    stands: bool
    names: Names


@dataclass(frozen=True)
class Noise:
    """How much of what a planner plans goes wrong.

    Parameters
    ----------
    share : float
        Probability, 0 to 1, that a step is spoilt.
    persistence : float
        Share, 0 to 1, of the mistakes that stand for the scenario and seed, and are made again at
        a replan; the others are drawn anew at each plan.
    unparseable : float
        Probability, 0 to 1, that a reply is cut off and is no plan.

    Raises
    ------
    ConfigError
        One is no number from 0 to 1.
    """

    share: float = 0.0
    persistence: float = 1.0
    unparseable: float = 0.0

    def __post_init__(self) -> None:
        named = {"noise": self.share, "persistence": self.persistence,
                 "unparseable": self.unparseable}  # fmt: skip
        for name, value in named.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 <= value <= 1:
                raise ConfigError(f"expected {name} between 0 and 1, got {seen(value)}")

    @property
    def silent(self) -> bool:
        """True when nothing goes wrong."""
        return not self.share and not self.unparseable

    def _names(self, about: Json, request: PlanRequest, kit: Kit) -> tuple[Names, bool]:
        """Return what the draws about a thing are keyed by, and whether they stand."""
        scenario = "" if kit.scenario is None else kit.scenario.id
        names = ("noise", request.seed, scenario, digest(about))
        stands = uniform(*names, "stands") < self.persistence
        return (names if stands else (*names, "plan", request.number)), stands

    def mistakes(
        self, about: Mapping[str, Json], request: PlanRequest, kit: Kit
    ) -> dict[str, Mistake]:
        """Return what goes wrong, by step id.

        Parameters
        ----------
        about : mapping
            Step id to what the step does: steps that do the same err alike.
        """
        found = {}
        for step_id, does in about.items() if self.share else ():
            names, stands = self._names(does, request, kit)
            if uniform(*names, "spoilt") < self.share:
                kind = MISTAKES[math.floor(uniform(*names, "kind") * len(MISTAKES))]
                found[step_id] = Mistake(kind, stands, names)
        return found

    def cut(self, reply: Json, about: Sequence[Json], request: PlanRequest, kit: Kit) -> None:
        """Cut the reply off and read what there is of it, where that is drawn.

        Parameters
        ----------
        reply : dict
            In a planner's reply form.
        about : sequence of JSON
            What the steps do that were to be planned.

        Raises
        ------
        PlanParseError
            It was cut off.
        """
        if not self.unparseable:
            return
        names, stands = self._names(["reply", *about], request, kit)
        names = names if stands else (*names, "asked", request.attempt)
        if uniform(*names, "cut") >= self.unparseable:
            return
        text = canonical(reply)
        text = text[: 1 + math.floor(uniform(*names, "where") * (len(text) - 1))]
        try:
            read_json(text)  # an object without its end is no JSON
        except JsonError as e:
            raise PlanParseError([f"(reply): {e}"], reply=text) from e


def spoilt(
    steps: Sequence[ReferenceStep], mistakes: Mapping[str, Mistake], kit: Kit,
    planned: Collection[str] | None = None,
) -> list[ReferenceStep]:  # fmt: skip
    """Return the steps with the mistakes in them, well-formed.

    Parameters
    ----------
    steps : sequence of ReferenceStep
        A whole plan, in order.
    mistakes : mapping of str to Mistake
        By step id.
    kit : Kit
        Its tools are those that a step may be sent to.
    planned : collection of str, optional
        Ids of the steps that are (still) to be planned, or of their doubles alone; default: all. A
        step whose neighbour is not planned any more is swapped with nobody.
    """
    left = [s for s in steps if planned is None or s.step_id in planned]
    if not mistakes:
        return left
    ids, taken = {s.step_id for s in left}, {s.step_id for s in steps}
    made = [
        changed
        for step, mistake in _swapped(steps, mistakes)
        for changed in _changed(step, mistake, kit, taken)
        if step.step_id in ids or (planned is not None and changed.step_id in planned)
    ]
    return _repaired(made, left)


def _swapped(
    steps: Iterable[ReferenceStep], mistakes: Mapping[str, Mistake]
) -> Iterator[tuple[ReferenceStep, Mistake | None]]:
    """Yield the steps in the order in which they are planned, each with what goes wrong with it.

    Nothing else goes wrong with a step that another is swapped with. The last step of a plan has no
    next, and is lost.
    """
    rest = list(steps)
    while rest:
        step = rest.pop(0)
        mistake = mistakes.get(step.step_id)
        if mistake is None or mistake.kind != "swap":
            yield step, mistake
        elif rest:
            yield rest.pop(0), None
            yield step, mistake


def _changed(
    step: ReferenceStep, mistake: Mistake | None, kit: Kit, taken: Collection[str]
) -> list[ReferenceStep]:
    """Return what is planned in place of a step."""
    if mistake is None or mistake.kind == "swap":
        return [step]
    rng = generator(*mistake.names, "how")
    if mistake.kind == "insert":
        return [step, step.replace(step_id=fresh_id(f"{step.step_id}_again", taken))]
    if mistake.kind == "wrong_target":
        others = sorted(set(kit.tools) - {step.tool})
        return [_wrong_target(step, rng.choice(others), kit) if others else step]
    if mistake.kind == "wrong_argument" and step.arguments:
        return [_wrong_argument(step, rng.choice(sorted(step.arguments)))]
    return []


def _wrong_target(step: ReferenceStep, tool: str, kit: Kit) -> ReferenceStep:
    """Send a step to another tool, without the arguments that this one does not know.

    Planning would refuse unknown arguments; missing ones fail the step when it runs.
    """
    schema = kit.tools[tool].parameters
    arguments = step.arguments
    if schema.get("additionalProperties") is False:
        arguments = {k: v for k, v in arguments.items() if k in schema.get("properties", {})}
    return step.replace(tool=tool, arguments=arguments)


def _wrong_argument(step: ReferenceStep, key: str) -> ReferenceStep:
    value = step.arguments[key]
    wrong: Any = f"not-{value}" if isinstance(value, str) and "${" not in value else "wrong"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        wrong = value + 1
    return step.replace(arguments={**step.arguments, key: wrong})


def _repaired(made: list[ReferenceStep], meant: list[ReferenceStep]) -> list[ReferenceStep]:
    """Keep the spoilt plan well-formed: what refers to a dropped or later step loses the value.

    A plan with a dangling reference would be refused before it runs, which is not the error that
    these mistakes stand for.
    """
    dropped = {s.step_id for s in meant} - {s.step_id for s in made}
    inside = {s.step_id for s in meant}
    kept: list[ReferenceStep] = []
    for step in made:
        earlier = {s.step_id for s in kept}
        later = {s.step_id for s in made} - earlier
        arguments = {
            k: "unknown" if any(r.step in dropped | later for r in references(v)) else v
            for k, v in step.arguments.items()
        }
        dependencies = tuple(d for d in step.dependencies if d in earlier or d not in inside)
        kept.append(step.replace(arguments=arguments, dependencies=dependencies))
    return kept
