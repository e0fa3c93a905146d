"""What a notebook is given of a run: its live form, where it can show one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentlab.runs.run import Run


def mimebundle(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the live form of a run (data, metadata) where a notebook can show it, else nothing.

    The static form and the plain one come from the run itself.
    """
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if getattr(shell, "kernel", None) is None:
        return {}, {}
    try:
        from agentlab.views.inspector.inspector import inspector_of
    except ImportError:
        return {}, {}
    return inspector_of(run).live_form()
