"""MCP servers as tools: processes that are spoken to through their pipes, by the official SDK.

The SDK is async by nature. It lives behind one portal: a thread with its own event loop, started
with the first server and closed when Python ends, so it works in a cell of a notebook and from any
number of threads. A server is started when its tools are first asked for, shared by every lab that
names it with the same settings, and started anew by the call after the one that found it dead.

Every wait has a deadline: a server that hangs ends the call, and one that does not stop when its
pipe closes is killed with its children. A call that was sent to a server which ended before it
answered is "lost": nobody knows what it did. One that found the server gone was not sent, and is
"unavailable".

A server is given the variables that its configuration names, PATH and HOME, and nothing else; their
values never stand in what it lists, a result or an error (``agentlab.tools.pipe``), in a log or in
a pickle. A tool crosses processes by its server's description, and starts the server there.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from agentlab.base.documents import Json, canonical, digest, is_json
from agentlab.base.schemas import check_schema
from agentlab.base.secrets import Secrets
from agentlab.errors import ConfigError, ToolFailure
from agentlab.tools.listing import as_document, as_tools, read_listing
from agentlab.tools.pipe import ATTEMPT, UNREADABLE, Attempt, opened
from agentlab.tools.quiet import Quiet
from agentlab.tools.server import McpServer, command_line, environment, variables

log = logging.getLogger("agentlab")

INSTALL = "pip install 'agentlab-sandbox[mcp]'"


@dataclass(frozen=True)
class Remote:
    """What carries out a server's tool; it holds no connection and no secret."""

    server: McpServer
    tool: str

    def __call__(self, **arguments: Any) -> Json:
        """Call the tool.

        Raises
        ------
        ToolFailure
            See ``Client.call``.
        """
        return SERVERS.call(self.server, self.tool, arguments)


def _unusable(text: str) -> ToolFailure:
    return ToolFailure(text, "bad_result", permanent=True)  # the call itself ended well


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
        self._secrets = Secrets(environment(server).values())
        problem = self._open()
        if problem is not None:  # outside of any handler: frames below hold the variables
            raise problem

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            f"the client of MCP server {self.server.id!r} holds a connection and does not cross "
            "processes; send its tools"
        )

    def _open(self) -> ConfigError | None:
        """Start the server and read its list; return what went wrong."""
        where = f"MCP server {self.server.id!r}"
        try:
            command = command_line(self.server)
            session = _session(self.server, command, self._secrets)
            opened = self._portal.wrap_async_context_manager(session)
            self._session, self._pipe, rows = self._stack.enter_context(opened)
        except Exception as e:
            if type(e) is ConfigError:
                return e
            return ConfigError(f"{where} could not be started: {self._told(e)}")
        try:
            self.tools = as_tools(self.server, rows, lambda name: Remote(self.server, name))
        except BaseException as e:
            self.close()
            if not isinstance(e, Exception):
                raise
            return ConfigError(f"{where}: {self._told(e)}")
        return None

    @property
    def over(self) -> bool:
        """Whether the server is gone."""
        return self._pipe.over is not None or self._pipe.process.returncode is not None

    def call(self, tool: str, arguments: dict[str, Any]) -> Json:
        """Call a tool by the server's own name for it.

        Raises
        ------
        ToolFailure
            "timeout", "lost" (the server ended, or answered what cannot be read: what the call did
            is unknown), "unavailable" (the server was gone, nothing was sent), "rejected" (it knows
            no such tool or request), "bad_result" (against its own schema) or "error" (the tool
            says so itself).
        """
        attempt, failure = Attempt(), None
        try:
            result = self._portal.call(
                _called, self._session, self.server, tool, arguments, attempt
            )
            shown = self._shown(tool, result)
        except ToolFailure:
            raise
        except Exception as e:
            failure = self._failure(e, tool, attempt)
        if failure is not None:
            raise failure
        return shown

    def _shown(self, name: str, result: Any) -> Json:
        """Return what a call gave, where it is what the tool promises."""
        shown = _content(result)
        if result.is_error:
            raise ToolFailure(shown if isinstance(shown, str) else canonical(shown))
        returns = self.tools[name].returns if name in self.tools else {}
        if returns and result.structured_content is None:
            raise _unusable(f"{name} gave no structured result, as it promises")
        if not result.content and result.structured_content is not shown:
            raise _unusable(f"{name} gave a structured result that is no JSON")
        problem = check_schema(returns, result.structured_content, name) if returns else None
        if problem is not None:
            raise _unusable(problem[:500])
        return shown

    def _failure(self, error: Exception, tool: str, attempt: Attempt) -> ToolFailure:
        """Return why a call has no result."""
        from mcp import MCPError
        from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND

        gone = self._pipe.process.returncode is not None  # its children may hold its pipes
        if isinstance(error, TimeoutError) and not gone:
            text = f"{tool} gave no result in {self.server.timeout_ms / 1000:g} s"
            return ToolFailure(text, "timeout")
        if isinstance(error, MCPError) and error.data == UNREADABLE:
            return ToolFailure(f"{tool}: {error.message}; what it did is unknown", "lost")
        if isinstance(error, MCPError) and not _closed(error, self._pipe):
            permanent = error.code in (INVALID_PARAMS, METHOD_NOT_FOUND)
            return ToolFailure(self._told(error), "rejected", permanent)
        if attempt.sent and isinstance(error, (ValueError, TypeError)):  # an answer of odd form
            return _unusable(f"{tool}: {self._told(error)}")
        why = f"MCP server {self.server.id!r}: {_end(self._pipe) or self._told(error)}"
        if attempt.sent:
            return ToolFailure(f"{why}; what {tool} did is unknown", "lost")
        return ToolFailure(f"{why}; {tool} was not sent", "unavailable")

    def close(self) -> None:
        """End the session and the process."""
        try:
            self._stack.close()
        except Exception as e:  # the end of it all the same
            log.debug("MCP server %s ended in trouble: %s", self.server.id, self._told(e))

    def _told(self, error: BaseException) -> str:
        """Return what went wrong in one line, without the values of the server's variables."""
        from pydantic import ValidationError

        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, TimeoutError):
            return f"it did not answer in {self.server.timeout_ms / 1000:g} s"
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            text = f"its answer is none of the protocol: {place}: {first['msg']}"
        else:
            known = isinstance(error, ConfigError)
            text = str(error) if known else f"{type(error).__name__}: {error}"
        return self._secrets.hide(" ".join(text.split()))[:500]


