"""The description of an MCP server, and what it takes to start it: a program and its variables."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

from pydantic import Field

from agentlab.base.values import Value
from agentlab.errors import ConfigError


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


def environment(server: McpServer) -> dict[str, str]:
    """Return the variables that the configuration names, with their values.

    Raises
    ------
    ConfigError
        One is not set.
    """
    missing = [name for name in server.env if name not in os.environ]
    if missing:
        raise ConfigError(
            f"MCP server {server.id!r} needs {', '.join(missing)}: not set in the environment"
        )
    return {name: os.environ[name] for name in server.env}


def command_line(server: McpServer) -> list[str]:
    """Return program and arguments.

    Raises
    ------
    ConfigError
        There is no such program.
    """
    beside = os.path.dirname(sys.executable)  # a notebook's kernel may have another PATH
    found = shutil.which(server.command) or shutil.which(server.command, path=beside)
    if found is None:
        raise ConfigError(
            f"MCP server {server.id!r}: no program {server.command!r} on the PATH or in {beside}"
        )
    return [found, *server.args]


def variables(server: McpServer) -> dict[str, str]:
    """Return all variables that a server has."""
    if os.name == "posix":
        base = {n: os.environ[n] for n in ("PATH", "HOME") if n in os.environ}
    else:  # what a program of that system does not start without
        from mcp.client.stdio import get_default_environment

        base = get_default_environment()
    return base | environment(server)
