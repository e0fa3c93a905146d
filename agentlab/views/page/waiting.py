"""The calls that wait for people, as HTML: what each would do, and in the live form what to answer.

Arguments are shown whole, since somebody is to answer for them.
"""

from __future__ import annotations

from agentlab.runs.run import Run
from agentlab.state.tool_loop import PendingApproval
from agentlab.views.page.markup import Html, tag
from agentlab.views.people import arguments_text, title

ANSWERS = (
    ("approve", "Approve", "Let the call through as it is"),
    ("edit", "Call with these arguments", "Let it through with the arguments as edited above"),
    ("reject", "Reject", "The call fails and is not tried again"),
)


def waiting_html(run: Run, *, live: bool = False) -> Html | None:
    """Show what a run waits for; None: it waits for no call."""
    cards = [_card(call, live) for call in _calls(run)]
    return tag("div", cards, class_="agentlab-waiting") if cards else None


def _calls(run: Run) -> tuple[PendingApproval, ...]:
    try:
        return run.waiting
    except Exception:  # a router is the user's own code, and may raise; the head says what
        return run.state.held


def _card(call: PendingApproval, live: bool) -> Html:
    text = arguments_text(call, indent=2)
    reason = tag("p", call.reason, class_="agentlab-error") if call.reason else None
    head = tag("h4", title(call), tag("span", " waits for approval", class_="agentlab-quiet"))
    shown = _field("arguments", text, "Arguments, as JSON") if live else tag("pre", text)
    answers = _answers() if live else None
    return tag("article", head, reason, shown, answers, data_review=call.call_id)


def _answers() -> Html:
    buttons = [
        tag("button", text, type="button", title=what, data_answer=answer,
            class_=f"agentlab-button agentlab-{answer}-call")
        for answer, text, what in ANSWERS
    ]  # fmt: skip
    return tag("div", buttons, _field("reason", "", "Reason, or nothing"), class_="agentlab-group")


def _field(name: str, text: str, label: str) -> Html:
    return tag(
        "textarea", text, aria_label=label, placeholder=label,
        rows=1 if name == "reason" else min(max(text.count("\n") + 1, 2), 12),
        class_=f"agentlab-call-text agentlab-{name}",
    )  # fmt: skip
