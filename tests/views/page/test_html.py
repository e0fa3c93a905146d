"""The static form of a run: no foreign text is ever markup, and what is long is cut."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st
from IPython.core.formatters import DisplayFormatter

import agentlab as al
from agentlab.lm.settings import ModelSettings
from agentlab.minds.planners.fixed import Fixed
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep
from agentlab.runs.graph import Node
from agentlab.runs.run import Run
from agentlab.state.config import AgentConfig
from agentlab.state.state import State
from agentlab.trace.span import Span
from agentlab.views.page import drawing, html
from agentlab.views.page.markup import Html, brief, clean, markup, pre, tag
from agentlab.views.text import json_text
from agentlab.workflows.workflow import Workflow

# ---- escaping ---------------------------------------------------------------------------------


def test_foreign_text_is_never_markup(hostile, check, hostile_run):
    run = hostile_run(hostile)
    page = check(run._repr_html_())
    assert "".join(clean(hostile).split()) in "".join(page.text.split())
    for details in (
        html.step_details(run.state, f"{hostile}2", run.spans),
        html.lm_calls(run.spans),
    ):
        check(details)
    check(html.diff_html(*run.states))
    check(html.graph(run.plan, f"{hostile}1", live=True))


@settings(max_examples=25, deadline=None)
@given(t=st.text(max_size=12))
def test_foreign_text_is_never_markup_whatever_it_is(t, check, hostile_run):
    check(hostile_run(t or "x")._repr_html_())


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(t=st.text(st.characters(), max_size=20), value=anything)
def test_documents_of_any_kind_are_shown(t, value, check):
    span = Span(1, 0, "tool", t, 0, t, 1, value, 0.0, 0.0)
    span.output, span.error = value, t
    for made in (html.span_tree([span]), html.log([span]), pre(value), markup(brief(value)),
                 html.lm_calls([span]), drawing.timeline([span])):  # fmt: skip
        check(made)


def test_what_is_no_json_is_shown_as_python_spells_it(check):
    round_ = {}
    round_["self"] = round_
    for value in (round_, {(1, 2): 3}, object(), {"set": {1}}, b"bytes", 1 + 2j):
        assert json_text(value)
        check(pre(value))
    assert json_text({"nan": float("nan")}) == '{"nan": NaN}'


def test_tag_and_markup():
    assert tag("p", "<", Html("<br>"), None, [1, ["&"]]) == "<p>&lt;<br>1&amp;</p>"
    assert tag("i", open=True, hidden=False, x=None, data_step="'\"") == (
        '<i open data-step="&#x27;&quot;"></i>'
    )
    assert tag("input", type="range") == '<input type="range">'


def test_secrets_do_not_show():
    model = ModelSettings(model_id="openai/m", api_key="sk-very-secret")
    agent = AgentConfig(id="a", name="a", model=model)
    lab = al.Lab(tools=[], planner=Fixed([]), agent=agent, responder="template")
    run = al.autonomous.start(lab, "hello")
    run.finish()
    assert run.state.llm_model_config is not None
    assert "very-secret" not in run._repr_html_()
    assert "very-secret" not in html.diff_html(run.states[0], run.state)


# ---- the state and what changed ----------------------------------------------------------------


def test_changes_go_down_to_the_value(check):
    plan = TaskPlan(steps=(TaskStep(step_id="a"), TaskStep(step_id="b")))
    before = State(
        world={"x": {"y": 1, "gone": 2}, "same": [1]}, results={"a": 1}, task_plan=plan, now=1.0
    )
    after = before.replace(
        world={**before.world, "x": {"y": 3, "new": None}},
        results=before.results.set("b", {"n": 1}),
        task_plan=plan.with_step("b", status=StepStatus.COMPLETED),
        messages=before.messages.append("hello"),
        now=2.5,
    )
    none = html.NOTHING
    assert sorted(html.changes(before, after), key=lambda c: c[0]) == [
        ("messages[0]", none, "hello"),
        ("now", 1.0, 2.5),
        ("results.b", none, {"n": 1}),
        ("task_plan.steps[b].status", "pending", "completed"),
        ("world.x.gone", 2, none),
        ("world.x.new", none, None),
        ("world.x.y", 1, 3),
    ]
    assert list(html.changes(after, after)) == []
    assert "Nothing changed" in html.diff_html(before, before)
    assert "2.5" in check(html.diff_html(before, after)).text


def test_changes_of_every_visit_of_real_runs_are_real(chain, check):
    run = al.autonomous.start(
        al.Lab(chain(5), strategy="retry_then_replan(1)", fault_rate=0.4, seed=3)
    )
    run.finish()
    for before, after in zip(run.states, run.states[1:], strict=False):
        found = list(html.changes(before, after))
        assert any(path == "visit" for path, *_ in found)
        for _, old, new in found:
            assert old is html.NOTHING or new is html.NOTHING or old != new
        check(html.diff_html(before, after))
        check(html.state_html(after))


def test_only_what_differs_from_the_default_is_shown(check):
    page = check(html.state_html(State(now=2.5, world={"k": "v" * 200}))).text
    assert "now" in page
    assert '"vvv' in page
    assert "loop_count" not in page


# ---- the whole --------------------------------------------------------------------------------


def test_the_static_form_says_where_a_run_stands_at_every_visit(chain, check):
    once = al.FaultPlan(targets=(al.TargetedFault(tool="advance", occurrence=0),))
    run = al.autonomous.start(al.Lab(chain(), strategy="retry(1)", faults=once))
    page = check(run._repr_html_()).text
    assert "before load_config" in page
    assert "There is no plan yet." in page
    while not run.finished:
        run.step()
        page = check(run._repr_html_()).text
    assert "✓ goal reached" in page
    for step in run.plan.steps:
        assert step.step_id in page
    assert "RETRY" in page


def test_a_goal_that_is_missed_says_why(chain, check):
    run = al.autonomous.start(al.Lab(chain(), strategy="never", fault_rate=1.0))
    run.finish()
    page = check(run._repr_html_()).text
    assert "✗ goal missed" in page
    assert run.verdict.reasons[0] in page


def test_a_run_without_a_scenario_and_a_fork_and_a_broken_router(notes, step, check):
    run = notes.run([step("a"), step("b", "broken")], [step("c")], strategy="on_error(replans=1)")
    page = check(run._repr_html_()).text
    assert "finished" in page
    assert "Replan 1" in page
    assert "1 steps kept, 1 taken out, 1 new" in page
    fork = run.fork(at=2)
    assert f"{run.run_id} at 2" in check(fork._repr_html_()).text

    def lost(state):
        raise ZeroDivisionError("no way on")

    run.workflow = Workflow(
        "w", run.workflow.nodes.values(), dict.fromkeys(run.workflow.nodes, lost), "planning"
    )
    assert html.standing(run) == ("✗ ZeroDivisionError", ("no way on",))
    check(html.run_html(run))


def test_steps_of_replaced_plans_are_still_found(notes, step, check):
    run = notes.run([step("a", "broken")], [step("c")], strategy="on_error(replans=1)")
    assert [s.step_id for s in run.plan.steps] == ["c"]
    assert "it is broken" in check(html.step_details(run.state, "a", run.spans)).text
    assert "no step 'zz'" in check(html.step_details(run.state, "zz")).text


def test_long_things_are_cut_and_say_so(check):
    assert pre("x" * 10_000) == f"<pre>{'x' * 3000}\n… (10,000 characters in all)</pre>"
    assert brief("word " * 99).endswith("…")
    assert brief(None) == ""
    spans = [Span(i, 0, "decision", "d", 0, "", 0, {"n": i}, 0.0, 0.0) for i in range(1, 1000)]
    for made in (html.span_tree(spans), html.log(spans)):
        assert "300 of 999 are shown." in made
        check(made)
    assert "300 of 999" in html.lm_calls(
        [Span(i, 0, "lm", "m", 0, "", 0, i, 0.0, 0.0) for i in range(999)]
    )


def test_a_long_run_is_shown_in_bounded_size_and_time(chain):
    lab = al.Lab(tools=[], planner=Fixed([]))
    flow = Workflow("loop", [Node("n", lambda s, lab: s.replace(now=s.now + 1.0))], {"n": "n"}, "n")
    run = Run.start(flow, lab, "on and on")
    for _ in range(10_000):
        run.step()
    start = time.perf_counter()
    size = len(run._repr_html_())
    assert size < 300_000
    assert time.perf_counter() - start < 3


def test_data_is_not_repeated_down_the_tree(chain, check):
    run = al.autonomous.start(al.Lab(chain()))
    run.run_until(lambda s: s.executions == 1)
    tool = run.recorder.of_kind("tool")[0]
    assert tool.output
    made = html.span_tree(run.spans)
    assert made.count("<dt>input</dt>") == 2  # the plan's, and the step's
    check(made)


def test_messages_of_a_prompt_stand_one_under_another(check):
    span = Span(1, 0, "lm", "m", 3, "s", 1, None, 0.0, 0.0)
    span.input = {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    }
    span.output, span.attributes = "Hello.", {"tokens_out": 2}
    words = check(html.lm_calls([span])).text.split()
    order = [
        words.index(w) for w in ("system", "brief.", "user", "Hi", "reply", "Hello.", "tokens_out")
    ]
    assert order == sorted(order)
    assert "no LM call" in html.lm_calls([])


# ---- where it is shown ------------------------------------------------------------------------


def test_a_notebook_gets_the_static_form_and_where_the_live_one_goes(chain, monkeypatch, check):
    import IPython

    run = al.autonomous.start(al.Lab(chain()))
    plain = {"text/plain", "text/html"}
    assert set(DisplayFormatter().format(run)[0]) == plain  # no shell
    for shell, live in ((SimpleNamespace(), False), (SimpleNamespace(kernel=object()), True)):
        shell.events = SimpleNamespace(register=lambda *a: None)
        monkeypatch.setattr(IPython, "get_ipython", lambda shell=shell: shell)
        data, _ = DisplayFormatter().format(run)
        assert set(data) == plain  # what refers to a widget is dead in a file
        assert ("data-agentlab-place" in data["text/html"]) == live
        assert run._repr_html_() in data["text/html"]
        assert data["text/plain"] == repr(run)
        check(data["text/html"])


@pytest.mark.parametrize("missing", ["anywidget", "traitlets", "ipywidgets"])
def test_without_widgets_a_notebook_gets_the_static_form(missing):
    code = f"""
import sys
from types import SimpleNamespace
import IPython
sys.modules[{missing!r}] = None
import agentlab as al
run = al.autonomous.start(al.Lab(al.load_suite("chain")[0]))
IPython.get_ipython = lambda: SimpleNamespace(kernel=object())
assert run._repr_mimebundle_() == ({{}}, {{}})
assert "no plan yet" in run._repr_html_()
try:
    al.Inspector(run)
except al.AgentLabError as e:
    assert "pip install anywidget" in str(e), e
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_heavy_is_imported_until_a_widget_is_shown():
    code = """
import sys
import agentlab as al
heavy = ("anywidget", "ipywidgets", "IPython", "matplotlib", "pandas")
assert not [m for m in (*heavy, "agentlab.views.inspector") if m in sys.modules]
run = al.autonomous.start(al.Lab(al.load_suite("chain")[0]))
run.finish()
assert "goal reached" in run._repr_html_()
assert run._repr_mimebundle_() == ({}, {})
assert not [m for m in heavy if m in sys.modules], [m for m in heavy if m in sys.modules]
assert al.Inspector(run).run is run
"""
    subprocess.run([sys.executable, "-c", code], check=True)
