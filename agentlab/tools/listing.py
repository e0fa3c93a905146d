"""What MCP servers list becomes tools, or is refused.

A list has an end: pages, tools and bytes are counted, and a page that leads back is seen. A tool
that cannot be called as it is described is refused with its server, so that a run does not begin
with less than the agent's configuration promises.

The values of a server's variables are hidden in all that it lists (``agentlab.tools.pipe``). In a
text, an example or a default that is enough. In a name, or where a schema decides what is accepted,
the tool would be another than the server's: it is refused, without being shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agentlab.base.documents import Json, shortened
from agentlab.base.schemas import NAMED, schema_validator
from agentlab.base.secrets import HIDDEN
from agentlab.errors import ConfigError, ToolFailure, raised
from agentlab.tools.server import McpServer
from agentlab.tools.tool import Effect, Tool

MAX_PAGES = 100
"""Of a server's list of tools."""
MAX_TOOLS = 5000
MAX_BYTES = 32 << 20
"""Of a server's whole list."""
LONGEST_NAME = 200

_SAID = frozenset({"title", "description", "$comment", "default", "examples"})
"""Keywords that accept and refuse nothing."""


async def read_listing(session: Any, pipe: Any) -> list[Any]:
    """Return the rows of a server's list of tools, all its pages.

    Raises
    ------
    ConfigError
        It does not end.
    """
    from mcp.types import PaginatedRequestParams

    rows: list[Any] = []
    seen: set[str] = set()
    begun, params = pipe.received, None
    for _ in range(MAX_PAGES):
        page = await session.list_tools(params=params)
        rows += page.tools
        if len(rows) > MAX_TOOLS or pipe.received - begun > MAX_BYTES:
            raise ConfigError(
                f"its list of tools has more than {MAX_TOOLS} tools or {MAX_BYTES >> 20} MB"
            )
        if not page.next_cursor:
            return rows
        if page.next_cursor in seen:
            raise ConfigError("its list of tools has no end: a page leads back to an earlier one")
        seen.add(page.next_cursor)
        params = PaginatedRequestParams(cursor=page.next_cursor)
    raise ConfigError(f"its list of tools has more than {MAX_PAGES} pages")


def as_tools(server: McpServer, rows: Iterable[Any], function: Any) -> dict[str, Tool]:
    """Return the tools of a listing, by the server's own names.

    Parameters
    ----------
    server : McpServer
    rows : iterable of mcp Tool
    function : callable
        Takes a tool's name; returns what carries it out.

    Raises
    ------
    ConfigError
        A tool has no usable name or schema, or two have one name.
    """
    tools: dict[str, Tool] = {}
    for row in rows:
        if HIDDEN in row.name:
            raise ConfigError(
                "the name of a tool holds the value of a variable that the server is given "
                f"({', '.join(server.env)}); it is neither shown nor offered"
            )
        if not row.name.strip() or not row.name.isprintable() or len(row.name) > LONGEST_NAME:
            raise ConfigError(
                f"expected a tool's name of 1 to {LONGEST_NAME} printable characters, got "
                f"{shortened(row.name, 60)!r}"
            )
        if row.name in tools:
            raise ConfigError(f"two tools are called {row.name!r}; names must be unique")
        tools[row.name] = _tool(server, row, function(row.name))
    return tools


def _tool(server: McpServer, row: Any, function: Any) -> Tool:
    name = f"{server.id}/{row.name}"
    returns = row.output_schema or {}
    for what, schema in (("parameters", row.input_schema), ("result", returns)):
        try:
            schema_validator(schema)
        except ConfigError as e:
            raise ConfigError(f"tool {name!r}: its {what}: {shortened(str(e), 300)}") from None
        place = next(_hidden(schema), None)
        if place is not None:
            raise ConfigError(
                f"tool {name!r}: its {what}: the value of a variable that the server is given "
                f"decides what is accepted, at {place}; it cannot be shown to a planner"
            )
    return Tool(
        name=name,
        description=row.description or "",
        parameters=row.input_schema,
        returns=returns,
        effect=_effect(row.annotations),
        timeout=server.timeout_ms / 1000,
        service="mcp",
        function=function,
    )


def _hidden(schema: Any, path: str = "") -> Iterator[str]:
    """Yield the places of a schema where something is hidden that it constrains by."""
    if isinstance(schema, str) and HIDDEN in schema:
        yield path or "the top"
    elif isinstance(schema, list):
        for item in schema:
            yield from _hidden(item, path)
    elif isinstance(schema, Mapping):
        for key, value in schema.items():
            here = f"{path}.{key}".lstrip(".")
            if HIDDEN in key:
                yield path or "the top"
            elif key in NAMED and isinstance(value, Mapping):
                yield from _named(value, here)
            elif key not in _SAID:
                yield from _hidden(value, here)


def _named(schemas: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield such places of schemas by name, the names among them."""
    for name, schema in schemas.items():
        yield from [path] if HIDDEN in name else _hidden(schema, f"{path}.{name}")


def _effect(annotations: Any) -> Effect:
    if annotations is not None and annotations.read_only_hint:
        return Effect.READ
    if annotations is not None and annotations.idempotent_hint:
        return Effect.IDEMPOTENT
    return Effect.WRITE


def as_document(tools: Mapping[str, Tool]) -> list[dict[str, Json]]:
    """Return tools as a document, from which ``as_listed`` makes them again."""
    return [
        {
            "name": name, "description": tool.description, "parameters": tool.parameters,
            "returns": tool.returns, "effect": tool.effect.value, "timeout": tool.timeout,
        }
        for name, tool in tools.items()
    ]  # fmt: skip


def as_listed(server: str, listed: Mapping[str, Any]) -> dict[str, Tool]:
    """Return the tools of a server that is not started.

    Raises
    ------
    ConfigError
        What it lists was not kept, or is no document of ``as_document``.
    """

    def call(**arguments: Any) -> Json:
        raise ToolFailure(f"MCP server {server!r} is not started in a replay", "unavailable")

    if server not in listed:
        raise ConfigError(f"what MCP server {server!r} lists was not kept: it was never started")
    try:
        return {
            row["name"]: Tool(
                name=f"{server}/{row['name']}", service="mcp", function=call,
                effect=Effect(row["effect"]),
                **{k: row[k] for k in ("description", "parameters", "returns", "timeout")},
            )
            for row in listed[server]
        }  # fmt: skip
    except (KeyError, TypeError, ValueError) as e:
        raise ConfigError(
            f"what MCP server {server!r} lists was kept in a form that is not ours: {raised(e)}"
        ) from e
