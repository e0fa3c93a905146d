"""One turn of a conversation: what was understood, and what was found for the answer.

A new turn is ``Turn()``; only the totals at its start are put in, since budgets are of a turn. The
field names are those of the seeds' states, which ``State`` shows flat (see ``state.FLAT``).
"""

from __future__ import annotations

from pydantic import Field

from agentlab.base.documents import Json
from agentlab.base.values import Document, Value


class Totals(Value):
    """What the run had spent when the turn began."""

    executions: int = 0
    tool_calls: int = 0
    lm_tokens: int = 0
    seconds: float = 0.0
    """Simulated."""


class Reference(Value):
    """Something that the answer may cite."""

    n: int = Field(ge=1)
    """As in ``[[ref:n]]``."""
    title: str = ""
    source: str = ""
    """Address of a page, or name of a document."""
    text: str = ""


class Turn(Value):
    """What belongs to one turn."""

    since: Totals = Totals()

    user_intent: str = ""
    intent_confidence: float = Field(default=0.0, ge=0.0, le=1.0)
    intent_error: str | None = None
    should_continue: bool = True

    need_rag: bool = False
    rag_reason: str = ""
    rag_keywords: tuple[str, ...] = ()
    target_dataset: str = ""
    target_dataset_ids: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()

    selected_sub_agent: str = ""
    selected_tool: str = ""
    selected_skill_ids: tuple[str, ...] = ()
    tool_params: Document = {}
    sub_agent_result: Json = None
    tool_result: Json = None

    web_search_mode: str = "AUTO"
    """"OFF", "AUTO" or "FORCE"."""
    need_web_search: bool = False
    web_search_query: str = ""
    web_search_only: bool = False
    web_search_context: str = ""
    resume_strategy: str = "continue"
    """"continue" or "replan", when a stored session goes on."""
