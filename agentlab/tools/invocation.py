"""A call of a tool's function: its arguments made, its result written, whatever happens meanwhile.

Nothing that a tool does ends a run. What escapes its function, of whatever class, is an error that
the agent can read; only Ctrl-C goes through, where a person pressed it. A result that cannot be
kept is an error as well, and a permanent one: the call took effect, and would return the same.
"""

from __future__ import annotations

import threading
from inspect import isawaitable
from typing import Any

from agentlab.base.documents import Json
from agentlab.errors import JsonError, ToolFailure, a_kind, failure, raised, told
from agentlab.tools.calls import ToolError
from agentlab.tools.loop import awaited
from agentlab.tools.result import as_json
from agentlab.tools.tool import Tool


def carried_out(tool: Tool, arguments: dict[str, Any]) -> tuple[Json, ToolError | None]:
    """Call the function of a tool.

    Parameters
    ----------
    tool : Tool
        One that has a function.
    arguments : dict
        As they were sent, and checked; they are left alone.

    Returns
    -------
    tuple of result and error
        Plain JSON, each of its own; one of them is None.
    """
    assert tool.function is not None
    try:
        given = tool.converted(arguments)
    except BaseException as e:  # it was checked, but what it depends on may have changed
        return None, _unfit(tool, arguments, e)
    try:
        result = tool.function(**given)
        if isawaitable(result):
            result = awaited(result, tool.timeout, tool.name)
    except BaseException as e:
        return None, _error(e)
    try:
        adapter = None if tool.signature is None else tool.signature.adapter
        return as_json(result, adapter), None
    except JsonError as e:
        text = told(f"{tool.name} returned {a_kind(result)} that is not JSON: {e}")
        return None, ToolError(code="not_json", message=text, permanent=True)
    except BaseException as e:  # of a class that is anybody's, while it was read
        return None, _error(e, "not_json")


def _unfit(tool: Tool, arguments: dict[str, Any], error: BaseException) -> ToolError:
    if tool.signature is None or isinstance(error, KeyboardInterrupt):
        return _error(error)
    text = f"arguments of {tool.name!r}: {tool.signature.explained(error, arguments)}"
    return ToolError(code="bad_arguments", message=told(text))


def _error(error: BaseException, code: str = "exception") -> ToolError:
    here = threading.current_thread() is threading.main_thread()
    if here and isinstance(error, KeyboardInterrupt):  # elsewhere it is the tool's own
        raise error
    if isinstance(error, ToolFailure):
        named, said, permanent = failure(error)
        return ToolError(code=named, message=said, permanent=permanent)
    return ToolError(code=code, message=raised(error), permanent=code != "exception")
