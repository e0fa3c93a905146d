"""The rules of a contract: graphs against networkx, each rule broken alone, all told at once."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings, strategies as st

from agentlab.errors import ConfigError, PlanValidationError
from agentlab.plans.contract.spec import PlanCapability, PlanSpec, PlanStep
from agentlab.plans.contract.validator import PlanValidator

IN, OUT = {"type": "object", "required": ["a", "b"]}, {"type": "string", "minLength": 1}
SEARCH = PlanCapability(execution_target="tool:search", input_schema=IN, output_schema=OUT)
WRITER = PlanCapability(execution_target="agent:writer", input_schema={}, output_schema={})
RULES = PlanValidator([SEARCH, WRITER])


def step(step_id="a", *dependencies, **fields):
    return PlanStep(
        **{
            "step_id": step_id, "objective": "Find it.", "dependencies": dependencies,
            "execution_target": "tool:search", "input_schema": IN, "output_schema": OUT,
            "completion_criteria": "It is found.", **fields,
        }
    )  # fmt: skip


def spec(*steps, **fields):
    return PlanSpec(**{"revision": 1, "objective": "Research.", "steps": steps, **fields})


def told(made, rules=RULES, generated=False):
    """(step, field) of every violation."""
    try:
        back = (rules.validate_generated if generated else rules.validate)(made)
    except PlanValidationError as e:
        found = e.violations
    else:
        assert back is made
        return []
    assert all(str(v) in str(PlanValidationError(found)) for v in found)
    return [(v.step, v.field) for v in found]


# ---- the graph -------------------------------------------------------------------------------


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 12))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    made = nx.DiGraph(draw(st.lists(pairs, max_size=draw(st.sampled_from([3, n, 3 * n])))))
    made.add_nodes_from(range(n))
    order = draw(st.permutations(range(n)))
    return made, spec(*(step(f"s{i}", *(f"s{d}" for d in made.predecessors(i))) for i in order))


@given(graphs(), st.integers(1, 12))
@settings(deadline=None, max_examples=300)
def test_cycles_and_depth_against_networkx(drawn, most):
    graph, made = drawn
    rules = PlanValidator([SEARCH], max_depth=most)
    if nx.is_directed_acyclic_graph(graph):
        depth = nx.dag_longest_path_length(graph) + 1
        found = told(made, rules)
        assert bool(found) == (depth > most)
        if found:
            with pytest.raises(PlanValidationError, match=rf"depth {depth}, at most {most}: ") as e:
                rules.validate(made)
            path = e.value.violations[0].problem.split(": ")[1].split(" < ")
            assert len(path) == depth
            assert all(graph.has_edge(int(a[1:]), int(b[1:])) for a, b in pairwise(path))
        return
    with pytest.raises(PlanValidationError) as e:
        rules.validate(made)
    cycles = [v.problem.removeprefix("form a cycle: ").split(" needs ") for v in e.value.violations]
    for cycle in cycles:
        assert cycle[0] == cycle[-1]
        nodes = [int(c[1:]) for c in cycle]
        assert all(graph.has_edge(b, a) for a, b in pairwise(nodes))
    named = {c for cycle in cycles for c in cycle}
    assert len(named) == sum(len(cycle) - 1 for cycle in cycles), "two cycles share a step"
    for part in nx.strongly_connected_components(graph):
        if len(part) > 1 or graph.has_edge(*[next(iter(part))] * 2):
            assert named & {f"s{i}" for i in part}, "a component whose cycle is not told"


def test_every_cyclic_component_is_told_and_none_by_mistake():
    made = spec(
        step("a", "b"), step("b", "a"), step("c", "c"), step("d", "a"), step("e"), step("f", "e")
    )
    with pytest.raises(PlanValidationError) as e:
        RULES.validate(made)
    assert sorted(v.problem.count("needs") for v in e.value.violations) == [1, 2]


def test_the_order_of_the_list_does_not_matter():
    assert told(spec(step("z", "y", "x"), step("y", "x"), step("x"))) == []


def test_depth_counts_steps():
    chain = [step(f"s{i}", *([f"s{i - 1}"] if i else [])) for i in range(17)]
    assert told(spec(*chain[:16])) == []
    assert told(spec(*chain)) == [("s16", "dependencies")]
    alone = spec(*(step(f"s{i}") for i in range(64)))
    assert told(alone, PlanValidator([SEARCH], max_depth=1)) == []


def test_the_number_of_steps():
    steps = [step(f"s{i}") for i in range(65)]
    assert told(spec(*steps[:64])) == []
    assert told(spec(*steps)) == [(None, "steps")]
    assert told(spec()) == [(None, "steps")]
    assert told(spec(), PlanValidator([SEARCH], min_steps=0)) == []


def test_a_plan_without_end_is_refused_without_walking_its_graph():
    steps = [step(f"s{i}", f"s{i}", "gone") for i in range(20_000)]
    assert told(spec(*steps)) == [(None, "steps")]


# ---- each rule -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"schema_version": 2}, (None, "schemaVersion")),
        ({"schema_version": 0, "revision": 0}, (None, "schemaVersion")),
        ({"revision": 0}, (None, "revision")),
        ({"revision": -3}, (None, "revision")),
        ({"objective": ""}, (None, "objective")),
        ({"objective": " \t\n"}, (None, "objective")),
        ({"steps": (step(" "),)}, ("steps[0]", "stepId")),
        ({"steps": (step(objective="\u00a0"),)}, ("a", "objective")),
        ({"steps": (step(completion_criteria=""),)}, ("a", "completionCriteria")),
        ({"steps": (step("a"), step("a"))}, ("a", "stepId")),
        ({"steps": (step("a", "b"),)}, ("a", "dependencies")),
        ({"steps": (step(input_schema={}),)}, ("a", "inputSchema")),
        ({"steps": (step(output_schema={**OUT, "minLength": True}),)}, ("a", "outputSchema")),
        ({"steps": (step(output_schema={**OUT, "title": "x"}),)}, ("a", "outputSchema")),
        ({"steps": (step(input_schema={**IN, "required": ["b", "a"]}),)}, ("a", "inputSchema")),
        ({"steps": (step(input_schema={"$ref": "http://127.0.0.1:1/"}),)}, ("a", "inputSchema")),
        ({"steps": (step(input_schema={"a": float("nan")}),)}, ("a", "inputSchema")),
        ({"steps": (step(input_schema={"a": {1}}),)}, ("a", "inputSchema")),
        ({"steps": (step(result={"rows": [1, {"n": float("inf")}]}),)}, ("a", "result.rows[1].n")),
        ({"steps": (step(result="\ud800"),)}, ("a", "result")),
        ({"steps": (step(result=(1, 2)),)}, ("a", "result")),
    ],
)  # fmt: skip
def test_a_broken_rule_is_told_by_itself(fields, expected):
    assert told(spec(**{"steps": (step(),), **fields})) == [expected]


@pytest.mark.parametrize(
    "target", ["search", "tool:", "tool:Search", "tool:search ", "agent:search", "tool:writer", ""]
)
def test_targets_resolve_exactly(target):
    assert told(spec(step(execution_target=target))) == [("a", "executionTarget")]


def test_the_nearest_name_is_told():
    with pytest.raises(PlanValidationError, match=r"did you mean 'tool:search'\?"):
        RULES.validate(spec(step(execution_target="tool:serach")))
    with pytest.raises(PlanValidationError, match=r"unknown step 'frist'; did you mean 'first'\?"):
        RULES.validate(spec(step("first"), step("b", "frist")))


def test_schemas_are_compared_as_structures():
    shuffled = {"required": ["a", "b"], "type": "object"}
    assert told(spec(step(input_schema=shuffled))) == []


def test_a_schema_of_an_unknown_target_is_looked_at_too():
    made = spec(step(execution_target="tool:x", output_schema={"type": "text"}))
    assert told(made) == [("a", "executionTarget"), ("a", "outputSchema")]


def test_every_violation_is_told():
    made = spec(
        step("a", "b", objective=" "), step("b", "a", execution_target="tool:x"),
        step("b", "gone", input_schema={}), revision=0,
    )  # fmt: skip
    assert sorted(told(made), key=str) == sorted(
        [
            (None, "revision"), ("a", "objective"), ("b", "executionTarget"), ("b", "inputSchema"),
            ("b", "stepId"), ("b", "dependencies"), ("a", "dependencies"),
        ],
        key=str,
    )  # fmt: skip


# ---- what a model may not claim --------------------------------------------------------------


@pytest.mark.parametrize("status", ["RUNNING", "COMPLETED", "FAILED", "SKIPPED"])
def test_a_status_is_structure_and_no_claim_of_a_model(status):
    made = spec(step(status=status))
    assert told(made) == []
    assert told(made, generated=True) == [("a", "status")]


@pytest.mark.parametrize("claim", [{"result": 0}, {"result": False}, {"error": ""}])
def test_results_and_errors_are_no_claim_of_a_model(claim):
    made = spec(step(**claim))
    assert told(made) == []
    assert told(made, generated=True) == [("a", next(iter(claim)))]


def test_claims_and_structure_are_told_together():
    made = spec(step("a", "a", status="COMPLETED", result=1, error="e"))
    assert len(told(made, generated=True)) == 4


# ---- the validator itself --------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [{"max_steps": 0}, {"max_depth": 0}, {"min_steps": -1}, {"min_steps": 3, "max_steps": 2}],
)
def test_limits_that_are_none(limits):
    with pytest.raises(ConfigError, match="expected limits"):
        PlanValidator([SEARCH], **limits)


def test_capabilities_that_cannot_be_used():
    with pytest.raises(ConfigError, match="two capabilities share this target"):
        PlanValidator([SEARCH, SEARCH])
    with pytest.raises(ConfigError, match=r"agent:writer.*output schema: .*leads out"):
        PlanValidator([WRITER.replace(output_schema={"$ref": "http://127.0.0.1:1/"})])
    with pytest.raises(ConfigError, match=r"expected the target"):
        PlanValidator([WRITER.replace(execution_target="writer")])
