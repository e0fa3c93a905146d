"""Frames: what a study stored, as pandas DataFrames."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from agentlab.base.arrived import instance
from agentlab.base.documents import Json
from agentlab.errors import StudyError
from agentlab.lm.infrastructure import CAUSES
from agentlab.study.grid import AXES
from agentlab.trace.span import COLUMNS
from agentlab.trace.store import Store
from agentlab.trace.stored import CellResult

if TYPE_CHECKING:
    import pandas as pd


RUNS = (
    "cell", "arm", *AXES, "scenario", "environment", "difficulty",
    "cluster", "fault_rate", "seed", "status", "success", "floor", "ceiling",
    "ceiling_found_by", "ceiling_seconds", "twin_success", "twin_sim_seconds", "recovered",
    "stopped_by", "error", "reasons", "answer", "replans", "plans", "plan_steps", "executions",
    "failed_executions", "retries", "tool_calls", "lm_calls", "lm_tokens", "lm_misses",
    "infrastructure", "parse_failures", "sim_seconds", "makespan", "critical_path",
    "parallel_efficiency", "speed_up", "wall_seconds", "visits", "faults_delivered", "faults_new",
    "faults_silent", "first_fault", "changed_state", "asked",
)  # fmt: skip
"""Columns of the ``runs`` frame.

``asked`` is False for fault-free twins that the study added; ``recovered`` is success where a
fault was delivered and the twin succeeds, else missing; ``faults_new`` counts a fault that stands
once, however many calls it met; ``first_fault`` is the class of the first that was delivered,
kind × persistence × visibility, missing where none was; ``sim_seconds`` are simulated seconds;
``lm_misses`` are LM calls that a recording had no reply to: nobody knows what the model would say.
``infrastructure`` is why the first LM call failed of those that failed through no fault of the
agent: "denied", "unknown model", "rate limited", "timed out" or "unavailable"; missing where none
did. Such a run has the status "infrastructure" and measures nothing: its success is missing.
Of ``makespan``, ``critical_path``, ``parallel_efficiency`` and ``speed_up`` see
``agentlab.study.cells.timing``.
"""


def runs_frame(cells: Iterable[CellResult], asked_only: bool = True) -> pd.DataFrame:
    """Return a row a run, with floor, ceiling and fault-free twin beside it.

    Parameters
    ----------
    cells : iterable of CellResult
    asked_only : bool
        Leave out the fault-free twins that the study added by itself.

    Returns
    -------
    DataFrame
        With the columns of ``RUNS``. A crashed cell counts as a failure; ``status`` says so. One
        whose endpoint failed has no success either, and is left out by ``infrastructure``.
    """
    import pandas as pd

    rows: dict[str, list[dict[str, Json]]] = {"arm": [], "floor": [], "ceiling": []}
    for c in cells:
        row = {**c.row, "cell": c.cell, "status": c.status}
        if c.status == "crashed" and row["role"] != "arm":  # it tells nothing
            row |= {"success": None, "found_by": "crashed"}
        rows[str(row["role"])].append(row)
    floors = {r["scenario"]: r["success"] for r in rows["floor"]}
    ceilings = {(r["scenario"], r["seed"], r["fault_rate"]): r for r in rows["ceiling"]}
    twins = {
        (r["arm"], r["scenario"], r["seed"]): r
        for r in rows["arm"]
        if r.get("fault_free", r["fault_rate"] == 0) and r["status"] == "done"
    }
    for r in rows["arm"]:
        top = ceilings.get((r["scenario"], r["seed"], r["fault_rate"]), {})
        twin = twins.get((r["arm"], r["scenario"], r["seed"]), {})
        r["floor"] = floors.get(r["scenario"])
        r["ceiling"], r["ceiling_seconds"] = top.get("success"), top.get("sim_seconds")
        r["ceiling_found_by"] = top.get("found_by")
        r["twin_success"], r["twin_sim_seconds"] = twin.get("success"), twin.get("sim_seconds")
        met = bool(r.get("faults_delivered")) and bool(r["twin_success"])
        met = met and r["status"] != "infrastructure"
        r["recovered"] = r["success"] if met else None
        r["answer"] = json.dumps(r.get("answer"), ensure_ascii=False)
        r |= {k: _encodable(v) for k, v in r.items() if isinstance(v, str) and not v.isascii()}
    frame = pd.DataFrame(rows["arm"]).reindex(columns=list(RUNS))
    frame["cell"] = frame["cell"].astype("str")  # of no runs, too: spans are joined on it
    for name in ("floor", "ceiling", "twin_success", "recovered"):
        frame[name] = frame[name].astype("float64")
    frame["success"] = frame["success"].astype(bool)
    if (spoilt := frame["infrastructure"].notna()).any():
        frame["success"] = frame["success"].astype("boolean").mask(spoilt)
    order = ["arm", "scenario", "fault_rate", "seed"]
    frame = frame[frame["asked"].astype(bool)] if asked_only else frame
    return frame.sort_values(order, kind="stable").reset_index(drop=True)


def infrastructure_by_cause(runs: pd.DataFrame) -> dict[str, int]:
    """Return how many runs measure nothing since an LM call failed for infrastructure, by cause.

    Parameters
    ----------
    runs : DataFrame
        A ``runs`` frame.

    Returns
    -------
    dict
        Cause (see ``RUNS``) to number of runs; {}: every run is a measurement.
    """
    found = runs["infrastructure"].value_counts()
    return {cause: int(found[cause]) for cause in CAUSES if cause in found}


def spans_frame(store: Store, kinds: Iterable[str] = ()) -> pd.DataFrame:
    """Return a row a span, with the cell it belongs to.

    Parameters
    ----------
    store : Store
    kinds : iterable of str
        Only these kinds; empty: all.
    """
    import pandas as pd

    wanted = frozenset(kinds)
    cells: list[str] = []
    columns: list[list[Any]] = [[] for _ in COLUMNS]
    for cell, rows in store.traces():
        if wanted:
            rows = [r for r in rows if r[2] in wanted]
        if not rows:
            continue
        cells.extend([cell] * len(rows))
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            column.extend(values)
    for name in ("name", "step_id", "input", "output", "error"):
        place = COLUMNS.index(name)
        columns[place] = [_encodable(v) for v in columns[place]]
    return pd.DataFrame({"cell": cells, **dict(zip(COLUMNS, columns, strict=True))})


def _encodable(value: Any) -> Any:
    """Return text without lone surrogates, which JSON may hold and pandas cannot."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


