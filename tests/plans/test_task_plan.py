"""Plans: parsing a planner's reply, ids and order, and edits that leave a valid plan."""

from __future__ import annotations

import re

import networkx as nx
import pytest
from hypothesis import given, settings, strategies as st

from agentlab.errors import PlanEditError, PlanParseError, UnknownNameError
from agentlab.plans.parsing import PlanReply, StepReply, fresh_id, parse_plan
from agentlab.plans.references import STEP_ID, references, rename
from agentlab.plans.task_plan import (
    SETTLED,
    ActionType,
    PlanStatus,
    StepStatus,
    TaskPlan,
    TaskStep,
    ordered,
)

fast = settings(deadline=None, max_examples=60)
NAMES = [
    "Find flights",
    "查询航班",
    "查询 flights",
    "book",
    "book",
    "9 lives",
    "",
    "_a",
    "a-b",
    "${x}",
]


def step(name="find", **fields):
    return {"name": name, "actionType": "call_tool", "targetResource": "t", **fields}


def plan_of(*steps, **fields):
    return parse_plan({"steps": list(steps), **fields})


def violations(*steps, **options):
    fields = {k: options.pop(k) for k in ("answer", "complexity") if k in options}
    with pytest.raises(PlanParseError) as e:
        parse_plan({"steps": list(steps), **fields}, **options)
    return e.value.violations


# ---- the reply -------------------------------------------------------------------------------

REPLY = {
    "userIntent": "去巴黎",
    "intentAnalysis": "a trip",
    "summary": "find, then book",
    "complexity": 4,
    "steps": [
        {
            "name": "Book it",
            "description": "books",
            "actionType": "call_tool",
            "targetResource": "book",
            "parameters": {"id": "${1.flights[0].id}", "note": "costs $${5}"},
            "dependencies": [],
            "importance": 0.9,
            "skippable": True,
            "expectation": {"type": "object"},
        },
        {"name": "查询航班", "actionType": "call_tool", "targetResource": "find"},
        {"name": "Sum up", "actionType": "aggregate", "dependencies": [0]},
    ],
    "answer": "booked ${0.ref}, ${Sum_up}",
}


def snake(value):
    """The same reply in snake_case."""
    if isinstance(value, dict):
        return {
            re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", k): snake(v) for k, v in value.items()
        }
    return [snake(v) for v in value] if isinstance(value, list) else value


def test_a_reply_becomes_a_plan():
    plan = parse_plan(REPLY, plan_id="plan-3")
    assert [(s.step_index, s.step_id) for s in plan.steps] == [
        (0, "step_1"),
        (1, "Book_it"),
        (2, "Sum_up"),
    ]
    book = plan.step("Book_it")
    assert book.parameters == {"id": "${step_1.flights[0].id}", "note": "costs $${5}"}
    assert book.dependencies == ("step_1",)
    assert (book.importance, book.skippable, book.expectation) == (0.9, True, {"type": "object"})
    assert book.description == "books"
    assert plan.step("Sum_up").dependencies == ("Book_it",)
    assert plan.answer == "booked ${Book_it.ref}, ${Sum_up}"
    assert (plan.plan_id, plan.user_intent, plan.complexity) == ("plan-3", "去巴黎", 4)
    assert (plan.intent_analysis, plan.summary) == ("a trip", "find, then book")
    assert (plan.status, plan.replan_count) == (PlanStatus.CREATED, 0)
    find = plan.step("step_1")
    assert (find.name, find.status, find.result) == ("查询航班", StepStatus.PENDING, None)


def test_both_spellings_make_the_same_plan():
    assert "user_intent" in snake(REPLY)
    assert parse_plan(snake(REPLY)) == parse_plan(REPLY)


def test_what_is_left_out():
    """spec/autonomous.md: dependencies [], parameters {}, skippable false, importance 0.5."""
    found = plan_of({"name": "a", "actionType": "aggregate"}).steps[0]
    assert (found.dependencies, found.parameters, found.skippable, found.importance) == (
        (),
        {},
        False,
        0.5,
    )
    assert len(parse_plan({})) == 0


