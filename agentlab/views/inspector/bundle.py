"""What a notebook is given of a run: its live form, where it can show one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from agentlab.errors import ConfigError

if TYPE_CHECKING:
    from agentlab.runs.run import Run


def mimebundle(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return how a notebook shows a run that can be steered (data, metadata), else nothing.

    The plain form, and elsewhere the static one, come from the run itself.
    """
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if getattr(shell, "kernel", None) is None:
        return {}, {}
    try:
        from agentlab.views.inspector.inspector import inspector_of
    except (ImportError, ConfigError):  # no widgets here
        return {}, {}
    return inspector_of(run).forms(run._repr_html_())
