"""A study as one HTML page: no script, nothing from elsewhere, light and dark.

Text from scenarios, tools and errors is escaped where an element is made (``markup``).
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.base.documents import interval, number, percent
from agentlab.errors import StudyError, seen, suggest
from agentlab.study.compare import APART, limits, pairwise
from agentlab.study.definition import command
from agentlab.study.family import FEWEST_CLUSTERS
from agentlab.study.grid import varying
from agentlab.study.leaderboard import estimates, leaderboard
from agentlab.study.pairing import levelled, ranked_runs
from agentlab.study.study import Study
from agentlab.trace.store import Store
from agentlab.version import __version__
from agentlab.views import plots
from agentlab.views.cautions import cautions as cautions
from agentlab.views.page import report_page as words
from agentlab.views.page.markup import Child, Html, beside, pairs, table, tag
from agentlab.views.text import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


MOST_CRASHED = 20
"""Crashed runs that are shown."""


def write_report(study: Study, path: str | Path | None = None, baseline: str | None = None) -> Path:
    """Write a study as a self-contained HTML page.

    Parameters
    ----------
    study : Study
    path : str or Path, optional
        Default: ``report.html`` in the results folder.
    baseline : str, optional
        An arm, or a level of a factor such as "never": compare with it only. It must have been
        chosen before the numbers were seen.

    Returns
    -------
    Path
        Where it was written.

    Raises
    ------
    StoreError, StudyError
        There are no results, none is finished, or there is no such baseline.
    """
    path = Path(path) if path is not None else study.out / "report.html"
    path.write_text(page(study, baseline), encoding="utf-8", errors="backslashreplace")
    return path


def page(study: Study, baseline: str | None = None) -> str:
    """Return the report as HTML."""
    runs, board = study.runs, leaderboard(study.runs)
    with Store(study.out, read_only=True) as store:
        meta = store.meta()
    arms = list(board["arm"])
    ranked = ranked_runs(runs)
    title = f"{study.suite.name}: {len(study.arms)} arms under faults"
    leaders = words.LEADERBOARD_TEXT + (words.TIED_TEXT if board["tied"].any() else "")
    parts = [
        _head(study, runs, title),
        _notes(cautions(study)),
        _section("Leaderboard", _leaderboard(board), text=leaders),
        _section("Success over the fault rate", _curves(ranked), text=words.CURVES_TEXT),
        _section("Success by arm and fault rate", _by_rate(ranked, arms)),
        *_comparisons(runs, baseline),
        _section("What stopped the runs", _stopped(runs, arms), text=words.STOPPED_TEXT),
        _crashed(runs),
        _section("What the numbers mean", _terms(words.DEFINITIONS)),
        _section("How to make this again", *_again(study, meta)),
    ]
    body = "\n".join(part for part in parts if part is not None)
    style = beside("report.css")
    return beside("report.html").format(title=tag("title", title), style=style, body=body)


# ---- sections ------------------------------------------------------------------------------


def _head(study: Study, runs: pd.DataFrame, title: str) -> Html:
    difficulties = ", ".join(
        f"{n} {d}" for d, n in runs.drop_duplicates("scenario")["difficulty"].value_counts().items()
    )
    facts = [
        ("runs", f"{len(runs):,}"),
        ("arms", str(len(study.arms))),
        ("scenarios", f"{len(study.suite)} ({difficulties})"),
        ("fault rates", ", ".join(f"{rate:g}" for rate in study.fault_rates)),
        ("seeds", str(len(study.seeds))),
        ("faults met", f"{runs['faults_delivered'].sum():,.0f}"),
        ("crashed", str(int((runs["status"] == "crashed").sum()))),
    ]
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    written = f"agentlab {__version__} · {study.out} · written {now}"
    cards = [tag("div", tag("dt", name), tag("dd", fact)) for name, fact in facts]
    return tag(
        "header", tag("h1", title), tag("p", written, class_="quiet"),
        tag("dl", cards, class_="facts"),
    )  # fmt: skip


def _notes(found: Sequence[str]) -> Html | None:
    return tag("aside", tag("ul", [tag("li", text) for text in found])) if found else None


def _section(title: str, *body: Child, text: str = "") -> Html:
    below = tag("p", text, class_="quiet") if text else None
    return tag("section", tag("h2", title), *body, below)


def _leaderboard(board: pd.DataFrame) -> Html:
    headings = [
        "", "arm", ">success", "", ">95 %", ">floor", ">ceiling", ">normal.", ">fault-free",
        ">side eff.", ">recovery", ">on common", ">replans", ">calls", ">faults/call", ">sim. s",
    ]  # fmt: skip
    counts = [name for name in ("crashed", "infrastructure") if board[name].any()]
    rows = []
    for row in board.to_dict("records"):
        mark = row["verdict"] if row["verdict"] in ("best", "tied") else ""
        rows.append(
            [
                tag("span", mark, class_=f"mark {mark}"), row["arm"],
                percent(row["success"], 1), _interval(row), interval(row["low"], row["high"]),
                percent(row["floor"], 1), percent(row["ceiling"], 1), number(row["normalised"], 2),
                percent(row["fault_free"], 1), percent(row["side_effects"], 1),
                percent(row["recovery"], 1), percent(row["recovery_common"], 1),
                number(row["replans"]), number(row["tool_calls"]),
                number(row["delivered_per_call"], 2), number(row["sim_seconds"]),
                *(str(row[name]) for name in counts),
            ]
        )  # fmt: skip
    told = {"crashed": ">crashed", "infrastructure": ">no answer"}
    return table([*headings, *(told[name] for name in counts)], rows)


def _interval(row: dict[Any, Any]) -> Html:
    """Return a small picture: the success and its interval between floor and ceiling."""

    def line(kind: str, left: float, right: float, y1: int = 9, y2: int = 9) -> Html | None:
        if math.isnan(left + right):
            return None
        ends = {"x1": f"{4 + 112 * left:.1f}", "x2": f"{4 + 112 * right:.1f}"}
        return tag("line", class_=kind, y1=y1, y2=y2, **ends)

    bounds = [line("bound", row[name], row[name], 3, 15) for name in ("floor", "ceiling")]
    at = row["success"]
    dot = None if math.isnan(at) else tag("circle", cx=f"{4 + 112 * at:.1f}", cy=9, r=4)
    span = line("span", row["low"], row["high"])
    drawn = (line("track", 0, 1), bounds, span, dot)
    return tag("svg", drawn, class_="interval", width=120, height=18, aria_hidden="true")


def _curves(runs: pd.DataFrame) -> Html:
    size = plots.panel_size(runs["planner"].nunique())
    return _drawing("curves", size, lambda figure: plots.fault_panels(runs, figure=figure))


def _by_rate(runs: pd.DataFrame, arms: Sequence[str]) -> Html:
    found = estimates(runs, "success", ["arm", "fault_rate"]).to_dict("records")
    values = {(r["arm"], r["fault_rate"]): r for r in found}
    rates = sorted(set(runs["fault_rate"]))
    rows = [[arm, *(_heat(values.get((arm, rate))) for rate in rates)] for arm in arms]
    return table(["arm", *(f">rate {rate:g}" for rate in rates)], rows)


def _heat(cell: dict[Any, Any] | None) -> Child:
    if cell is None or math.isnan(cell["value"]):
        return "–"
    ends = tag("small", f" [{interval(cell['low'], cell['high'])}]")
    shade = f"background: rgb(0 114 178 / {0.55 * cell['value']:.2f})"
    return tag("span", percent(cell["value"], 1), ends, class_="heat", style=shade)


def _comparisons(runs: pd.DataFrame, baseline: str | None) -> Iterable[Html]:
    for factor in compared_by(runs, baseline):
        found = pairwise(runs, "success", factor, _of(runs, factor, baseline))
        rows = [
            [
                r["a"], r["b"], number(100 * r["diff"]), interval(r["low"], r["high"]), _p(r["p"]),
                f"{r['n_tasks']} / {r['n_clusters']}", _verdict(r),
                interval(r["unadjusted_low"], r["unadjusted_high"]),
            ]
            for r in found.to_dict("records")
        ]  # fmt: skip
        headings = [
            "a", "b", ">a − b", ">95 %", ">p", ">tasks / clusters", "verdict",
            ">95 % of this pair alone, unadjusted",
        ]  # fmt: skip
        size = (7.2, 0.9 + 0.36 * len(found))
        forest = _drawing(factor, size, partial(_forest, found))
        apart = [_apart(runs, factor, _of(runs, factor, baseline), name) for name in APART]
        yield _section(
            f"Paired comparison by {factor}", table(headings, rows), tag("p", limits(found)),
            forest, *apart, text=words.COMPARISON_TEXT,
        )  # fmt: skip


def compared_by(runs: pd.DataFrame, baseline: str | None = None) -> list[str]:
    """Return the factors that arms are compared by: those that vary, or the arms themselves.

    Raises
    ------
    StudyError
        No factor has the baseline as a level.
    """
    factors = varying(runs)
    if any(pairwise(runs, "success", f)["n_tasks"].sum() == 0 for f in factors):
        factors = ["arm"]  # no full grid: no level of a factor was run beside all others
    if baseline is None:
        return factors
    found = [f for f in dict.fromkeys([*factors, "arm"]) if baseline in set(levelled(runs[f]))]
    if not found:
        known = sorted({str(v) for f in [*factors, "arm"] for v in levelled(runs[f])})
        raise StudyError(f"no arm or level {seen(baseline)}; {suggest(baseline, known)}")
    return found


def _of(runs: pd.DataFrame, factor: str, baseline: str | None) -> str | None:
    return baseline if baseline in set(levelled(runs[factor])) else None


def _apart(runs: pd.DataFrame, factor: str, baseline: str | None, name: str) -> Html | None:
    """Return the same comparison for each fault rate or fault class, a column each."""
    if name == "fault_rate" and runs["fault_rate"].nunique() < 2:
        return None
    if name == "fault_class" and runs["first_fault"].isna().all():
        return None
    found = pairwise(runs, "success", factor, baseline, apart=name)
    found = found[found["n_clusters"] >= FEWEST_CLUSTERS]
    if not len(found):
        return None
    strata = list(dict.fromkeys(found[name]))
    cells = {(r["a"], r["b"], r[name]): r for r in found.to_dict("records")}
    pairs_of = list(dict.fromkeys((a, b) for a, b, _ in cells))
    rows = [
        [f"{a} − {b}", *(_difference(cells.get((a, b, s))) for s in strata)] for a, b in pairs_of
    ]
    told = [f">rate {s:g}" if name == "fault_rate" else f">{s}" for s in strata]
    title = "By fault rate"
    if name == "fault_class":
        title = f"By class of the first fault, of those that {FEWEST_CLUSTERS} clusters met"
    body = (tag("summary", title), table(["a − b", *told], rows), tag("p", limits(found)))
    return tag("details", *body)


def _difference(row: dict[Any, Any] | None) -> Child:
    if row is None:
        return "–"
    ends = tag("small", f" [{interval(row['low'], row['high'])}]")
    shown = row["verdict"] in ("a higher", "b higher")
    return [tag("b" if shown else "span", number(100 * row["diff"])), ends]


def _forest(found: pd.DataFrame, figure: Figure) -> None:
    plots.differences(found, figure.subplots())


def _verdict(row: dict[Any, Any]) -> str:
    winner = {"a higher": row["a"], "b higher": row["b"]}.get(row["verdict"])
    return str(row["verdict"]) if winner is None else f"{winner} is higher"


def _stopped(runs: pd.DataFrame, arms: Sequence[str]) -> Html:
    ended = runs["success"].map({True: "end: goal reached", False: "end: goal missed"})
    why = runs["stopped_by"].where(runs["stopped_by"].notna(), ended)
    why = why.where(runs["status"] != "crashed", "crashed")
    why = why.where(
        runs["infrastructure"].isna(), "no answer: " + runs["infrastructure"].astype(str)
    )
    counts: dict[Any, int] = dict(Counter(zip(runs["arm"], why, strict=True)))
    reasons = sorted(set(why))
    rows = [[arm, *(str(counts.get((arm, r), "")) for r in reasons)] for arm in arms]
    return table(["arm", *(f">{reason}" for reason in reasons)], rows)


def _crashed(runs: pd.DataFrame) -> Html | None:
    crashed = runs[runs["status"] == "crashed"]
    if not len(crashed):
        return None
    rows = [
        [r["cell"][:8], r["arm"], r["scenario"], f"{r['fault_rate']:g}", r["seed"],
         tag("pre", str(r["error"])[-2000:])]
        for r in crashed.head(MOST_CRASHED).to_dict("records")
    ]  # fmt: skip
    text = f"{counted(len(crashed), 'run')} ended in an exception; they count as failures."
    more = f" The first {MOST_CRASHED} are shown." if len(crashed) > MOST_CRASHED else ""
    listed = table(["run", "arm", "scenario", ">rate", ">seed", "error"], rows)
    return _section("Crashed runs", listed, text=text + more)


def _terms(meanings: Mapping[str, str]) -> Html:
    return tag("div", pairs(meanings.items()), class_="terms")


def _again(study: Study, meta: dict[str, Any]) -> tuple[Html, Html]:
    line = command(study)
    if line is None:
        line = f"import agentlab as al\nal.Study.open({str(study.out)!r}).run()"
    if not all(arm.named for arm in study.arms):
        line = "# Its arms are made of objects: run the script or notebook that made it."
    faults = "what each scenario says"
    if study.faults is not None:
        faults = study.faults.model_dump_json(exclude_defaults=True)
    facts = {
        "code": ", ".join(meta.get("code", [])),
        "versions": ", ".join(f"{k} {v}" for k, v in meta.get("versions", {}).items()),
        "faults": faults,
        "a single run": f"agentlab show {study.out} RUN · agentlab replay {study.out} RUN",
    }
    return tag("pre", line), _terms(facts)


# ---- pieces --------------------------------------------------------------------------------


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _drawing(name: str, size: tuple[float, float], draw: Callable[[Figure], Any]) -> Html:
    """Return a figure as SVG whose ink follows the page's, in light and dark."""
    import matplotlib
    from matplotlib.figure import Figure

    ink = "#0a141e"  # stands for the page's own colour
    inks = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": name, "grid.color": ink}
    file = io.StringIO()
    with matplotlib.rc_context(style | dict.fromkeys(inks, ink)), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name may hold a character that the font lacks
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.S)
    svg = svg.replace(ink, "currentColor").replace("#ffffff", "var(--page)")
    return tag("figure", Html(svg))