def test_action_types_of_the_spec():
    assert set(ActionType) == {
        "call_tool", "call_sub_agent", "rag_query", "llm_generate", "mcp_call", "aggregate",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "parts"),
    [
        ("no plan", ["(reply): "]),
        ([], ["(reply): "]),
        ({"step": []}, ["step: is no field of it, got []; did you mean 'steps'"]),
        ({"complexity": 11}, ["complexity: "]),
        ({"complexity": 0}, ["complexity: "]),
        ({"steps": [{"actionType": "aggregate"}]}, ["steps.0.name: is missing"]),
        ({"steps": [step("")]}, ["steps.0.name: "]),
        ({"steps": [{"name": "a"}]}, ["steps.0.actionType: is missing"]),
        ({"steps": [step(), step(importance=1.1)]}, ["steps.1.importance: "]),
        ({"steps": [step(parameters=[])], "complexity": 99}, ["steps.0.parameters", "complexity"]),
        ({"steps": [step(dependencies=[None])]}, ["steps.0.dependencies.0"]),
    ],
)
def test_a_reply_that_is_no_plan(reply, parts):
    with pytest.raises(PlanParseError) as e:
        parse_plan(reply)
    assert [p for p in parts if p not in str(e.value)] == []


def test_dependencies_and_references_that_dangle():
    assert violations(step(dependencies=[7])) == ("step 'find': depends on unknown step '7'",)
    assert violations(step(dependencies=[-1])) == ("step 'find': depends on unknown step '-1'",)
    assert violations(step(dependencies=["²"])) == ("step 'find': depends on unknown step '²'",)
    assert violations(step(parameters={"a": ["${gone.x}"]})) == (
        "step 'find': ${gone.x} names no known step",
    )
    assert violations(step(parameters={"a": "${3}"})) == ("step 'find': ${3} names no known step",)
    assert violations(step(), answer="${gone.x}") == ("answer: refers to unknown step 'gone'",)
    assert violations(step(parameters={"a": "${find"}))[0].startswith("step 'find': ")
    assert violations(step(), answer="${find.[}")[0].startswith("answer: ")


def test_results_of_earlier_plans_may_be_named():
    made = parse_plan(
        {"steps": [step(parameters={"a": "${old.x}"}, dependencies=["old"])], "answer": "${old}"},
        known={"old"},
    )
    assert made.steps[0].parameters == {"a": "${old.x}"}
    assert made.answer == "${old}"


def test_to_refer_to_a_step_under_way_is_to_depend_on_it():
    made = parse_plan(
        {
            "steps": [
                step(parameters={"a": "${going.x}"}),
                step("b", dependencies=["going"]),
                step("c", parameters={"a": "${old.x}"}),
            ],
            "answer": "${going.x}",
        },
        known={"old"},
        under_way={"going"},
    )  # fmt: skip
    assert [s.dependencies for s in made.steps] == [("going",), ("going",), ()]
    assert made.answer == "${going.x}"


def test_a_cycle_names_its_steps():
    for steps in (
        [step("a", dependencies=[1]), step("b", dependencies=[2]), step("c", dependencies=[0])],
        [step("a", parameters={"x": "${b}"}), step("b", parameters={"x": "${a}"})],
        [step("a", parameters={"x": "${0}"})],
    ):
        (message,) = violations(*steps)
        assert message == "cyclic dependency among " + ", ".join("abc"[: len(steps)])


def test_every_violation_is_listed():
    def check(found):
        return [] if found.target_resource == "t" else [f"unknown tool {found.target_resource!r}"]

    found = violations(
        step("a", targetResource="nope"),
        step("b", dependencies=["gone"]),
        step("c", parameters={"x": "${lost.x}"}),
        step("d", targetResource="nor this"),
        answer="${missing}",
        check=check,
    )
    assert sorted(found) == [
        "answer: refers to unknown step 'missing'",
        "step 'a': unknown tool 'nope'",
        "step 'b': depends on unknown step 'gone'",
        "step 'c': ${lost.x} names no known step",
        "step 'd': unknown tool 'nor this'",
    ]


