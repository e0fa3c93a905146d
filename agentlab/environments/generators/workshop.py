"""Scenarios of ``workshop``: products from templates, machines shared by their parts.

The reference plan is made by construction, in the quickest way that works for everything, and
depends on nothing but what is needed: a part's next operation on the one before, assembly on the
last operation of every part. So it is as parallel as the orders allow, and what is left to decide
is who gets a machine first.

``hidden`` puts a machine out of order, or takes a blank from the shelf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from agentlab.base.randomness import generator
from agentlab.base.values import Document
from agentlab.environments.fault_plan import FaultPlan
from agentlab.environments.scenario import AnswerGoal, Goal, ReferencePlan, ReferenceStep, Scenario
from agentlab.environments.suites import Suite
from agentlab.environments.workshop import FINISHING, STAGES, WAYS, Way
from agentlab.errors import UnknownNameError

PRODUCTS: dict[str, dict[str, tuple[str, ...]]] = {
    "stool": {"seat": ("cut", "paint"), "leg": ("cut", "turn")},
    "lamp": {"foot": ("cut", "turn"), "shade": ("cut", "paint", "dry")},
    "shelf": {"side": ("cut", "drill"), "board": ("cut", "paint"), "back": ("cut",)},
    "table": {
        "top": ("cut", "paint", "dry"), "leg": ("cut", "turn", "drill"), "frame": ("cut", "drill"),
    },
    "gate": {"frame": ("cut", "weld", "paint"), "bars": ("cut", "weld"), "hinge": ("cut", "drill")},
    "bench": {
        "seat": ("cut", "drill", "paint"), "rail": ("cut", "turn", "dry"),
        "foot": ("cut", "weld", "paint"), "arm": ("cut", "turn"),
    },
}  # fmt: skip
"""Name of a product to the routes of its parts."""


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of day in the workshop."""

    products: tuple[str, ...]
    """One for each order, to be drawn from."""
    orders: int = 1
    double: tuple[str, ...] = ()
    """Machines of which there are two."""
    spoilt: str = ""
    """What is not as it is believed: "machine", "blank" or nothing."""


TEMPLATES = {
    "easy": {
        "single": Template(("stool", "lamp")),
        "spare": Template(("stool", "lamp"), double=("saw",)),
    },
    "medium": {
        "three_parts": Template(("shelf", "table", "gate")),
        "two_saws": Template(("table", "gate"), double=("saw", "drill")),
        "missing": Template(("shelf", "table"), spoilt="blank"),
    },
    "hard": {
        "two_orders": Template(("shelf", "table", "lamp"), orders=2, double=("lathe",)),
        "big": Template(("bench",), double=("saw",), spoilt="blank"),
        "broken": Template(("gate", "table"), orders=2, spoilt="machine"),
    },
}
MATERIALS = ("ash", "beech", "brass", "oak", "steel")
FAULTS = FaultPlan.mixed(
    permanent=0.2, silent=0.15, error=0.5, timeout=0.1, timeout_after_commit=0.05,
    latency_spike=0.2, wrong_result=0.05, world_change=0.1,
)  # fmt: skip


def suite() -> Suite:
    """Return the 40 scenarios of ``datasets/workshop.jsonl``: 12 easy, 14 medium, 14 hard."""
    sizes = {"easy": 12, "medium": 14, "hard": 14}
    return Suite("workshop", [generate(d, seed) for d, n in sizes.items() for seed in range(n)])