class Servers:
    """The portal, and the servers behind it by their settings."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._stack = ExitStack()
        self._portal: Any = None
        self._quiet = Quiet()
        self._clients: dict[str, Client] = {}

    def client(self, server: McpServer) -> Client:
        """Return the client of a server, started where it is not under way.

        Raises
        ------
        ConfigError
            It cannot be started, or the SDK is not installed.
        """
        key = digest([server.to_json(), environment(server)])  # a local variable may be shown
        with self._lock:
            if self._pid != os.getpid():  # a forked child has neither the thread nor the pipes
                self._forget()
            if key not in self._clients:
                portal = self._started()
                self._quiet.install()
                self._clients[key] = Client(portal, server)
            return self._clients[key]

    def under_way(self, server: McpServer) -> Client | None:
        """Return the client of a server that was started; None: it was not."""
        if any(name not in os.environ for name in server.env):
            return None
        return self._clients.get(digest([server.to_json(), environment(server)]))

    def _started(self) -> Any:
        if self._portal is None:
            try:
                import mcp  # noqa: F401
                from anyio.from_thread import start_blocking_portal
            except ImportError as e:
                raise ConfigError(f"MCP servers need the official SDK: {INSTALL}") from e
            portal = start_blocking_portal("asyncio", name="mcp-portal")
            self._portal = self._stack.enter_context(portal)
            self._quiet = Quiet(self._portal.call(threading.get_ident))
            self._stack.callback(self._quiet.remove)
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
        finally:
            if client.over:
                self.drop(client)

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
            stack = self._stack
            self._forget()
            # An exception on the way out: all servers are ended at once, and so is what nobody
            # left in order (a start that Ctrl-C broke off), for which the thread would wait.
            stack.__exit__(GeneratorExit, GeneratorExit(), None)


SERVERS = Servers()
atexit.register(SERVERS.close)


def listings(servers: Iterable[McpServer]) -> dict[str, Json]:
    """Return what the servers that are under way list, by id: a document a tool."""
    return {
        server.id: as_document(client.tools)
        for server in servers
        if (client := SERVERS.under_way(server)) is not None
    }


@asynccontextmanager
async def _session(
    server: McpServer, command: list[str], secrets: Secrets
) -> AsyncIterator[tuple[Any, Any, list[Any]]]:
    """Start a server; yield the session, its pipe and what it lists."""
    import anyio
    from mcp import ClientSession, MCPError

    async with (
        opened(command, variables(server), secrets) as pipe,
        ClientSession(pipe, pipe) as session,
    ):
        with anyio.fail_after(server.timeout_ms / 1000):
            try:
                await session.initialize()
                rows = await read_listing(session, pipe)
            except MCPError as e:
                told = _end(pipe) if _closed(e, pipe) else f"it refused: {e.message}"
                raise ConfigError(told) from None
        yield session, pipe, rows


def _closed(error: Any, pipe: Any) -> bool:
    """Say whether the SDK means the session's end; a server may use that code for its own."""
    from mcp.types import CONNECTION_CLOSED

    silent = pipe.over is not None or error.message == "Connection closed"
    return bool(error.code == CONNECTION_CLOSED and silent)


def _end(pipe: Any) -> str:
    """Return why a server says nothing more; empty: it goes on."""
    code = pipe.process.returncode
    ended = pipe.over in (None, "it ended") and code is not None
    return f"it ended with code {code}" if ended else pipe.over or ""


async def _called(
    session: Any, server: McpServer, tool: str, arguments: dict[str, Any], attempt: Attempt
) -> Any:
    """Make a call.

    Not by the SDK's ``call_tool``: that checks a result in the thread of all servers, by patterns
    that may take for ever, and may ask for the list again.
    """
    import anyio
    from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult

    ATTEMPT.set(attempt)  # of this task alone
    params = CallToolRequestParams(name=tool, arguments=arguments)
    with anyio.fail_after(server.timeout_ms / 1000):
        return await session.send_request(CallToolRequest(params=params), CallToolResult)


def _content(result: Any) -> Json:
    """Return what a call gave: its structured content, else its text, else its blocks as JSON."""
    structured: Json = result.structured_content
    if structured is not None and not result.is_error and is_json(structured):
        return structured
    if all(block.type == "text" for block in result.content):
        return "\n".join(block.text for block in result.content)
    return [b.model_dump(mode="json", by_alias=True, exclude_none=True) for b in result.content]
