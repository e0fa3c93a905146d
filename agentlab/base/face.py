"""The public face of a package: names that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from agentlab.errors import seen, suggest


def load(spec: str) -> Any:
    """Return what ``"module:attribute"`` names, or the module of ``"module:"``."""
    name, _, attribute = spec.partition(":")
    module = import_module(name)
    return getattr(module, attribute) if attribute else module


def face(
    package: str, modules: Mapping[str, str], **named: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    modules : mapping
        Module of ours, without "agentlab.", to the public names that it defines.
    **named
        Public name to the "module:attribute" that it stands for, or the module of "module:".
    """
    names = {n: f"agentlab.{module}:{n}" for module, told in modules.items() for n in told.split()}
    names |= {name: f"agentlab.{spec}" for name, spec in named.items()}

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"{package} has no {seen(name)}; {suggest(name, names)}")
        value = load(names[name])
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(names), sorted(names)