# ---- ids -------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES).filter(bool) | st.text(min_size=1, max_size=6),
            st.booleans(),
        ),
        max_size=6,
    ),
    st.sets(st.sampled_from(["book", "step_1", "Find_flights", "a-b"])),
)
@fast
def test_ids_are_slugs_and_unique_over_the_run(names, taken):
    steps = [step(name) for name, _ in names]
    plan = parse_plan({"steps": steps}, taken=taken)
    ids = [s.step_id for s in plan.steps]
    assert len(set(ids)) == len(ids)
    assert not set(ids) & taken
    assert all(STEP_ID.fullmatch(i) for i in ids)
    assert [s.name for s in plan.steps] == [name for name, _ in names]


def test_slugs():
    names = ["Find flights", "查询航班", "查询 flights", "9 lives", "a-b", "!", "book", "book"]
    assert [s.step_id for s in plan_of(*map(step, names)).steps] == [
        "Find_flights", "step_1", "flights", "step_9_lives", "a-b", "step_5", "book", "book_2",
    ]  # fmt: skip


@pytest.mark.parametrize("step_id", ["_a", "a_", "A-1", "__", "a__b"])
def test_a_step_id_that_is_a_slug_is_kept(step_id):
    made = plan_of(step("Find", stepId=step_id), answer=f"${{{step_id}}}")
    assert made.steps[0].step_id == step_id
    assert made.answer == f"${{{step_id}}}"


def test_a_step_id_that_is_none_is_made_one_and_references_follow():
    made = plan_of(
        step("a", stepId="first one"),
        step("b", dependencies=["first one"], parameters={"x": "${first_one.y}"}),
    )
    assert [s.step_id for s in made.steps] == ["first_one", "b"]
    assert made.step("b").dependencies == ("first_one",)


def test_a_taken_step_id_gets_a_number_and_the_replys_own_references_follow():
    made = parse_plan(
        {
            "steps": [step("a", stepId="find"), step("b", parameters={"x": "${find.y}"})],
            "answer": "${find}",
        },
        taken={"find", "find_2"},
        known={"find"},
    )
    assert made.steps[0].step_id == "find_3"
    assert made.step("b").parameters == {"x": "${find_3.y}"}
    assert made.step("b").dependencies == ("find_3",)
    assert made.answer == "${find_3}"


def test_a_step_id_occurs_once_in_a_reply():
    """Or a reference to it would mean two steps."""
    (message,) = violations(step("a", stepId="x"), step("b", stepId="x"))
    assert message == "step id 'x' occurs more than once"


# ---- numbers as ids --------------------------------------------------------------------------

NUMBERS = ["0", "1", "2", "01", "1.0", "²", "١", " 1 ", "-1", "1_0", "a", "step_1", "a b", "a.b"]


def meant(ids, said):
    """The place of the step that ``said`` means; None: it is refused. Written apart, as a table."""
    if said in ids:
        return ids.index(said)

    def slug(at):
        word = re.sub("[^A-Za-z0-9_-]+", "_", ids[at])
        word = word if word[:1].isalpha() and word == ids[at] else word.strip("_")
        return word if word[:1].isalpha() else f"step_{word or at}"

    alike = [at for at, i in enumerate(ids) if said.strip() in (i.strip(), slug(at))]
    return alike[0] if len(alike) == 1 else None


@given(
    st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=4, unique=True),
    st.sampled_from(NUMBERS) | st.integers(-2, 5),
    st.sampled_from(["dependency", "reference", "answer"]),
)
@settings(deadline=None, max_examples=300)
def test_where_steps_have_ids_a_number_is_one_of_them_or_refused(ids, said, via):
    """Oracle: a step is meant by its id, or by what only it may be called; never by its place."""
    steps = [step("s", stepId=i, parameters={"at": n}) for n, i in enumerate(ids)]
    user = step("user", stepId="user", parameters={"at": -1})
    more = {}
    word = str(said)
    if via == "dependency":
        user["dependencies"] = [said]
    elif re.fullmatch("[A-Za-z_][A-Za-z0-9_-]*|[0-9]+", word) is None:
        return  # no reference is spelled so
    elif via == "reference":
        user["parameters"]["x"] = f"${{{word}.y}}"
    else:
        more = {"answer": f"<${{{word}.y}}>"}
    place = meant([*ids, "user"], word)
    if place is None or place == len(ids):
        assert violations(*steps, user, **more)
        return
    made = plan_of(*steps, user, **more)
    [target] = [s.step_id for s in made.steps if s.parameters["at"] == place]
    [last] = [s for s in made.steps if s.parameters["at"] == -1]
    if via == "answer":
        assert made.answer == f"<${{{target}.y}}>"
    else:
        assert last.dependencies == (target,)
    if via == "reference":
        assert last.parameters["x"] == f"${{{target}.y}}"


