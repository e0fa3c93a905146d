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
from agentlab.study.compare import ALPHA, NOT_COMPARED, TIED, pairwise
from agentlab.study.definition import command
from agentlab.study.grid import varying
from agentlab.study.leaderboard import estimates, leaderboard
from agentlab.study.metrics import few_faults
from agentlab.study.study import Study
from agentlab.trace.store import Store
from agentlab.version import __version__
from agentlab.views import plots
from agentlab.views.page import report_page as words
from agentlab.views.page.markup import Child, Html, beside, pairs, table, tag
from agentlab.views.text import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


MOST_CRASHED = 20
"""Crashed runs that are shown."""

LEAST_FAULTS = 10
"""Delivered faults in an arm and rate below which the report warns."""


def write_report(study: Study, path: str | Path | None = None) -> Path:
    """Write a study as a self-contained HTML page.

    Parameters
    ----------
    study : Study
    path : str or Path, optional
        Default: ``report.html`` in the results folder.

    Returns
    -------
    Path
        Where it was written.

    Raises
    ------
    StoreError, StudyError
        There are no results, or none is finished.
    """
    path = Path(path) if path is not None else study.out / "report.html"
    path.write_text(page(study), encoding="utf-8")
    return path


def page(study: Study) -> str:
    """Return the report as HTML."""
    runs, board = study.runs, leaderboard(study.runs)
    with Store(study.out, read_only=True) as store:
        meta = store.meta()
    arms = list(board["arm"])
    title = f"{study.suite.name}: {len(study.arms)} arms under faults"
    parts = [
        _head(study, runs, title),
        _notes(cautions(study)),
        _section("Leaderboard", _leaderboard(board), text=words.LEADERBOARD_TEXT),
        _section("Success over the fault rate", _curves(runs), text=words.CURVES_TEXT),
        _section("Success by arm and fault rate", _by_rate(runs, arms)),
        *_comparisons(study, runs),
        _section("What stopped the runs", _stopped(runs, arms), text=words.STOPPED_TEXT),
        _crashed(runs),
        _section("What the numbers mean", _terms(words.DEFINITIONS)),
        _section("How to make this again", *_again(study, meta)),
    ]
    body = "\n".join(part for part in parts if part is not None)
    style = beside("report.css")
    return beside("report.html").format(title=tag("title", title), style=style, body=body)


def cautions(study: Study) -> list[str]:
    """Return what a reader should know before believing the numbers, a sentence each."""
    runs = study.runs
    asked = len(study.arms) * len(study.suite) * len(study.fault_rates) * len(study.seeds)
    found = []
    if len(runs) < asked:
        found.append(
            f"The study is not finished: {len(runs):,} of {asked:,} runs are here. "
            "The same command goes on with it."
        )
    crashed = int((runs["status"] == "crashed").sum())
    if crashed:
        found.append(f"{counted(crashed, 'run')} crashed and count as failures (--retry-crashed).")
    missed = int((runs["lm_misses"] > 0).sum())
    if missed:
        found.append(
            f"{counted(missed, 'run')} of {len(runs):,} asked for a reply that the recording does "
            "not hold and went on without; nothing in them tells of the model from there on. A "
            "recording knows the prompts of one study: other planners, strategies, rates or seeds "
            "lead to others."
        )
    clusters, pairs = runs["cluster"].nunique(), runs["arm"].nunique() - 1
    least = 2.0 ** (1 - clusters)  # of a two-sided sign-flip test that agrees everywhere
    if pairs and least * pairs >= ALPHA:
        found.append(
            f"The tasks form {counted(clusters, 'cluster')}, so p cannot fall below {least:.2g}; "
            f"corrected for {counted(pairs, 'comparison')} no arm can differ from the best, "
            "however far it is behind. Take scenarios of more kinds, or compare fewer arms."
        )
    few = few_faults(runs, least=LEAST_FAULTS)
    if len(few):
        found.append(
            f"{counted(len(few), 'pair')} of arm and fault rate met fewer than {LEAST_FAULTS} "
            "faults in all, too few to speak of; take more seeds or tasks."
        )
    if study.controls and (unknown := float(runs["ceiling"].isna().mean())) > 0:
        found.append(
            f"The ceiling is unknown for {percent(unknown, 1)} of the runs; floor, ceiling and "
            "normalised success leave them out."
        )
    if study.controls and runs["floor"].isna().any():
        found.append("A floor crashed: what doing nothing reaches there is unknown.")
    if broken := int((runs["ceiling_found_by"] == "crashed").sum()):
        found.append(
            f"The ceilings of {counted(broken, 'run')} crashed and are unknown (--retry-crashed)."
        )
    if (runs["ceiling_found_by"] == "reference").any():
        found.append(
            "Part of the ceiling is the fault-free reference plan, as that world cannot be "
            "searched; no arm is bound by it."
        )
    with Store(study.out, read_only=True) as store:
        codes = store.meta().get("code", [])
    if len(codes) > 1:
        found.append(f"The results were made by {len(codes)} versions of the code (--allow-mixed).")
    return found


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
    rows = []
    for place, row in enumerate(board.to_dict("records")):
        mark = "best" if place == 0 else "tied" if row["tied"] else ""
        rows.append(
            [
                tag("span", mark, class_=f"mark {mark}"), row["arm"],
                percent(row["success"], 1), _interval(row), interval(row["low"], row["high"]),
                percent(row["floor"], 1), percent(row["ceiling"], 1), number(row["normalised"], 2),
                percent(row["side_effects"], 1), percent(row["recovery"], 1),
                number(row["replans"]), number(row["tool_calls"]), number(row["sim_seconds"]),
                str(row["crashed"]),
            ]
        )  # fmt: skip
    headings = [
        "", "arm", ">success", "", ">95 %", ">floor", ">ceiling", ">normal.", ">side eff.",
        ">recovery", ">replans", ">calls", ">sim. s", ">crashed",
    ]  # fmt: skip
    return table(headings, rows)