KEYS = ("cell", "arm", *AXES, "scenario", "fault_rate", "seed")
"""Columns that every frame of a part of a run begins with."""


def joined(spans: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Put arm, its factors, scenario, rate and seed of its run before each span."""
    return runs[list(KEYS)].merge(spans, on="cell", how="inner")


CHANGES = ("kept", "added", "removed", "changed")
"""Columns of the ``decisions`` frame: step ids, by what became of them in the new plan."""


def decisions_frame(spans: pd.DataFrame) -> pd.DataFrame:
    """Return a row a decision, or plan that was made.

    Parameters
    ----------
    spans : DataFrame
        Spans of kind "decision", joined with their runs.

    Returns
    -------
    DataFrame
        ``point`` and ``trigger``: when and why it was asked for; ``events``: what had happened
        since the decision before; ``action``, ``reasoning``, ``confidence`` (0 to 1) and ``spent``;
        ``CHANGES``: what the replan that followed made of the plan, missing where none did.
    """
    frame = unpacked(spans, "output")
    asked = [i if isinstance(i, dict) else {} for i in spans["input"]]
    frame["point"], frame["trigger"] = ([i.get(k) for i in asked] for k in ("point", "reason"))
    replans = frame["name"].astype(str).str.startswith("REPLAN")
    for name in (n for n in CHANGES if n in frame):
        made = frame[name].where(frame["name"] == "plan")
        frame[name] = frame[name].mask(replans, made.groupby(frame["cell"]).bfill())
    return frame


LM_CALLS = (
    *KEYS, "span_id", "visit", "step_id", "model",
    "prompt", "reply", "request", "finish", "error", "input_tokens", "output_tokens", "cost",
    "served", "occurrence", "faults", "seconds", "sim_start", "sim_end",
)  # fmt: skip
"""Columns of the ``lm_calls`` frame.

``cost``: US dollars that the call costs when it is made, missing where unknown; ``served``: from a
recording, so nothing was billed; tokens are missing where they were not reported; ``seconds`` are
wall time.
"""


def lm_calls_frame(spans: pd.DataFrame) -> pd.DataFrame:
    """Return a row an LM call, with the columns of ``LM_CALLS``.

    Parameters
    ----------
    spans : DataFrame
        Spans of kind "lm", joined with their runs.
    """
    frame = spans.rename(columns={"name": "model", "input": "request"})
    replies = [r if isinstance(r, dict) else {} for r in frame["output"]]
    noted = [a if isinstance(a, dict) else {} for a in frame["attributes"]]
    frame["prompt"] = [_encodable(prompt_of(r)) for r in frame["request"]]
    frame["reply"] = [_encodable(_parts_text(r.get("message"))) if r else None for r in replies]
    frame["finish"] = [r.get("finish_reason") for r in replies]
    for name in ("input_tokens", "output_tokens"):
        frame[name] = [a.get("usage", {}).get(name) for a in noted]
    for name in ("cost", "served", "occurrence", "faults"):
        frame[name] = [a.get(name) for a in noted]
    for name in ("input_tokens", "output_tokens", "cost"):
        frame[name] = frame[name].astype("float64")
    return frame.reindex(columns=list(LM_CALLS))


def prompt_of(request: Json) -> str:
    """Return all text of a request document: system, then every message."""
    if not isinstance(request, dict):
        return ""
    system = request.get("system") or ""
    if not isinstance(system, str):
        system = _parts_text({"parts": system})
    texts = [system, *map(_parts_text, request.get("messages", ()))]
    return "\n\n".join(t for t in texts if t)


def _parts_text(message: Any) -> str:
    parts = message.get("parts", ()) if isinstance(message, dict) else ()
    return "".join(str(p.get("text", "")) for p in parts if isinstance(p, dict))


def unpacked(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return ``frame`` with the fields of a column of objects as columns of their own."""
    import pandas as pd

    inner = pd.DataFrame([v if isinstance(v, dict) else {} for v in frame[column]])
    inner.index = frame.index
    return pd.concat([frame.drop(columns=[column]), inner.add_prefix("")], axis=1)


def check_frame(frame: Any, name: str, needs: Iterable[str], expected: str) -> None:
    """Refuse what is no DataFrame with the columns that are needed; one without rows needs none.

    Raises
    ------
    StudyError
        It is something else, or columns are missing.
    """
    import pandas as pd

    instance(name, frame, pd.DataFrame, expected, error=StudyError)
    if len(frame) and (missing := [c for c in needs if c not in frame.columns]):
        raise StudyError(f"{name}: expected {expected}; it lacks {', '.join(missing)}")