def generate(difficulty: str = "medium", seed: int = 0) -> Scenario:
    """Make a workshop scenario.

    Parameters
    ----------
    difficulty : {"easy", "medium", "hard"}
        One order of two parts; of three; one of four or two of two or three. A third of the medium
        and two thirds of the hard ones have something hidden.
    seed : int
        Draws everything but the template, which goes round with it.

    Raises
    ------
    UnknownNameError
        No such difficulty.
    """
    if difficulty not in TEMPLATES:
        raise UnknownNameError("difficulty", difficulty, TEMPLATES)
    name = list(TEMPLATES[difficulty])[seed % len(TEMPLATES[difficulty])]
    template = TEMPLATES[difficulty][name]
    rng = generator("workshop", difficulty, seed)
    kinds = [rng.choice(template.products) for _ in range(template.orders)]
    numbers = rng.sample(range(10, 100), len(kinds))
    orders = {f"O{n}": kind for n, kind in zip(numbers, kinds, strict=True)}
    parts = _parts(orders, rng)
    blanks = _blanks(parts, rng)
    hidden: Document = {}
    if template.spoilt == "machine":
        used = {WAYS[o][0].machine for p in parts.values() for o in p["route"]}
        hidden = {"machines": {rng.choice(sorted(used)): {"works": False}}}
    elif template.spoilt == "blank":
        first = next(iter(parts.values()))["material"]
        hidden = {"blanks": {min(i for i, b in blanks.items() if b["material"] == first): None}}
    machines = {w.machine for ways in (*WAYS.values(), *FINISHING.values()) for w in ways}
    world: Document = {
        "machines": {
            m: {"count": 2 if m in template.double else 1, "works": True}
            for m in sorted({*machines, "foreman"} - {""})
        },
        "orders": {i: {"product": kind} for i, kind in orders.items()},
        "parts": parts,
        "blanks": blanks,
        "seen": {},
    }
    asked = list(orders)[-1] if rng.random() < 0.5 else ""
    answer = None
    if asked:
        answer = AnswerGoal(
            world=f"orders.{asked}.inspected", tools=("gauge", "inspect_by_eye"),
            result="certificate",
        )  # fmt: skip
    return Scenario(
        id=f"workshop-{difficulty}-{seed:03d}",
        environment="workshop",
        task=_task(orders, parts, asked),
        world=world,
        hidden=hidden,
        goal=Goal(conditions={"orders": list(orders)}, answer=answer),
        reference=_reference(orders, parts, hidden, asked),
        difficulty=difficulty,
        cluster=f"{name}-{'-'.join(sorted(kinds))}",
        faults=FAULTS,
    )


def _parts(orders: dict[str, str], rng: Random) -> dict[str, Document]:
    """Return the parts of all orders; those of one order may share a material."""
    named = [(order, name) for order, kind in orders.items() for name in PRODUCTS[kind]]
    ids = sorted(rng.sample(range(100, 1000), len(named)))
    chosen = rng.sample(MATERIALS, 2)
    return {
        f"P{n}": {
            "order": order, "name": name, "material": rng.choice(chosen), "size": rng.randint(1, 3),
            "route": list(PRODUCTS[orders[order]][name]), "done": 0,
        }
        for n, (order, name) in zip(ids, named, strict=True)
    }  # fmt: skip


def _blanks(parts: dict[str, Document], rng: Random) -> dict[str, Document]:
    """Return a blank for each part, and one to spare of each material."""
    needed = [p["material"] for p in parts.values()]
    materials = sorted([*needed, *set(needed)])
    ids = sorted(rng.sample(range(10, 100), len(materials)))
    return {f"B{n}": {"material": m} for n, m in zip(ids, materials, strict=True)}


def _reference(
    orders: dict[str, str], parts: dict[str, Document], hidden: Document, asked: str
) -> ReferencePlan:
    """Return the plan that takes the quickest way that works for each thing."""
    broken = set(hidden.get("machines", ()))
    steps = [
        ReferenceStep.calling(f"shelf_{m}", "check_shelf", {"material": m})
        for m in sorted({p["material"] for p in parts.values()})
    ]
    taken: Counter[str] = Counter()
    for order in orders:
        card = f"card_{order}"
        steps.append(ReferenceStep.calling(card, "read_card", {"order": order}))
        last: list[str] = []
        for part in [p for p in parts.values() if p["order"] == order]:
            before: tuple[str, ...] = ()
            for operation in part["route"]:
                arguments = {"part": f"${{{card}.parts[?name=='{part['name']}'].id | [0]}}"}
                if operation == "cut":
                    material = part["material"]
                    place = taken[material]
                    taken[material] += 1
                    arguments["blank"] = f"${{shelf_{material}.blanks[{place}].id}}"
                name = f"{operation}_{part['name']}_{order}"
                tool = _quickest(WAYS[operation], broken)
                steps.append(ReferenceStep.calling(name, tool, arguments, before))
                before = (name,)
            last += before
        for stage in STAGES:
            name, tool = f"{stage}_{order}", _quickest(FINISHING[stage], broken)
            steps.append(ReferenceStep.calling(name, tool, {"order": order}, last))
            last = [name]
    answer = f"${{inspected_{asked}.certificate}}" if asked else None
    return ReferencePlan(steps=tuple(steps), answer=answer)


def _quickest(ways: Iterable[Way], broken: set[str]) -> str:
    return next(way.tool for way in ways if way.machine not in broken)


def _task(orders: dict[str, str], parts: dict[str, Document], asked: str) -> str:
    made = "; ".join(f"{kind} (order {order})" for order, kind in orders.items())
    text = f"Make, inspect and deliver: {made}. {len(parts)} parts in all; the job cards list them."
    return f"{text} Report the certificate of order {asked}." if asked else text
