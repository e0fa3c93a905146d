"""What the tests of the widgets share: hostile text, a strict reader of HTML, a fake front end."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import comm
import pytest

import agentlab as al
from agentlab.minds.planners.fixed import Fixed
from agentlab.plans.task_plan import StepStatus, TaskPlan, TaskStep
from agentlab.runs.graph import END, Node
from agentlab.runs.run import Run
from agentlab.runs.visits import Lineage
from agentlab.state.decisions import ReplanDecision, ReplanRecord
from agentlab.state.messages import said
from agentlab.state.state import State
from agentlab.state.tool_loop import PendingApproval, ToolLoop
from agentlab.views.inspector import inspector
from agentlab.views.inspector.inspector import Inspector
from agentlab.workflows.workflow import Workflow

HOSTILE = [
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\" onclick='alert(1)' x=\"",
    "a & b < c > d &amp; &#60;",
    "]]> --> <!-- <![CDATA[",
    "</pre></details></div></svg></textarea>",
    "${step.path} {curly} %s $x^2$",
    "\x00\x07\x1b[31m\x7f\u202e\u2066gnirts",
    "line\r\nline\ttab",
    "𝕌𝕟𝕚 ünï 漢字 🧪",
]
TAGS = {
    "style", "div", "header", "strong", "span", "b", "i", "p", "details", "summary", "table",
    "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "pre", "code", "h4", "article", "svg",
    "g", "title", "rect", "text", "path", "polygon", "button", "textarea",
}  # fmt: skip
ATTRIBUTES = {
    "class", "style", "open", "title", "data-step", "data-key", "role", "tabindex", "aria-label",
    "aria-pressed", "xmlns", "viewbox", "width", "height", "x", "y", "rx", "fill", "stroke",
    "stroke-width", "stroke-dasharray", "text-anchor", "font-family", "font-size", "font-weight",
    "d", "points", "type", "data-call", "data-review", "data-answer", "placeholder", "rows",
    "data-agentlab-place",
}  # fmt: skip


class Checker(HTMLParser):
    """Reads HTML strictly: known elements and attributes only, everything closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: list[str] = []
        self.values: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        assert name in TAGS, f"foreign element {name}"
        for key, value in attributes:
            assert key in ATTRIBUTES, f"foreign attribute {key}"
            self.values.append(value or "")
        self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    handle_decl = handle_pi = unknown_decl = handle_comment

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def read(source: str) -> Checker:
    """Read HTML strictly; fail on anything that this package would not make."""
    json.dumps(source, ensure_ascii=False).encode()  # a message to the front end can hold it
    found = Checker(source)
    for style in (v for v in found.values if "background" in v):
        assert all(c.isalnum() or c in ":;#.%- " for c in style)
    return found


def hostile_step(t: str, n: int, status: StepStatus, after: tuple[str, ...] = ()) -> TaskStep:
    return TaskStep(
        step_index=n, step_id=f"{t}{n}", name=t, description=t, action_type=t, target_resource=t,
        parameters={t: [t, {t: t}]}, dependencies=after, status=status, error=t, result={t: t},
        expectation=t, interruption_context={"reason": t},
    )  # fmt: skip


def make_hostile_run(t: str, then: str = END) -> Run:
    """Return a run with the text in every place that takes one, that has ended or waits."""
    statuses = list(StepStatus)
    steps = tuple(
        hostile_step(t, n, s, (f"{t}{n - 1}",) if n else ()) for n, s in enumerate(statuses)
    )
    plan = TaskPlan(steps=steps, answer=t, summary=t, user_intent=t)
    decision = ReplanDecision(action="REPLAN_REMAINING", reasoning=t, new_context_hints=(t,))
    record = ReplanRecord(at=1.0, visit=1, decision=decision, before=plan, after=plan)
    call = PendingApproval(call_id=t, tool=t, arguments={t: t}, effect=t, reason=t)
    states = [
        State(user_input=t),
        State(
            user_input=t, final_response=f"{t}\n{t}", error=t, stopped_by=t, task_plan=plan,
            replan_history=[record], results={t: {t: t}}, attempts={f"{t}0": 1}, notes={t: t},
            messages=[said(t)],            world={t: {t: [t]}}, belief={t: t}, answer={t: t},
            loop=ToolLoop(pending_approvals=(call,)),
        ),
    ]  # fmt: skip
    flow = Workflow(t, [Node(t, lambda state, lab: state)], {t: then}, t)
    lab = al.Lab(tools=[], planner=Fixed(), strategy="never")
    run = Run(flow, lab, states, [t], lineage=Lineage(t, 0, (t,)), run_id=t)
    for kind in ("node", "step", "action", "tool", "lm", "decision", "fault", "event", t):
        span = run.recorder.mark(kind, t, step_id=f"{t}0", attempt=1, input={t: t}, output={t: t})
        span.error = t
        span.attributes = {t: t}
    for prompt in (t, [{"role": t, "content": t}], {"messages": [{"role": t}]}, {"messages": t}):
        run.recorder.mark("lm", t, input=prompt, output=t)
    for output in ({"description": t}, {"reasoning": t}, {"kind": t, "tool": t}, t):
        run.recorder.mark("fault", t, input={"reason": t}, output=output)
    return run


@pytest.fixture(params=HOSTILE)
def hostile(request):
    """Text that tries to be more than text, one after another."""
    return request.param


@pytest.fixture(scope="session")
def check():
    return read


@pytest.fixture(scope="session")
def hostile_run():
    return make_hostile_run


# ---- a front end without a browser --------------------------------------------------------------


class FakeComm:
    """Stands between a widget and a front end: keeps what is sent, delivers what is clicked."""

    def __init__(self, **options) -> None:
        self.comm_id = "fake"
        self.sent: list[dict] = []
        self.send(options.get("data"))

    def send(self, data=None, metadata=None, buffers=None):
        # as jupyter_client packs it
        self.sent.append(json.loads(json.dumps(data, allow_nan=False, ensure_ascii=False).encode()))

    def on_msg(self, callback):
        self.deliver = callback

    def close(self, *args, **kwargs):
        self.sent.append({"method": "close"})


class Front:
    """What a browser would do and see."""

    def __init__(self, run: Run | Inspector) -> None:
        self.widget = run if isinstance(run, Inspector) else Inspector(run)
        self.comm = self.widget.comm

    def send(self, content) -> dict:
        self.comm.deliver(
            {"content": {"data": {"method": "custom", "content": content}}, "buffers": []}
        )
        return self.view

    def __call__(self, action: str, **given) -> dict:
        return self.send({"do": action, **given})

    @property
    def view(self) -> dict:
        updates = [m["state"] for m in self.comm.sent if m and "view" in (m.get("state") or {})]
        return updates[-1]["view"]

    @property
    def said(self) -> str:
        return (self.view["message"] or {}).get("text", "")

    @property
    def failed(self) -> bool:
        return bool(self.view["message"]) and self.view["message"]["kind"] == "error"


@pytest.fixture(autouse=True)
def fake_comm(monkeypatch):
    monkeypatch.setattr(comm, "create_comm", FakeComm)
    monkeypatch.setattr(inspector, "CHUNK", 60.0)  # a slow machine must not part one run in two
    inspector._live.clear()


@pytest.fixture(scope="session")
def front_end():
    """The class: ``front_end(run)`` shows a run, ``front("step")`` clicks."""
    return Front


@pytest.fixture
def run(notes, step):
    """A run of two steps that note their calls, in which nothing has happened yet."""
    plan = [step("a", parameters={"n": 1}), step("b", "note", "a")]
    return notes.start(plan, strategy="retry(1)")
