"""Trust: what a folder names is started, imported or opened only for who made it, or agreed.

A results folder holds names: programs (MCP servers with arguments and variables), endpoints of
models, ``module:attribute``, files. Whoever sends one could have put any there. So what would be
used is listed, as ``Use``, from the folder's text alone, and a digest of the list is looked up in
the user's own state directory, where it is written when the user makes a run or study, or agrees
to one. A folder may move, for its place is not part of it; with one argument changed it is another
list, and the user is asked anew.

What the user names, on the command line or in Python, is the user's own; so is what a file says
that the user names. What ships, and what was registered in this process, is no use in this sense.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from agentlab.base.built_in import BUILT_IN
from agentlab.base.documents import canonical
from agentlab.base.names import parse_name
from agentlab.base.registry import registry
from agentlab.errors import ConfigError, TrustError
from agentlab.lm.endpoint import ENDPOINT_KEY
from agentlab.lm.settings import ModelSettings
from agentlab.state.config import AgentRegistry
from agentlab.tools.server import McpServer

STARTS, ASKS, IMPORTS, OPENS, ANSWERS = "starts", "asks", "imports", "opens", "answers"

IN_REPLAY = (IMPORTS, OPENS)
"""What a replay does too: it starts no program, and asks no model and nobody."""


class Use(NamedTuple):
    """One thing that a folder names and that would be used."""

    kind: str
    """STARTS a program, ASKS a model, IMPORTS a module, OPENS a file, ANSWERS for people."""
    text: str
    """To read; control characters are in it as they came."""
    document: str
    """All that it depends on."""

    def told(self) -> str:
        """Return it in one line, with everything that steers a terminal spelt out."""
        shown = (
            c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode()
            for c in f"{self.kind} {self.text}"
        )
        return "".join(shown)


FOR_PEOPLE = Use(ANSWERS, "'approve' for people, to every call that needs it", "approve")

Answer = bool | Callable[[str, Sequence[Use]], bool]
"""Whether the user agrees, or who asks: told the folder and the uses."""


def agree(where: object, uses: Sequence[Use], trust: Answer = False) -> None:
    """Go on if the user made this, agreed to it before, or agrees now.

    Parameters
    ----------
    where : object
        The folder, for messages.
    uses : sequence of Use
    trust : bool or callable

    Raises
    ------
    TrustError
        The user does not agree; nothing has been started, imported or opened.
    """
    if not uses or approved(uses):
        return
    if not (trust(str(where), uses) if callable(trust) else trust):
        told = "; ".join(use.told() for use in uses)
        raise TrustError(
            f"{where}: made elsewhere, or changed since, and nobody agreed to what it names: it "
            f"{told}. Nothing of it was used. To agree, once and for all that names the same: "
            "--trust (trust=True)"
        )
    approve(uses)


# ---- what is used -----------------------------------------------------------------------------


def name_uses(kind: str, text: object) -> list[Use]:
    """Return what the name of a planner, strategy, workflow, ... would import or open."""
    known = registry(kind)
    if not isinstance(text, str) or text in BUILT_IN[kind] or text in known.added():
        return []
    try:
        name, positional, named = parse_name(text)
    except ConfigError:  # it is refused where it is looked up
        return []
    if name in BUILT_IN[kind]:
        if kind != "planner":
            return []
        paths = [v for v in (*positional, *named.values()) if isinstance(v, str)]
        return [Use(OPENS, f"{path} (of the planner {text})", f"{kind} {text}") for path in paths]
    if ":" not in name and name not in known:  # entry points are listed, and not imported
        return []
    return [Use(IMPORTS, f"{text} (a {kind})", f"{kind} {text}")]


def model_uses(text: object, settings: ModelSettings | None = None) -> list[Use]:
    """Return what the name of a model would open, or whom it asks with whose key."""
    if not isinstance(text, str):
        return []
    kind, _, rest = text.partition(":")
    if kind == "scripted":
        return [Use(OPENS, f"{rest} (replies of a model)", text)]
    if kind == "recorded":
        path = rest.partition("#")[0]
        shipped = not path.endswith((".jsonl", ".gz"))
        return [] if shipped else [Use(OPENS, f"{path} (a recording)", text)]
    name, _, address = text.partition("@")
    address = address or (settings.base_url if settings is not None else None) or ""
    vendor = (name.partition("/")[0] if "/" in name else "openai").partition("_")[0].upper()
    key = ENDPOINT_KEY if address else f"{vendor}_API_KEY"
    at = f" at {address}" if address else ""
    return [Use(ASKS, f"the model {name}{at}, with the key in {key}", f"{text}@{address}")]


def server_use(server: McpServer) -> Use:
    """Return the program of an MCP server, with its arguments and variables."""
    line = shlex.join([server.command, *server.args])
    given = f", given {', '.join(server.env)}" if server.env else ""
    document = canonical([server.command, list(server.args), sorted(server.env)])
    return Use(STARTS, f"{line} (MCP server {server.id}{given})", document)


def agents_uses(agents: AgentRegistry) -> list[Use]:
    """Return what the agents of a registry would use."""
    from agentlab.lm.connect import model_text

    uses = [server_use(s) for s in agents.mcp_servers.values()]
    for model in agents.models.values():
        uses += model_uses(model_text(model), model)
    for agent in agents.agents.values():
        uses += name_uses("planner", agent.planner) + name_uses("strategy", agent.strategy)
    return uses


def in_order(uses: Iterable[Use]) -> tuple[Use, ...]:
    """Return uses in one order, each once."""
    return tuple(sorted(set(uses)))


def in_replay(uses: Iterable[Use]) -> tuple[Use, ...]:
    """Return the uses that a replay has too."""
    return tuple(use for use in uses if use.kind in IN_REPLAY)


# ---- what the user agreed to ---------------------------------------------------------------------


def approved(uses: Sequence[Use]) -> bool:
    """Return whether the user made, or agreed to, something that uses just this."""
    folder, name = _folder(), _digest(uses)
    if folder is None:
        return False
    try:
        with (folder / name).open("rb") as file:
            return _own(os.fstat(file.fileno())) and file.read(200).decode().strip() == name
    except (OSError, ValueError):
        return False


def approve(uses: Sequence[Use]) -> None:
    """Write down that the user agrees; where nothing can be written, it is asked again."""
    folder = _folder() if uses else None
    if folder is None:
        return
    for name in {_digest(some) for some in (uses, in_replay(uses)) if some}:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, new = tempfile.mkstemp(dir=folder, prefix=".new-")  # 0600
            try:
                with open(handle, "w", encoding="ascii") as file:
                    file.write(f"{name}\n")
                os.replace(new, folder / name)  # whoever else writes it writes the same
            except BaseException:
                with suppress(OSError):
                    os.unlink(new)
                raise


def _digest(uses: Sequence[Use]) -> str:
    """Return a digest of which nobody finds two lists: cells are told apart by shorter ones."""
    text = canonical([[use.kind, use.document] for use in in_order(uses)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _folder() -> Path | None:
    """Return where is written what the user agreed to; None: the user has no such place."""
    state = os.environ.get("XDG_STATE_HOME", "")
    with suppress(RuntimeError):  # no home
        if os.path.isabs(state):
            return Path(state, "agentlab", "trusted")
        if sys.platform == "win32":
            local = os.environ.get("LOCALAPPDATA")
            base = Path(local) if local else Path.home() / "AppData" / "Local"
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Application Support"
        else:
            base = Path.home() / ".local" / "state"
        return base / "agentlab" / "trusted"
    return None


def _own(found: Any) -> bool:
    """Say whether a file is the user's, and nobody else can write it."""
    if not hasattr(os, "getuid"):
        return True
    mine = found.st_uid == os.getuid() and not found.st_mode & 0o022
    return bool(mine and stat.S_ISREG(found.st_mode))
