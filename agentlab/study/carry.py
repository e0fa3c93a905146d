"""What workers need beside cells: import path, names, modules that only the parent has, keys."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agentlab.base.registry import KINDS, Sent, register, registry
from agentlab.lm.endpoint import endpoint_variables

Names = Mapping[str, Mapping[str, Sent]]
"""What was registered by name: kind to name to thing."""


class ImportPath(list[str]):
    """The parent's import path; a worker extends its own when this arrives.

    It is unpickled first, so what follows may be objects of modules that only this path leads to.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _extend_path, ([p for p in self if p],)


def _extend_path(path: list[str]) -> list[str]:
    sys.path.extend(p for p in path if p not in sys.path)
    return path


@contextmanager
def only_here_by_value() -> Iterator[None]:
    """While it lasts, cloudpickle sends what modules define that no import would find.

    Such a module was loaded from its file, or its folder is no longer on the path; a worker could
    not import it, whatever it is told.
    """
    import cloudpickle

    loaded = {name: module for name, module in list(sys.modules.items()) if "." not in name}
    known = cloudpickle.list_registry_pickle_by_value()
    lost = [m for name, m in loaded.items() if name not in known and not _found(name)]
    for module in lost:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in lost:
            cloudpickle.unregister_pickle_by_value(module)


def _found(name: str) -> bool:
    """Return whether an import of a top-level module would find it, were it not loaded."""
    if name in sys.builtin_module_names or name == "__main__":
        return True
    for finder in sys.meta_path:
        try:
            if finder.find_spec(name, None) is not None:
                return True
        except Exception:  # a finder of somebody else's
            continue
    return False


def registered() -> Names:
    """Return what users registered, for sending it to other processes."""
    import cloudpickle

    def sent(thing: Any) -> Sent:
        try:
            return Sent(cloudpickle.dumps(thing))
        except Exception as e:  # it matters only where the name is used
            return Sent(b"", f"{type(e).__name__}: {e}")

    own = {kind: registry(kind).added() for kind in KINDS}
    return {k: {name: sent(t) for name, t in things.items()} for k, things in own.items() if things}


def learn(names: Names) -> None:
    """Register what another process had ``registered``."""
    for kind, own in names.items():
        for name, thing in own.items():
            register(kind, name, thing)


class Keys:
    """The parent's keys and addresses of endpoints, for workers that began before it had them."""

    def __init__(self) -> None:
        self._variables = endpoint_variables()

    def __repr__(self) -> str:
        return "Keys()"

    def take(self) -> None:
        """Make them those of this process."""
        for name in endpoint_variables().keys() - self._variables.keys():
            del os.environ[name]
        os.environ.update(self._variables)
