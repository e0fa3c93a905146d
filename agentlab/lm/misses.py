"""What to say when nothing is recorded for a request: the nearest recording, and what differs.

Requests are compared as lines ``path: value``, texts line by line, so that a changed word of a
prompt shows as that word. The nearest is the most alike by ``difflib``, of the same model.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from agentlab.base.documents import Json


def explain_miss(
    where: str, key: str, occurrence: int, seed: int | None, endpoint: str,
    asked: dict[str, Json], lines: Sequence[dict[str, Any]],
) -> str:  # fmt: skip
    """Say what was asked for and how the nearest recording differs.

    Parameters
    ----------
    where : str
        Names the recording.
    key, occurrence, seed, endpoint : str, int, int, str
        What was looked for.
    asked : dict
        The request document.
    lines : sequence of dict
        What is recorded: ``key``, ``seed`` and ``endpoint`` where there is one, ``model``,
        ``request``.
    """
    times = f"for the {occurrence + 1}. time" if occurrence else "once"
    head = f"{where} holds no reply to request {key} (asked {times} in this run, seed {seed})"
    alike = [line for line in lines if line["key"] == key]
    same = [line for line in alike if line.get("endpoint", "") == endpoint]
    mine = {line["occurrence"] for line in same if line.get("seed") in (None, seed)}
    if len(mine) > occurrence:
        return f"{head}: an occurrence is missing, the file was edited"
    if mine:
        return f"{head}: it holds {len(mine)} for this request; the run repeats itself more often"
    if same:
        return (
            f"{head}: it holds some for {_seeds(same)}, and each seed is a draw of its own; run "
            "those, or ask for this one (mode 'replay_or_call', or --record)"
        )
    if alike:
        whose = sorted({line.get("endpoint", "") or "one without a name" for line in alike})
        of = endpoint or "one without a name"
        return f"{head}: what it holds is of the endpoint {' and '.join(whose)}, not {of}"
    if not lines:
        return f"{head}: it is empty"
    models = sorted({line["model"] for line in lines})
    if asked["model"] not in models:
        return f"{head}: it was made with {', '.join(map(repr, models))}, not {asked['model']!r}"
    wanted = list(_leaves(asked))
    near = _nearest(wanted, [line for line in lines if line["model"] == asked["model"]])
    differs = "\n  ".join(_differences(list(_leaves(near["request"])), wanted))
    return f"{head}. The nearest is {near['key']}; recorded (-) and asked (+) differ:\n  {differs}"


def _seeds(lines: Sequence[dict[str, Any]], most: int = 5) -> str:
    seeds = sorted({line["seed"] for line in lines})
    more = f" and {len(seeds) - most} more" if len(seeds) > most else ""
    return f"seed{'s' if seeds[1:] else ''} {', '.join(map(str, seeds[:most]))}{more}"


def _leaves(value: Json, path: str = "") -> Iterator[str]:
    """Yield a document as lines ``path: value``, texts line by line."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _leaves(value[key], f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif isinstance(value, str):
        yield from (f"{path}: {line}" for line in value.split("\n"))
    else:
        yield f"{path}: {json.dumps(value)}"


def _nearest(wanted: list[str], lines: list[dict[str, Any]]) -> dict[str, Any]:
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)

    def likeness(line: dict[str, Any], *, quick: bool) -> float:
        matcher.set_seq1(list(_leaves(line["request"])))
        return matcher.quick_ratio() if quick else matcher.ratio()

    best = sorted(lines, key=lambda line: -likeness(line, quick=True))[:5]
    return max(best, key=lambda line: likeness(line, quick=False))


def _differences(recorded: list[str], asked: list[str], most: int = 6) -> list[str]:
    matcher = difflib.SequenceMatcher(None, recorded, asked, autojunk=False)
    shown: list[str] = []
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            continue
        for i in range(max(b - a, d - c)):
            old = recorded[a + i] if a + i < b else None
            new = asked[c + i] if c + i < d else None
            start = _parting(old, new)
            shown += [f"- {_window(old, start)}"] if old is not None else []
            shown += [f"+ {_window(new, start)}"] if new is not None else []
    more = [f"... and {len(shown) - most} more lines"] if len(shown) > most else []
    return shown[:most] + more


def _parting(old: str | None, new: str | None) -> int:
    """Return where two lines part."""
    if old is None or new is None:
        return 0
    pairs = zip(old, new, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))


def _window(line: str, at: int, width: int = 140) -> str:
    path, _, rest = line.partition(": ")
    start = max(0, at - len(path) - 2 - 30)
    cut = rest[start : start + width]
    return f"{path}: {'...' if start else ''}{cut}{'...' if start + width < len(rest) else ''}"
