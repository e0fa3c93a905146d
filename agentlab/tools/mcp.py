"""MCP servers as tools: processes that are spoken to through their pipes, by the official SDK.

The SDK is async by nature. It lives behind one portal: a thread with its own event loop, started
with the first server and closed when Python ends, so it works in a cell of a notebook and from any
number of threads. A server is started when its tools are first asked for, shared by every lab that
names it with the same settings, and started anew by the call after the one that found it dead.

Every wait has a deadline: a server that hangs ends the call, and one that does not stop when its
pipe closes is killed with its children. A server is given the variables that its configuration
names, PATH and HOME, and nothing else; their values never stand in a result or an error.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

from agentlab.base.documents import Json, canonical, is_json
from agentlab.base.schemas import schema_validator
from agentlab.errors import ConfigError, ToolFailure
from agentlab.tools.server import McpServer
from agentlab.tools.tool import Effect, Tool

log = logging.getLogger("agentlab")

INSTALL = "pip install 'agentlab-sandbox[mcp]'"
MAX_PAGES = 100
"""Of a server's list of tools."""

_HIDDEN = "**********"
_SHORTEST = 4
"""Characters from which a variable's value is taken for a secret; shorter ones are no secrets."""


class Client:
    """One server under way.

    Parameters
    ----------
    portal : anyio BlockingPortal
    server : McpServer

    Raises
    ------
    ConfigError
        It cannot be started, or did not answer in time.
    """

    def __init__(self, portal: Any, server: McpServer) -> None:
        self.server, self._portal, self._stack = server, portal, ExitStack()
        self._secrets = tuple(v for v in environment(server).values() if len(v) >= _SHORTEST)
        where = f"MCP server {server.id!r}"
        try:
            opened = portal.wrap_async_context_manager(_opened(server))
            self._session, listed = self._stack.enter_context(opened)
        except ConfigError:
            raise
        except Exception as e:
            raise ConfigError(f"{where} could not be started: {self._told(e)}") from None
        self.tools = {tool.name: self._tool(tool) for tool in listed}

    def _tool(self, listed: Any) -> Tool:
        def call(**arguments: Any) -> Json:
            return SERVERS.call(self.server, listed.name, arguments)

        name = f"{self.server.id}/{listed.name}"
        try:
            schema_validator(listed.input_schema)
        except ConfigError as e:
            raise ConfigError(f"tool {name!r}: its parameters: {e}") from e
        return Tool(
            name=name,
            description=listed.description or "",
            parameters=listed.input_schema,
            returns=listed.output_schema or {},
            effect=_effect(listed.annotations),
            timeout=self.server.timeout_ms / 1000,
            service="mcp",
            function=call,
        )

    def call(self, tool: str, arguments: dict[str, Any]) -> Json:
        """Call a tool by the server's own name for it.

        Raises
        ------
        ToolFailure
            "timeout", "unavailable" (the server is gone), "rejected" (it knows no such tool or
            request), "bad_result" (against its own schema) or "error" (the tool says so itself).
        """
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND

        try:
            result = self._portal.call(_called, self._session, self.server, tool, arguments)
        except TimeoutError:
            text = f"{tool} gave no result in {self.server.timeout_ms / 1000:g} s"
            raise ToolFailure(text, "timeout") from None
        except MCPError as e:
            code = "unavailable" if e.code == CONNECTION_CLOSED else "rejected"
            permanent = e.code in (INVALID_PARAMS, METHOD_NOT_FOUND)
            raise ToolFailure(self._told(e), code, permanent) from None
        except RuntimeError as e:  # what came does not fit the tool's own schema
            raise ToolFailure(self._told(e), "bad_result", permanent=True) from None
        except Exception as e:  # a stream that is closed, a pipe that is broken
            raise ToolFailure(self._told(e), "unavailable") from None
        shown = self._hidden(_content(result))
        if result.is_error:
            raise ToolFailure(shown if isinstance(shown, str) else canonical(shown))
        return shown

    def close(self) -> None:
        """End the session and the process."""
        try:
            self._stack.close()
        except Exception as e:  # the end of it all the same
            log.debug("MCP server %s ended in trouble: %s", self.server.id, self._told(e))

    def _told(self, error: BaseException) -> str:
        """Return what went wrong in one line, without the values of the server's variables."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, TimeoutError):
            return f"it did not answer in {self.server.timeout_ms / 1000:g} s"
        return str(self._hidden(" ".join(f"{type(error).__name__}: {error}".split())[:500]))

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, _HIDDEN)
            return value
        if isinstance(value, dict):
            return {self._hidden(k): self._hidden(v) for k, v in value.items()}
        return [self._hidden(v) for v in value] if isinstance(value, list) else value


class Servers:
    """The portal, and the servers behind it by their settings."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._stack = ExitStack()
        self._portal: Any = None
        self._clients: dict[str, Client] = {}

    def client(self, server: McpServer) -> Client:
        """Return the client of a server, started where it is not under way.

        Raises
        ------
        ConfigError
            It cannot be started, or the SDK is not installed.
        """
        key = canonical([server.to_json(), environment(server)])
        with self._lock:
            if self._pid != os.getpid():  # a forked child has neither the thread nor the pipes
                self._forget()
            if key not in self._clients:
                self._clients[key] = Client(self._started(), server)
            return self._clients[key]

    def under_way(self, server: McpServer) -> Client | None:
        """Return the client of a server that was started; None: it was not."""
        if any(name not in os.environ for name in server.env):
            return None
        return self._clients.get(canonical([server.to_json(), environment(server)]))

    def _started(self) -> Any:
        if self._portal is None:
            try:
                import mcp  # noqa: F401
                from anyio.from_thread import start_blocking_portal
            except ImportError as e:
                raise ConfigError(f"MCP servers need the official SDK: {INSTALL}") from e
            portal = start_blocking_portal("asyncio", name="mcp-portal")
            self._portal = self._stack.enter_context(portal)
        return self._portal

    def call(self, server: McpServer, tool: str, arguments: dict[str, Any]) -> Json:
        """Call a tool; a server that is found dead is forgotten, and the next call starts it.

        Raises
        ------
        ToolFailure
            See ``Client.call``.
        """
        try:
            client = self.client(server)
        except ConfigError as e:
            raise ToolFailure(str(e), "unavailable") from e
        try:
            return client.call(tool, arguments)
        except ToolFailure as e:
            if e.code == "unavailable":
                self.drop(client)
            raise

    def drop(self, client: Client) -> None:
        """Close a client; the next call of its server starts another."""
        with self._lock:
            self._clients = {k: c for k, c in self._clients.items() if c is not client}
        client.close()

    def close(self) -> None:
        """End every server and the thread."""
        with self._lock:
            if self._pid != os.getpid():
                return
            clients, stack = list(self._clients.values()), self._stack
            self._forget()
            for client in clients:
                client.close()
            stack.close()


