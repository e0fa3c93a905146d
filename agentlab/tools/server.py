"""The description of an MCP server."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentlab.base.values import Value


class McpServer(Value):
    """An MCP server that is started as a process and spoken to through its pipes."""

    id: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    command: str = Field(min_length=1)
    """A program, found on the PATH or beside this Python; no shell reads it."""
    args: tuple[str, ...] = ()
    env: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...] = ()
    """Names of variables it is given, beside PATH and HOME; values come from the environment."""
    timeout_ms: int = Field(default=30_000, gt=0)
    """Of its start, and of each call."""
