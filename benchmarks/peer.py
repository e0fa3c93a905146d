"""The loop that LangGraph runs beside ours: two nodes in turn, and a router that ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def langgraph_loop(
    state: type, step: Callable[[Any], dict], steps: int, checkpointer: Any = None
) -> Any:
    """Return a graph whose two nodes are both ``step``; it ends when ``n`` is ``steps``."""
    try:
        from langgraph.graph import END, StateGraph
    except ImportError as e:
        raise SystemExit("this benchmark compares with LangGraph: pip install langgraph") from e
    graph = StateGraph(state)
    graph.add_node("left", step)
    graph.add_node("right", step)
    graph.set_entry_point("left")
    graph.add_edge("left", "right")
    graph.add_conditional_edges("right", lambda s: "left" if s["n"] < steps else END, ["left", END])
    return graph.compile(checkpointer=checkpointer)