SERVERS = Servers()
atexit.register(SERVERS.close)


def listings(servers: Iterable[McpServer]) -> dict[str, Json]:
    """Return what the servers that are under way list, by id: a document a tool."""
    return {
        server.id: [
            {
                "name": name, "description": tool.description, "parameters": tool.parameters,
                "returns": tool.returns, "effect": tool.effect.value, "timeout": tool.timeout,
            }
            for name, tool in client.tools.items()
        ]
        for server in servers
        if (client := SERVERS.under_way(server)) is not None
    }  # fmt: skip


def _as_listed(server: str, listed: Mapping[str, Any]) -> dict[str, Tool]:
    """Return the tools of a server that is not started."""

    def call(**arguments: Any) -> Json:
        raise ToolFailure(f"MCP server {server!r} is not started in a replay", "unavailable")

    if server not in listed:
        raise ConfigError(f"what MCP server {server!r} lists was not kept: it was never started")
    return {
        row["name"]: Tool(
            name=f"{server}/{row['name']}", service="mcp", function=call,
            effect=Effect(row["effect"]),
            **{k: row[k] for k in ("description", "parameters", "returns", "timeout")},
        )
        for row in listed[server]
    }  # fmt: skip


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

    The SDK hands four variables on that nobody named (LOGNAME, SHELL, TERM, USER); where there is
    an ``env`` program, it takes them away.

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
    strangers = {"LOGNAME", "SHELL", "TERM", "USER"} - set(server.env)
    env = shutil.which("env") if os.name == "posix" else None
    taken = [env, *(f"-u{name}" for name in sorted(strangers)), "--"] if env else []
    return [*taken, found, *server.args]


@asynccontextmanager
async def _opened(server: McpServer) -> AsyncIterator[tuple[Any, list[Any]]]:
    """Start a server; yield the session and what it lists."""
    import anyio
    from mcp import ClientSession, StdioServerParameters, stdio_client

    command, *args = command_line(server)
    parameters = StdioServerParameters(command=command, args=args, env=environment(server))
    with _devnull() as nowhere:  # what a server says on stderr may hold anything
        async with (
            stdio_client(parameters, nowhere) as (read, write),
            ClientSession(read, write) as session,
        ):
            with anyio.fail_after(server.timeout_ms / 1000):
                await session.initialize()
                listed = await _listed(session)
            yield session, listed


@contextmanager
def _devnull() -> Iterator[Any]:
    with open(os.devnull, "w", encoding="utf-8") as file:
        yield file


async def _listed(session: Any) -> list[Any]:
    from mcp.types import PaginatedRequestParams

    page = await session.list_tools()
    tools = list(page.tools)
    for _ in range(MAX_PAGES):
        if page.next_cursor is None:
            break
        page = await session.list_tools(params=PaginatedRequestParams(cursor=page.next_cursor))
        tools += page.tools
    return tools


async def _called(session: Any, server: McpServer, tool: str, arguments: dict[str, Any]) -> Any:
    import anyio

    with anyio.fail_after(server.timeout_ms / 1000):
        return await session.call_tool(tool, arguments)


def _effect(annotations: Any) -> Effect:
    if annotations is not None and annotations.read_only_hint:
        return Effect.READ
    if annotations is not None and annotations.idempotent_hint:
        return Effect.IDEMPOTENT
    return Effect.WRITE


def _content(result: Any) -> Json:
    """Return what a call gave: its structured content, else its text, else its blocks as JSON."""
    structured: Json = result.structured_content
    if structured is not None and not result.is_error and is_json(structured):
        return structured
    if all(block.type == "text" for block in result.content):
        return "\n".join(block.text for block in result.content)
    return [b.model_dump(mode="json", by_alias=True, exclude_none=True) for b in result.content]
