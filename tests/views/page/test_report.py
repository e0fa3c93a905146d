"""The report: one page that says it all, asks nothing of the network and runs no one's text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.environments.chain import generate
from agentlab.environments.scenario import Scenario
from agentlab.environments.suites import Suite, load_suite
from agentlab.errors import StoreError, StudyError
from agentlab.minds.planners.search import Search
from agentlab.study import cells
from agentlab.study.definition import spread
from agentlab.trace.store import Store
from agentlab.views.page.report import cautions, write_report

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>$a$\ud800\u202e"
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "p", "dl", "dt", "dd",
    "div", "aside", "ul", "li", "section", "table", "thead", "tbody", "tr", "th", "td", "span",
    "small", "figure", "pre", "svg", "g", "defs", "path", "use", "clippath", "rect", "text",
    "line", "circle", "tspan", "details", "summary", "b",
}  # fmt: skip


class Page(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def study(out: Path, **options: Any) -> al.Study:
    options = {
        "arms": al.grid(planner=["search", "reference(noise=0.2)"], strategy=["never", "retry(2)"]),
        "suite": spread(load_suite("chain"), 10), "fault_rate": [0, 0.3], "seeds": 2, "out": out,
        **options,
    }  # fmt: skip
    made = al.Study(options.pop("arms"), options.pop("suite"), **options)
    made.run(processes=1, progress=False)
    return made


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> al.Study:
    return study(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(done) -> str:
    path = write_report(done)
    assert path == done.out / "report.html"
    return path.read_text(encoding="utf-8")


def check_harmless(text: str) -> Page:
    found = Page(text)
    assert found.tags <= ALLOWED
    assert not [a for a in found.attributes if a[0].startswith("on") or a[0] in ("src", "srcset")]
    links = {value for name, value in found.attributes if name in ("href", "xlink:href")}
    assert all(link.startswith("#") for link in links)
    addresses = set(re.findall(r"https?://[^\"'\s<]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)
    ids = [value for name, value in found.attributes if name == "id"]
    for name in {i for i in ids if ids.count(i) > 1}:  # of axes' parts, referred to by nobody
        assert f"#{name}" not in text
    return found


def test_the_page_says_it_all(page, done):
    found = check_harmless(page)
    for heading in (
        "Leaderboard", "Success over the fault rate", "Success by arm and fault rate",
        "Paired comparison by planner", "Paired comparison by strategy", "What stopped the runs",
        "What the numbers mean", "How to make this again",
    ):  # fmt: skip
        assert heading in found.text
    assert "Crashed runs" not in found.text
    best = done.leaderboard().iloc[0]
    assert f"best {best['arm']} {best['success']:.1%}" in found.text
    for word in ("floor", "ceiling", "recovery", "unadjusted", "0, 0.3", "agentlab eval",
                 "By fault rate", "By class of the first fault", "error × transient × announced",
                 "leads below"):  # fmt: skip
        assert word in found.text
    with Store(done.out, read_only=True) as store:
        assert store.meta()["code"][0] in found.text


def test_every_verdict_of_the_comparison_is_there(page, done):
    found = Page(page).text
    for row in done.compare("success", by="strategy").to_dict("records"):
        higher = {"a higher": row["a"], "b higher": row["b"]}.get(row["verdict"])
        assert (row["verdict"] if higher is None else f"{higher} is higher") in found


def test_the_drawings_are_svg_in_the_page_and_follow_its_colours(page):
    drawings = re.findall(r"<figure>(.*?)</figure>", page, flags=re.S)
    assert len(drawings) == 3  # curves, and a forest for each of planner and strategy
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert root.tag.endswith("svg")
        assert "currentColor" in drawing
        assert "<text" in drawing  # words stay words: they can be read out and searched
    assert "prefers-color-scheme: dark" in page


def test_the_same_study_makes_the_same_page(page, done, tmp_path):
    again = write_report(done, tmp_path / "again.html").read_text(encoding="utf-8")

    def without_time(text: str) -> str:
        return re.sub(r"written [\d: -]+UTC", "", text)

    assert without_time(again) == without_time(page)


def hostile_scenario(number: int) -> Scenario:
    plain = generate("easy", number)
    return plain.replace(
        id=f"{HOSTILE.replace(chr(0xD800), '')}{number}", difficulty=HOSTILE, task=HOSTILE,
        cluster=f"{number}{HOSTILE}",
    )  # fmt: skip


class Named(Search):
    """A planner whose name is an attack."""

    name = HOSTILE


def test_text_of_others_is_never_markup(tmp_path, monkeypatch):
    def crash(runner, cell, run=cells.Runner._started):
        if cell.seed == 1 and cell.fault_rate:
            raise RuntimeError(f"</pre></td>{HOSTILE}")
        return run(runner, cell)

    monkeypatch.setattr(cells.Runner, "_started", crash)
    suite = Suite(HOSTILE, [hostile_scenario(i) for i in range(3)])
    arms = [al.Arm(Named(), "never"), al.Arm("search", "retry(2)")]
    made = study(tmp_path, arms=arms, suite=suite)
    text = write_report(made).read_text(encoding="utf-8")
    found = check_harmless(text)
    assert "Crashed runs" in found.text
    assert "RuntimeError: </pre></td><script>alert(1)</script>" in found.text
    assert "<script" not in text
    assert "\u202e" not in text
    assert "run the script or notebook that made it" in found.text  # no command makes objects


def test_crashed_runs_are_apart_and_noted(tmp_path, monkeypatch):
    def crash(runner, cell):
        raise RuntimeError("the machine is on fire")

    monkeypatch.setattr(cells.Runner, "_started", crash)
    made = study(tmp_path, seeds=1)
    found = Page(write_report(made).read_text(encoding="utf-8")).text
    assert "80 runs crashed and count as failures" in found
    assert "The first 20 are shown." in found
    assert found.count("the machine is on fire") == 20


def test_a_report_needs_results(tmp_path):
    with pytest.raises(StoreError, match="no such results file"):
        write_report(al.Study(al.grid(planner="search"), "chain", out=tmp_path / "none"))
    empty = al.Study(al.grid(planner="search"), "chain", out=tmp_path)
    with Store(tmp_path) as store:
        empty._register(store, allow_mixed=False)
    with pytest.raises(StudyError, match="no run is finished"):
        write_report(empty)


def test_one_arm_and_one_rate_make_a_report_too(tmp_path):
    made = study(
        tmp_path, arms=al.Arm(), suite=spread(load_suite("chain"), 2), fault_rate=0.1, seeds=1,
        controls=False,
    )  # fmt: skip
    found = check_harmless(write_report(made).read_text(encoding="utf-8"))
    assert "Paired comparison" not in found.text
    assert "–" in found.text  # floor and ceiling are not known


# ---- cautions ------------------------------------------------------------------------------


def test_a_sound_study_needs_no_caution(done):
    assert cautions(done) == []


def test_few_clusters_cannot_show_a_difference(tmp_path):
    made = study(tmp_path, suite=spread(load_suite("chain"), 4))
    [few] = [text for text in cautions(made) if "clusters" in text]
    assert "4 clusters of tasks cannot show any difference (smallest possible p 0.12)" in few
    board = made.leaderboard()
    assert board["verdict"].tolist() == ["best", *["no verdict"] * 3]
    assert not board["tied"].any()
    assert set(made.compare()["verdict"]) == {"no verdict"}
    assert "tied" not in Page(write_report(made).read_text(encoding="utf-8")).text.split()


def test_few_faults_are_named(tmp_path):
    made = study(tmp_path, fault_rate=[0, 0.01], seeds=1)
    assert any("4 pairs of arm and fault rate met fewer than 10" in c for c in cautions(made))


def test_what_is_missing_and_what_is_mixed(done, tmp_path):
    made = study(tmp_path, seeds=1)
    with Store(tmp_path) as store:
        store.add_meta(code=["0" * 16, "1" * 16])
    assert any("made by 2 versions of the code" in text for text in cautions(made))
    more = al.Study(made.arms, made.suite, fault_rate=[0, 0.3], seeds=3, out=tmp_path)
    assert any("not finished: 80 of 240 runs" in text for text in cautions(more))


def test_unknown_ceilings_and_those_that_are_no_search(done, monkeypatch):
    runs = done.runs.copy()
    runs.loc[runs["seed"] == 0, "ceiling"] = float("nan")
    runs["ceiling_found_by"] = "reference"
    monkeypatch.setattr(done, "runs", runs)
    unknown, found_by = cautions(done)
    assert "unknown for 50.0% of the runs" in unknown
    assert "fault-free reference plan" in found_by