@pytest.mark.parametrize("step_id", [0, 1, 7, -1, 10**17, "1"])
def test_an_id_may_be_written_as_a_number(step_id):
    for said in (step_id, str(step_id)):
        made = plan_of(step("a", stepId=step_id), step("b", stepId="b", dependencies=[said]))
        assert made.steps[1].dependencies == (made.steps[0].step_id,)


@pytest.mark.parametrize(
    "said",
    [True, False, 1.0, 0.5, float("nan"), None, ["a"], {"stepId": "a"}, 10**19, 10**5000, "9" * 99],
    ids=lambda said: str(type(said).__name__),
)  # fmt: skip
def test_what_is_no_name_of_a_step_is_refused(said):
    for steps in (
        [step("a"), step("b", dependencies=[said])],
        [step("a", stepId="a"), step("b", stepId="b", dependencies=[said])],
    ):
        (message,) = violations(*steps)
        assert "steps.1.dependencies.0: " in message or "step 'b': " in message
        assert len(message) < 400
    if not isinstance(said, str) and said is not None:
        (message,) = violations(step("a"), step("b", stepId=said))
        assert "steps.1.stepId: " in message


def test_an_endless_id_is_refused():
    (message,) = violations(step("a", stepId="1" * 5000))
    assert "steps.0.stepId: " in message
    assert len(message) < 400
    assert len(plan_of(step("x" * 5000)).steps[0].step_id) < 300


def test_a_mixed_plan_has_no_indices():
    """One step has an id: "0" is no longer the first step."""
    steps = [step("a"), step("b", stepId="b", dependencies=[0])]
    assert violations(*steps) == ("step 'b': depends on unknown step '0'",)
    assert plan_of(step("a"), step("b", dependencies=[0], stepId=" ")).step("b").dependencies


def test_a_number_in_a_second_plan_never_means_a_step_of_the_first():
    """``1`` became ``step_1``, which is how the second prompt shows it."""
    first = plan_of(step("s", stepId="1"))
    assert first.steps[0].step_id == "step_1"
    earlier = {"taken": {"step_1"}, "known": {"step_1"}}
    for by in (
        {"dependencies": ["1"]}, {"dependencies": [1]}, {"parameters": {"x": "${1.y}"}},
    ):  # fmt: skip
        assert "unknown step '1'" in (found := violations(step("b", stepId="b", **by), **earlier)[
            0]) or "${1.y} names no known step" in found  # fmt: skip
        again = parse_plan(
            {"steps": [step("s", stepId="1"), step("b", stepId="b", **by)]}, **earlier
        )
        assert [s.step_id for s in again.steps] == ["step_1_2", "b"]
        assert again.step("b").dependencies == ("step_1_2",)
    shown = {"parameters": {"x": "${step_1.y}"}}
    made = parse_plan({"steps": [step("s", stepId="1"), step("b", stepId="b", **shown)]}, **earlier)
    assert made.step("b").parameters == {"x": "${step_1.y}"}
    assert made.step("b").dependencies == ()


def test_what_a_step_is_called_only_now_means_nothing():
    """``a b`` and ``a.b`` are both ``a_b``, and nobody was told which became ``a_b_2``."""
    both = [step("s", stepId="a b"), step("s", stepId="a.b")]
    for said in ("a_b", "a_b_2"):
        (message,) = violations(*both, step("c", stepId="c", dependencies=[said]))
        assert said in message
        assert "'a b', 'a.b', 'c'" in message


def test_fresh_id():
    assert fresh_id("a", {"b"}) == "a"
    assert fresh_id("a", {"a", "a_2", "a_3"}) == "a_4"


# ---- order -----------------------------------------------------------------------------------


