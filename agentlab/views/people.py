"""What waits for people, and what they said, in words: the same for terminal and notebook."""

from __future__ import annotations

import json
from typing import Any

from agentlab.base.strict_json import read_json
from agentlab.errors import JsonError, RunError
from agentlab.state.tool_loop import PendingApproval
from agentlab.tools.calls import call_text
from agentlab.trace.span import Span

SIGNALLED = {"pause": "paused the run", "go on": "let the run go on"}
ANSWERED = {"approve": "approved", "edit": "changed and approved", "reject": "rejected"}


def title(call: PendingApproval) -> str:
    """Say which call waits, and what it does outside.

    Examples
    --------
    >>> title(PendingApproval(call_id="r", tool="refund", effect="irreversible"))
    'r: refund (irreversible)'
    """
    name = call.tool if call.tool == call.call_id else f"{call.call_id}: {call.tool}"
    return f"{name} ({call.effect})" if call.effect else name


def arguments_text(call: PendingApproval, indent: int | None = None) -> str:
    r"""Return the arguments as JSON: all of them, and what cannot be seen is spelt out.

    Examples
    --------
    >>> arguments_text(PendingApproval(call_id="r", tool="t", arguments={"to": "Köln\u202e"}))
    '{"to": "Köln\\u202e"}'
    """
    text = json.dumps(call.to_json()["arguments"], ensure_ascii=False, indent=indent)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def read_arguments(text: str) -> dict[str, Any]:
    """Return the arguments that a person typed.

    Raises
    ------
    RunError
        They are no object of JSON.
    """
    try:
        given = read_json(text)
    except JsonError as e:
        raise RunError(f"the arguments are not JSON: {e}") from e
    if not isinstance(given, dict):
        raise RunError(f"expected the arguments as an object of JSON, got {text.strip()}")
    return given


def told(span: Span) -> str | None:
    """Return what a person said, as a decision span has it; None: it is another's decision.

    Examples
    --------
    >>> from agentlab.trace.recorder import Recorder
    >>> said = {"text": "And then?", "by": "user"}
    >>> told(Recorder().mark("decision", "say", output=said))
    'user: And then?'
    """
    output = span.output if isinstance(span.output, dict) else {}
    if span.kind != "decision" or "by" not in output:
        return None
    if span.name == "say":
        return f"{output['by']}: {output.get('text', '')}"
    if span.name in SIGNALLED:
        return f"{output['by']} {SIGNALLED[span.name]}"
    asked = span.input if isinstance(span.input, dict) else {}
    if span.name != "review" or output.get("answer") not in ANSWERED:
        return None
    tool, arguments = str(asked.get("tool", "")), asked.get("arguments") or {}
    text = f"{output['by']} {ANSWERED[output['answer']]} {call_text(tool, arguments)}"
    if output["answer"] == "edit":
        text += f", which is now {call_text(tool, output.get('arguments') or {})}"
    return f"{text}: {output['reason']}" if output.get("reason") else text
