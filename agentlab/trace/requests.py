"""What a request to a language model adds to the one before it: only that is kept and written.

A conversation asks again and again with everything that was said so far; a hundred rounds of whole
requests are megabytes of the same messages. Requests of one conversation have the model, the system
prompt and the first message in common, so the one before is found by these. In memory a request
shares its messages; in a stored span its place is taken by ::

    {"since": key, "kept": n, "with": {field: value}, "without": [field]}

the request of that key (its digest) with its first n messages and then those of ``with``, and the
other fields as there except those of ``with`` and ``without``. Whoever reads from the beginning
has the whole request again, exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentlab.base.documents import Json, digest
from agentlab.trace.span import COLUMNS

_FORM = ("since", "kept", "with", "without")
_KIND, _INPUT = COLUMNS.index("kind"), COLUMNS.index("input")


class Requests:
    """The latest request of each conversation of a trace."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[str, Json]] = {}

    def before(self, request: Json) -> dict[str, Json] | None:
        """Return the one that a request goes on from, and remember the request in its place."""
        if not _is_request(request):
            return None
        name = digest([request.get("model"), request.get("system"), request["messages"][0]])
        earlier, self._latest[name] = self._latest.get(name), request
        return earlier

    def share(self, request: dict[str, Json]) -> None:
        """Put into a request, where it says the same as the one before, the very same objects."""
        earlier = self.before(request)
        if earlier is None:
            return
        messages = request["messages"]
        n = _common(earlier["messages"], messages)
        messages[:n] = earlier["messages"][:n]
        for name, value in request.items():
            if name in earlier and _same(earlier[name], value):
                request[name] = earlier[name]


class Writer:
    """Writes span rows one after the other, each request as what it adds."""

    def __init__(self) -> None:
        self._requests = Requests()

    def rows(self, rows: Iterable[Sequence[Json]]) -> list[Sequence[Json]]:
        """Return the rows of spans, in the order of ``COLUMNS``, as they are stored."""
        return [self._written(row) if row[_KIND] == "lm" else row for row in rows]

    def _written(self, row: Sequence[Json]) -> Sequence[Json]:
        request = row[_INPUT]
        earlier = self._requests.before(request)
        if earlier is not None:
            return [*row[:_INPUT], _added(earlier, request), *row[_INPUT + 1 :]]
        if isinstance(request, dict) and set(request) == set(_FORM):  # only looks like it
            whole: dict[str, Json] = {"since": None, "kept": 0, "with": request, "without": []}
            return [*row[:_INPUT], whole, *row[_INPUT + 1 :]]
        return row


class Reader:
    """Reads the rows that a ``Writer`` wrote, from the first one on."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Json]] = {}

    def read(self, rows: Iterable[list[Json]]) -> Iterator[list[Json]]:
        """Yield the rows with their whole requests."""
        for row in rows:
            if row[_KIND] == "lm":
                row[_INPUT] = request = self._whole(row[_INPUT])
                if _is_request(request):
                    self._known[digest(request)] = request
            yield row

    def _whole(self, stored: Json) -> Json:
        if not isinstance(stored, dict) or set(stored) != set(_FORM):
            return stored
        if stored["since"] is None:
            return stored["with"]
        earlier, news = self._known[stored["since"]], stored["with"]
        request = {k: v for k, v in earlier.items() if k not in stored["without"]} | news
        request["messages"] = [*earlier["messages"][: stored["kept"]], *news["messages"]]
        return request


def _is_request(value: Json) -> bool:
    return isinstance(value, dict) and isinstance(m := value.get("messages"), list) and bool(m)


def _added(earlier: dict[str, Json], request: dict[str, Json]) -> dict[str, Json]:
    n = _common(earlier["messages"], request["messages"])
    news = {k: v for k, v in request.items() if k not in earlier or not _same(earlier[k], v)} | {
        "messages": request["messages"][n:]
    }
    gone = [k for k in earlier if k not in request]
    return {"since": digest(earlier), "kept": n, "with": news, "without": gone}


def _common(old: list[Json], new: list[Json]) -> int:
    """Return how many messages at the beginning are the same."""
    for n, (a, b) in enumerate(zip(old, new, strict=False)):
        if not _same(a, b):
            return n
    return min(len(old), len(new))


def _same(old: Any, new: Any) -> bool:
    return old is new or (old == new and repr(old) == repr(new))  # [1] == [True] == [1.0]