@st.composite
def replies(draw, most=7):
    """Replies with dependencies and references by index or id, in any order, cycles included."""
    n = draw(st.integers(1, most))
    names = [f"s{i}" for i in range(n)]
    steps = []
    for i in range(n):
        others = st.sampled_from([j for j in range(n) if j != i] or [0])
        edges = draw(st.lists(others, max_size=2)) if n > 1 else []
        spelled = [draw(st.sampled_from([j, names[j], str(j)])) for j in edges]
        used = draw(st.lists(others, max_size=1)) if n > 1 else []
        steps.append(
            step(
                names[i],
                dependencies=spelled,
                parameters={
                    "x": [f"${{{draw(st.sampled_from([str(j), names[j]]))}.y}}" for j in used]
                },
            )
        )
    return {"steps": steps}


def network(reply):
    made = nx.DiGraph()
    names = [s["name"] for s in reply["steps"]]
    made.add_nodes_from(range(len(names)))
    for i, item in enumerate(reply["steps"]):
        said = [*map(str, item["dependencies"]), *(r.step for r in references(item["parameters"]))]
        made.add_edges_from((names.index(d) if d in names else int(d), i) for d in said)
    return made


@given(replies())
@fast
def test_steps_are_in_the_first_topological_order(reply):
    """Oracle: networkx's lexicographical topological sort is the stable one."""
    made = network(reply)
    if not nx.is_directed_acyclic_graph(made):
        with pytest.raises(PlanParseError, match="cyclic dependency among"):
            parse_plan(reply)
        return
    plan = parse_plan(reply)
    assert [int(s.step_id[1:]) for s in plan.steps] == list(
        nx.lexicographical_topological_sort(made)
    )
    assert [s.step_index for s in plan.steps] == list(range(len(plan)))
    for item in plan.steps:
        assert {int(d[1:]) for d in item.dependencies} == set(
            made.predecessors(int(item.step_id[1:]))
        )
        assert len(set(item.dependencies)) == len(item.dependencies)
        assert {r.step for r in references(item.parameters)} <= set(item.dependencies)


@given(replies())
@fast
def test_a_plan_survives_json_and_its_own_form_as_a_reply(reply):
    if not nx.is_directed_acyclic_graph(network(reply)):
        return
    plan = parse_plan(reply)
    assert TaskPlan.model_validate(plan.to_json()) == plan
    fields = set(StepReply.model_fields)
    again = parse_plan(
        {
            **plan.model_dump(include=set(PlanReply.model_fields) - {"steps"}),
            "steps": [s.model_dump(include=fields) for s in plan.steps],
        }
    )
    assert again == plan


def test_ordered_lists_what_is_wrong():
    with pytest.raises(PlanParseError) as e:
        ordered(
            [
                TaskStep(step_id="a b"),
                TaskStep(step_id="x"),
                TaskStep(step_id="x", dependencies=("y",)),
                TaskStep(step_id="z", parameters={"p": "${open"}),
            ]
        )
    text = str(e.value)
    assert "'a b' is no slug" in text
    assert "'x' occurs more than once" in text
    assert "step 'x': depends on unknown step 'y'" in text
    assert "step 'z': " in text
    assert "without its '}'" in text


# ---- a plan in hand --------------------------------------------------------------------------


def chain_plan(**statuses):
    """find → book → pay, and hotel beside them."""
    plan = plan_of(
        step("find"),
        step("book", parameters={"id": "${find.id}"}),
        step("pay", parameters={"ref": "${book.ref}"}),
        step("hotel"),
        answer="${book.ref}",
    )
    for step_id, status in statuses.items():
        plan = plan.with_step(step_id, status=status)
    return plan


def test_steps_written_by_hand_are_numbered():
    """``step_index`` is where a step stands, whoever made the plan."""
    plan = TaskPlan(steps=(TaskStep(step_id="a"), TaskStep(step_id="b"), TaskStep(step_id="c")))
    assert [s.step_index for s in plan.steps] == [0, 1, 2]
    failed = plan.with_step("b", status=StepStatus.FAILED)
    assert [s.status for s in failed.steps] == ["pending", "failed", "pending"]
    again = plan.replace(steps=plan.steps[1:])
    assert [(s.step_index, s.step_id) for s in again.steps] == [(0, "b"), (1, "c")]