def _interval(row: dict[Any, Any]) -> Html:
    """Return a small picture: the success and its interval between floor and ceiling."""

    def line(kind: str, left: float, right: float, y1: int = 9, y2: int = 9) -> Html | None:
        if math.isnan(left + right):
            return None
        ends = {"x1": f"{4 + 112 * left:.1f}", "x2": f"{4 + 112 * right:.1f}"}
        return tag("line", class_=kind, y1=y1, y2=y2, **ends)

    bounds = [line("bound", row[name], row[name], 3, 15) for name in ("floor", "ceiling")]
    dot = tag("circle", cx=f"{4 + 112 * row['success']:.1f}", cy=9, r=4)
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


def _comparisons(study: Study, runs: pd.DataFrame) -> Iterable[Html]:
    for factor in varying(runs):
        found = pairwise(runs, "success", factor)
        rows = [
            [
                r["a"], r["b"], number(100 * r["diff"]), interval(r["low"], r["high"]),
                _p(r["p"]), _p(r["p_holm"]), number(100 * r["smallest_difference"]),
                f"{r['n_tasks']} / {r['n_clusters']}", _verdict(r),
            ]
            for r in found.to_dict("records")
        ]  # fmt: skip
        headings = [
            "a", "b", ">a − b", ">95 %", ">p", ">p (Holm)", ">smallest visible",
            ">tasks / clusters", "verdict",
        ]  # fmt: skip
        size = (7.2, 0.9 + 0.36 * len(found))
        forest = _drawing(factor, size, partial(_forest, found))
        title = f"Paired comparison by {factor}"
        yield _section(title, table(headings, rows), forest, text=words.COMPARISON_TEXT)


def _forest(found: pd.DataFrame, figure: Figure) -> None:
    plots.differences(found, figure.subplots())


def _verdict(row: dict[Any, Any]) -> str:
    if row["verdict"] in (TIED, NOT_COMPARED):
        return str(row["verdict"])
    return f"{row['a'] if row['verdict'] == 'a higher' else row['b']} is higher"


def _stopped(runs: pd.DataFrame, arms: Sequence[str]) -> Html:
    ended = runs["success"].map({True: "end: goal reached", False: "end: goal missed"})
    why = runs["stopped_by"].where(runs["stopped_by"].notna(), ended)
    why = why.where(runs["status"] != "crashed", "crashed")
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
