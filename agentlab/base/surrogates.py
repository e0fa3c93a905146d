r"""Half a surrogate pair in text: what UTF-8 cannot say, spelled so that it can be read back.

A file name that is no UTF-8 comes as such text (``os.fsdecode``), and so does ``"\ud83d"`` in a
model's JSON. No endpoint takes it. It is spelled as JSON does, ``\udce9``, with twice the
backslashes that stood before it and one more; where text looks like that already its backslashes
are doubled. So no two texts become one, and a model that copies the spelling into a text of its
JSON reply has said the original again.
"""

from __future__ import annotations

import re

from agentlab.base.documents import Json

_HALF = re.compile(r"(?<!\\)(\\*)(?:([\ud800-\udfff])|(?<=\\)(?=u[dD][89a-fA-F][0-9a-fA-F]{2}))")


def spelled(value: Json) -> Json:
    r"""Return a value in which every half of a surrogate pair is spelled out.

    Examples
    --------
    >>> print(spelled({"name": "caf\udce9"})["name"], spelled("caf\\udce9"), spelled("a\\b"))
    caf\udce9 caf\\udce9 a\b
    """
    if isinstance(value, str):
        return _HALF.sub(_spell, value)
    if isinstance(value, dict):
        return {spelled(key): spelled(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [spelled(item) for item in value]
    return value


def _spell(found: re.Match[str]) -> str:
    return found[1] * 2 + (f"\\u{ord(found[2]):04x}" if found[2] else "")