def test_looking_steps_up():
    plan = chain_plan(find=StepStatus.COMPLETED)
    assert plan.step("book") is plan.step(1) is plan.steps[1]
    with pytest.raises(UnknownNameError, match="unknown step 'boook'; did you mean 'book'"):
        plan.step("boook")
    with pytest.raises(UnknownNameError):
        plan.step(4)
    assert len(plan) == 4
    assert [s.step_id for s in plan.remaining] == ["book", "pay", "hotel"]
    assert plan.current_index == 1
    for step_id in ("book", "pay", "hotel"):
        plan = plan.with_step(step_id, status=StepStatus.SKIPPED)
    assert (plan.remaining, plan.current_index) == ((), 4)
    assert plan.steps[1].label == "t"
    assert plan.steps[1].replace(target_resource="").label == "call_tool"


@pytest.mark.parametrize("status", StepStatus)
def test_what_is_settled(status):
    assert (
        TaskStep(status=status).settled
        == (status in SETTLED)
        == (status not in ("pending", "running"))
    )


def test_with_step_changes_one_step_and_shares_the_others():
    plan = chain_plan()
    changed = plan.with_step("book", status=StepStatus.COMPLETED, result={"ref": 1})
    assert (plan.step("book").status, changed.step("book").result) == ("pending", {"ref": 1})
    assert all(changed.steps[i] is plan.steps[i] for i in (0, 2, 3))
    assert changed.digest != plan.digest


# ---- edits -----------------------------------------------------------------------------------


def test_without():
    plan = chain_plan()
    assert [(s.step_index, s.step_id) for s in plan.without("hotel").steps] == [
        (0, "find"),
        (1, "book"),
        (2, "pay"),
    ]
    with pytest.raises(PlanEditError, match=r"'book' depends on 'find'.*cascade=True"):
        plan.without("find")
    assert [s.step_id for s in plan.without("find", cascade=True).steps] == ["hotel"]
    assert [s.step_id for s in plan.without("book", cascade=True).steps] == ["find", "hotel"]
    with pytest.raises(UnknownNameError, match="unknown step 'hotl'"):
        plan.without("hotl")
    assert len(plan) == 4


@given(replies(), st.data())
@fast
def test_without_cascade_takes_out_the_descendants(reply, data):
    made = network(reply)
    if not nx.is_directed_acyclic_graph(made):
        return
    plan = parse_plan(reply)
    gone = data.draw(st.sampled_from(sorted(made)))
    below = nx.descendants(made, gone)
    left = plan.without(f"s{gone}", cascade=True)
    assert {s.step_id for s in left.steps} == {f"s{i}" for i in set(made) - below - {gone}}
    assert ordered(left.steps) == left.steps
    if below:
        with pytest.raises(PlanEditError):
            plan.without(f"s{gone}")
    else:
        assert plan.without(f"s{gone}") == left


@pytest.mark.parametrize("status", sorted({*SETTLED, StepStatus.RUNNING}))
def test_what_is_settled_or_under_way_is_not_edited(status):
    plan = chain_plan(book=status)
    for edit in (
        lambda: plan.without("book"),
        lambda: plan.without("book", cascade=True),
        lambda: plan.without("find", cascade=True),  # would take out "book"
        lambda: plan.edit("book", name="x"),
        lambda: plan.editable("book"),
    ):
        with pytest.raises(PlanEditError, match=rf"'book' is {status} and cannot be edited"):
            edit()
    assert plan.editable("hotel") is plan.step("hotel")


def test_edit():
    plan = chain_plan()
    edited = plan.edit("hotel", parameters={"near": "${find.city}"}, name="Hotel")
    assert edited.step("hotel").dependencies == ("find",)
    assert edited.step("hotel").name == "Hotel"
    assert plan.step("hotel").parameters == {}
    turned = plan.edit("find", parameters={"h": "${hotel.id}"})
    assert [s.step_id for s in turned.steps] == ["hotel", "find", "book", "pay"]
    assert [s.step_index for s in turned.steps] == [0, 1, 2, 3]


