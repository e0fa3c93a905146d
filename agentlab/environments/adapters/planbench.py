"""PlanBench's 500 blocksworld problems (Valmeekam et al. 2023) as a suite.

Needs a checkout of https://github.com/karthikv792/LLMs-Planning (MIT), or its folder
``plan-bench``; nothing of it is copied here. Read are the gold plans
(``prompts/blocksworld/task_1_plan_generation.json``), the PDDL problems they belong to
(``instances/blocksworld/generated_basic/instance-N.pddl``) and the names of the blocks
(``configs/blocksworld.yaml``: "a" is the red block). The gold plans are optimal.

The domain is ``agentlab.environments.blocksworld``; of PDDL, this reads what these problems use:
objects, and atoms over on, ontable, clear, handempty and holding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agentlab.base.strict_json import read_json, read_yaml
from agentlab.environments.blocksworld import ARM, TABLE
from agentlab.environments.scenario import Goal, ReferencePlan, ReferenceStep, Scenario
from agentlab.environments.suites import Suite
from agentlab.errors import JsonError, ScenarioError, seen

CONFIG = "configs/blocksworld.yaml"
GOLD = "prompts/blocksworld/task_1_plan_generation.json"
PROBLEM = "instances/blocksworld/generated_basic/instance-{}.pddl"

PARAMETERS = {
    "pick-up": ("block",),
    "put-down": ("block",),
    "stack": ("block", "onto"),
    "unstack": ("block", "off"),
}
"""Operators of the domain and our names for what they take."""

Tree = str | list["Tree"]
"""A PDDL expression: a word, or a list of expressions."""

Wanted = str | list[str]
"""Where a goal wants a block, or the several places in which it wants it."""


def load_planbench(path: str | Path) -> Suite:
    """Read the blocksworld problems and their gold plans.

    Parameters
    ----------
    path : str or Path
        A checkout of LLMs-Planning, or its folder ``plan-bench``.

    Returns
    -------
    Suite
        "planbench", in the order of the gold plans; ids are ``planbench-N`` with the number of
        the problem. Difficulty is "easy" up to 4 gold calls, "medium" up to 8, else "hard".

    Raises
    ------
    ScenarioError
        A file is missing or does not say what it must; the message names it.
    """
    root = Path(path)
    root = root / "plan-bench" if (root / "plan-bench").is_dir() else root
    names = _names(root / CONFIG)
    scenarios = []
    for number, plan in _gold_plans(root / GOLD):
        problem = root / PROBLEM.format(number)
        on, wanted = parse_problem(_text(problem), str(problem), names)
        where = f"{root / GOLD}, instance {number}"
        scenarios.append(_scenario(number, on, wanted, tuple(_steps(plan, on, where))))
    return Suite("planbench", scenarios)


def _scenario(
    number: int, on: dict[str, str], wanted: dict[str, Wanted], steps: tuple[ReferenceStep, ...]
) -> Scenario:
    goal = "; ".join(f"{b} on {p}" for b, place in wanted.items() for p in _each(place))
    calls = len(steps)
    return Scenario(
        id=f"planbench-{number:03d}",
        environment="blocksworld",
        task=f"Arrange the blocks so that these lie directly on one another: {goal}.",
        world={"on": on},
        goal=Goal(conditions={"on": wanted}),
        reference=ReferencePlan(steps=steps),
        difficulty="easy" if calls <= 4 else "medium" if calls <= 8 else "hard",
    )


def _names(path: Path) -> dict[str, str]:
    """Return the colours by letter."""
    try:
        objects = read_yaml(_text(path))["encoded_objects"]
        return {str(k): str(v).removesuffix(" block") for k, v in objects.items()}
    except (JsonError, TypeError, KeyError, AttributeError) as e:
        raise ScenarioError(f"{path}: expected a map 'encoded_objects' of block names") from e


def _gold_plans(path: Path) -> Iterator[tuple[int, str]]:
    """Yield problem number and gold plan."""
    try:
        instances = read_json(_text(path))["instances"]
    except (JsonError, TypeError, KeyError) as e:
        raise ScenarioError(f"{path}: expected a JSON object with a list 'instances'") from e
    for index, item in enumerate(instances):
        try:
            yield int(item["instance_id"]), str(item["ground_truth_plan"])
        except (TypeError, KeyError, ValueError) as e:
            expected = "expected 'instance_id' and 'ground_truth_plan'"
            raise ScenarioError(f"{path}, instances[{index}]: {expected}, got {item!r:.80}") from e


def _steps(plan: str, on: dict[str, str], where: str) -> Iterator[ReferenceStep]:
    before: tuple[str, ...] = ()
    lines = [line.strip() for line in plan.splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        operator, *blocks = line.removeprefix("(").removesuffix(")").split() or [""]
        parameters = PARAMETERS.get(operator, ())
        if not parameters or len(blocks) != len(parameters) or not set(blocks) <= on.keys():
            expected = f"one of {', '.join(PARAMETERS)} on the blocks {', '.join(on)}"
            raise ScenarioError(f"{where}, line {number}: expected {expected}, got {seen(line)}")
        tool = operator.replace("-", "_")
        step_id = f"{tool}_{number}"
        arguments = dict(zip(parameters, blocks, strict=True))
        yield ReferenceStep.calling(step_id, tool, arguments, before)
        before = (step_id,)


def parse_problem(
    text: str, where: str, names: dict[str, str] | None = None
) -> tuple[dict[str, str], dict[str, Wanted]]:
    """Read a PDDL blocksworld problem.

    Parameters
    ----------
    text : str
        The problem.
    where : str
        File name, for messages.
    names : dict, optional
        What to call the objects.

    Returns
    -------
    on, wanted : dict
        Where every block lies, and where the goal wants blocks: a place, or a list of the several
        that it names (which no plan can reach).

    Raises
    ------
    ScenarioError
        Says what was expected where.

    Examples
    --------
    >>> parse_problem("(define (:objects a b) (:init (ontable a) (on b a)) (:goal (on a b)))", "x")
    ({'a': 'table', 'b': 'a'}, {'a': 'b'})
    """
    sections = {s[0]: s[1:] for s in _parse(text, where) if isinstance(s, list) and s}
    for name in (":objects", ":init", ":goal"):
        if name not in sections:
            raise ScenarioError(f"{where}: expected a PDDL problem with a section ({name} ...)")
    objects = [o for o in sections[":objects"] if isinstance(o, str)]
    names = {o: (names or {}).get(o, o) for o in objects}
    on = {}
    for block, place in _places(sections[":init"], names, where).items():
        if isinstance(place, list):
            raise ScenarioError(
                f"{where}: expected one place in :init for {block}, got {', '.join(place)}"
            )
        on[block] = place
    goal = sections[":goal"]
    if len(goal) == 1 and isinstance(goal[0], list) and goal[0][:1] == ["and"]:
        goal = goal[0][1:]
    homeless = [o for o in objects if names[o] not in on]
    if homeless:
        raise ScenarioError(f"{where}: expected a place in :init for {', '.join(homeless)}")
    return {names[o]: on[names[o]] for o in objects}, _places(goal, names, where, goal=True)


def _places(
    atoms: Iterable[Tree], names: dict[str, str], where: str, goal: bool = False
) -> dict[str, Wanted]:
    """Return where the atoms put blocks; clear and handempty follow from the rest."""
    on: dict[str, Wanted] = {}

    def put(block: str, place: str) -> None:
        known = _each(on.get(block, place))
        on[block] = place if known == [place] else list(dict.fromkeys([*known, place]))

    for atom in atoms:
        match [names.get(w, w) if isinstance(w, str) else "" for w in atom]:
            case ["on", block, place] if block in names.values() and place in names.values():
                put(block, place)
            case ["ontable", block] if block in names.values():
                put(block, TABLE)
            case ["holding", block] if block in names.values() and not goal:
                put(block, ARM)
            case ["handempty"] | ["clear", _] if not goal:
                pass
            case _:
                known = "on and ontable" if goal else "on, ontable, holding, clear and handempty"
                raise ScenarioError(
                    f"{where}: expected atoms over {known} of the declared objects, "
                    f"got {seen(atom)}"
                )
    return on


def _each(place: Wanted) -> list[str]:
    return place if isinstance(place, list) else [place]


def _parse(text: str, where: str) -> list[Any]:
    """Return the one expression of a PDDL file as nested lists of lower-case words."""
    stack: list[list[Any]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", re.sub(r";.*", "", text).lower()):
        if token == "(":
            stack.append([])
        elif token == ")" and len(stack) > 1:
            done = stack.pop()
            stack[-1].append(done)
        elif token == ")":
            raise ScenarioError(f"{where}: expected PDDL, got one ')' too many")
        else:
            stack[-1].append(token)
    if len(stack) > 1 or len(stack[0]) != 1 or not isinstance(stack[0][0], list):
        raise ScenarioError(f"{where}: expected one PDDL expression (define ...) with all ')'")
    return list(stack[0][0])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        expected = "expected a checkout of karthikv792/LLMs-Planning or its folder plan-bench"
        raise ScenarioError(f"{path}: cannot be read ({e}); {expected}") from e
