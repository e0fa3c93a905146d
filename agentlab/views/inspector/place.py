"""Where the live form of the Inspector stands: in the place of the static one, on the page alone.

A notebook's file holds what its outputs were. A reference to a widget is dead when the kernel is
gone, and JupyterLab then shows "model not found" and nothing of what else the output holds. So the
output is the static form, marked with a place of its own. In the page a front end that has the
widget looks for such places and puts the live form there, once the kernel has answered it. A
notebook that is opened again, exported or seen without widgets shows the static form.

Two hosts make a widget only where an output refers to it, and get both forms (see ``refers``).
"""

from __future__ import annotations

import os
import sys
import uuid
from typing import Any

from agentlab.errors import ConfigError
from agentlab.views.page.markup import Html, tag

try:
    import anywidget
    import traitlets
except ImportError as e:
    raise ConfigError(
        f"the Inspector needs {e.name or 'anywidget'}: pip install anywidget ipywidgets; a run "
        "shows its static form without it"
    ) from e


class Placed(anywidget.AnyWidget):
    """A widget that a front end puts where its static form stands.

    Attributes
    ----------
    view : dict
        What the front end shows.
    place : str
        What marks the static forms that it stands in for.
    asked, answered : str
        A front end asks with a word of its own, and is answered by it as long as there is a kernel:
        the state of a widget may be kept in a file, and says nothing of that.
    """

    view = traitlets.Dict().tag(sync=True)
    place = traitlets.Unicode().tag(sync=True)
    asked = traitlets.Unicode().tag(sync=True)
    answered = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        super().__init__(place=uuid.uuid4().hex)
        self.observe(self._answer, "asked")

    def _answer(self, change: dict[str, Any]) -> None:
        self.answered = change["new"]

    def forms(self, static: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the part of a mimebundle that shows it: data and metadata.

        Parameters
        ----------
        static : str
            The static form, as HTML.
        """
        if not refers():
            return {"text/html": str(tag("div", Html(static), data_agentlab_place=self.place))}, {}
        data, metadata = super()._repr_mimebundle_() or ({}, {})
        return {**data, "text/html": static}, metadata


def refers() -> bool:
    """Say whether an output must refer to the widget: in VS Code and Colab."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if "__vsc_ipynb_file__" in getattr(shell, "user_ns", ()) or "google.colab" in sys.modules:
        return True
    return "VSCODE_PID" in os.environ and "JPY_SESSION_NAME" not in os.environ