def test_a_reference_is_a_dependency_whatever_the_edit_says():
    plan = chain_plan()
    assert plan.edit("book", dependencies=()).step("book").dependencies == ("find",)
    edited = plan.edit("book", dependencies=("hotel",), parameters={"x": "${find.id}"})
    assert set(edited.step("book").dependencies) == {"hotel", "find"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"parameters": {"x": "${pay.id}"}}, "cyclic dependency among book, find, pay"),
        ({"parameters": {"x": "${gone.id}"}}, "names no known step"),
        ({"parameters": {"x": "${gone"}}, "without its '}'"),
        ({"parameters": 5}, "step 'find': "),
        ({"dependencies": ("gone",)}, "depends on unknown step 'gone'"),
        ({"dependencies": ("find",)}, "cyclic dependency"),
        ({"importance": 2}, "field importance|importance|less than or equal to 1"),
        ({"step_id": "other"}, "keeps its id"),
    ],
)
def test_edits_that_would_break_the_plan(changes, problem):
    with pytest.raises(PlanEditError, match=problem):
        chain_plan().edit("find", **changes)


def test_an_edit_of_a_field_that_is_none():
    with pytest.raises(PlanEditError, match="did you mean 'parameters'"):
        chain_plan().edit("find", parameter={})


def test_insert():
    plan = chain_plan()
    new = TaskStep(step_id="check", name="Check", parameters={"id": "${find.id}"})
    assert [s.step_id for s in plan.insert(new).steps] == ["find", "book", "pay", "hotel", "check"]
    first = plan.insert(new, at=0)
    assert [s.step_id for s in first.steps] == ["find", "check", "book", "pay", "hotel"]
    assert first.step("check").dependencies == ("find",)
    assert [s.step_index for s in first.steps] == [0, 1, 2, 3, 4]
    for bad, problem in {
        "find": "occurs more than once",
        "no slug": "is no slug",
    }.items():
        with pytest.raises(PlanEditError, match=problem):
            plan.insert(TaskStep(step_id=bad))
    with pytest.raises(PlanEditError, match="names no known step"):
        plan.insert(new.replace(parameters={"id": "${gone.id}"}))


def test_a_plan_that_uses_results_of_earlier_plans_can_be_edited():
    plan = parse_plan(
        {
            "steps": [
                step("use", parameters={"x": "${old.x}"}),
                step("wait", dependencies=["older"]),
                step("free"),
            ]
        },
        known={"old", "older"},
    )
    edited = plan.edit("free", name="Freed")
    assert edited.step("free").name == "Freed"
    assert edited.step("use") == plan.step("use")
    assert len(plan.insert(TaskStep(step_id="more"))) == 4
    with pytest.raises(PlanEditError, match="names no known step"):
        plan.edit("free", parameters={"x": "${oldest}"})


# ---- signature -------------------------------------------------------------------------------


@given(replies())
@fast
def test_the_signature_ignores_ids(reply):
    if not nx.is_directed_acyclic_graph(network(reply)):
        return
    names = [s["name"] for s in reply["steps"]]

    def new(step):
        return f"r_{step}" if step in names else f"r_{names[int(step)]}"

    other = {
        "steps": [
            {
                **item,
                "name": f"other {item['name']}",
                "stepId": f"r_{item['name']}",
                "dependencies": [new(d) for d in item["dependencies"]],
                "parameters": rename(item["parameters"], new),
            }
            for item in reply["steps"]
        ]
    }
    assert parse_plan(other).signature() == parse_plan(reply).signature()


def test_the_signature_tells_what_is_done_apart():
    plan = chain_plan()
    signatures = {
        plan.signature(),
        plan.edit("hotel", target_resource="u").signature(),
        plan.edit("hotel", action_type="aggregate").signature(),
        plan.edit("hotel", parameters={"n": 1}).signature(),
        plan.edit("hotel", parameters={"n": "${find.n}"}).signature(),
        plan.edit("hotel", parameters={"n": "${book.n}"}).signature(),
        plan.without("hotel").signature(),
        plan.with_step("find", status=StepStatus.COMPLETED).signature(),
    }
    assert len(signatures) == 8


def test_the_signature_does_not_take_a_settled_step_for_a_remaining_one():
    def rest(source):
        return TaskPlan(
            steps=(
                TaskStep(step_id="step_0", status=StepStatus.COMPLETED),
                TaskStep(step_id="first"),
                TaskStep(step_id="second", parameters={"x": f"${{{source}.x}}"}),
            )
        )

    assert rest("step_0").signature() != rest("first").signature()
