"""The Inspector in a real JupyterLab, driven with headless Chromium.

Skipped where playwright, JupyterLab or Chromium are absent (``pip install '.[browser]'`` and
``apt-get install chromium``). With ``AGENTLAB_SCREENSHOTS=FOLDER`` the pictures are kept.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = [m for m in ("playwright", "jupyterlab", "nbformat") if not importlib.util.find_spec(m)]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}"),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

TOKEN = "agentlab"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip

TRAVEL = """
import asyncio
import agentlab as al
assert asyncio.get_running_loop().is_running()
lab = al.Lab(al.load_suite("travel")["travel-medium-000"], strategy="retry_then_replan(2)",
             seed=1, fault_rate=0.2)
run = al.autonomous.start(lab)
run
"""

RESIDENT = """
import agentlab as al
lab = al.Lab(al.load_suite("travel")["travel-easy-000"], planner="search")
run = al.resident.start(lab)
run
"""

ASKED = """
import json
import agentlab as al
from agentlab.lm.scripted import scripted
plans = [json.dumps({"summary": n, "steps": [], "answer": n}) for n in ("one", "two")]
evil = "</textarea><img src=x onerror='window.evil=1'>"
lab = al.Lab(al.load_suite("chain")[0], planner="structured",
             lm=scripted([plans[0], evil, plans[1], "done"]))
run = al.autonomous.start(lab)
run
"""

SLOW = """
import time
import agentlab as al
from agentlab.minds.planners.fixed import Fixed

@al.tool(effect="read")
def wait(n: int) -> int:
    "Wait a little."
    time.sleep(0.02)
    return n

steps = [{"name": f"s{i}", "actionType": "call_tool", "targetResource": "wait",
          "parameters": {"n": i}} for i in range(120)]
run = al.autonomous.start(al.Lab(tools=[wait], planner=Fixed(steps)), "wait",
                          max_task_iterations=500)
run
"""

HOSTILE = """
import agentlab as al
from agentlab.errors import ToolFailure
from agentlab.minds.planners.fixed import Fixed
evil = "</style><img src=x onerror='window.evil=1'><script>window.evil=1</script>"

@al.tool(effect="read")
def fail() -> str:
    "Fail."
    raise ToolFailure(evil)

step = {"name": evil, "description": evil, "actionType": "call_tool", "targetResource": "fail"}
run = al.autonomous.start(al.Lab(tools=[fail], planner=Fixed([step]), strategy="never"), evil)
run
"""

WAITING = """
import agentlab as al
evil = "</textarea><img src=x onerror='window.evil=1'>"

@al.tool(effect="irreversible", needs_approval=True)
def refund(order: int, why: str) -> str:
    "Refund an order."
    return f"refunded {order} {why}"

steps = [{"name": n, "actionType": "call_tool", "targetResource": "refund",
          "parameters": {"order": i, "why": evil}} for n, i in (("first", 17), ("second", 18))]
planner = al.planners.Fixed(steps, [])
run = al.autonomous.start(al.Lab(tools=[refund], planner=planner, strategy="never"), "refund")
run
"""


TWICE = """
import agentlab as al
evil = "<img src=x onerror='window.evil=1'>"
run = al.autonomous.start(al.Lab(al.load_suite("travel")["travel-medium-000"]), f"go {evil}")
run.finish();
run
"""


class Page:
    """A notebook open in JupyterLab, all of its cells run."""

    def __init__(self, page, shots: Path) -> None:
        self.page, self.shots = page, shots
        self.errors: list[str] = []
        page.on("pageerror", lambda e: self.errors.append(str(e)))

    def one(self, selector: str):
        return self.page.locator(f".agentlab-live {selector}").first

    def text(self, selector: str) -> str:
        return self.one(selector).inner_text()

    def click(self, name: str) -> None:
        self.one(f".agentlab-{name}").click()

    def until(self, selector: str, text: str) -> None:
        """Wait until what is shown contains a text."""
        self.page.wait_for_function(
            "([s, t]) => document.querySelector('.agentlab-live ' + s)?.innerText.includes(t)",
            arg=[selector, text],
        )

    def shoot(self, name: str) -> None:
        self.page.screenshot(path=str(self.shots / f"{name}.png"))


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _get(url: str):
    with urllib.request.urlopen(url, timeout=5) as reply:
        return json.load(reply)


def _wait(what, seconds: float = 90):
    end = time.monotonic() + seconds
    while True:
        try:
            found = what()
            if found:
                return found
        except (urllib.error.URLError, OSError):
            pass
        if time.monotonic() > end:
            raise TimeoutError("JupyterLab did not answer in time")
        time.sleep(0.2)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """JupyterLab with folders of its own; yields (address, folder that is served)."""
    folder = tmp_path_factory.mktemp("jupyter")
    home = tmp_path_factory.mktemp("home")
    settings = home / "CONFIG" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    port = _free_port()
    env = {
        **os.environ,
        **{f"JUPYTER_{n}_DIR": str(home / n) for n in ("CONFIG", "DATA", "RUNTIME")},
        "IPYTHONDIR": str(home / "ipython"),
    }
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        f"--port={port}", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}",
        "--LabApp.news_url=None", "--ServerApp.port_retries=0",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    with (home / "log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(lambda: _get(f"{address}/api/status?token={TOKEN}"))
            yield address, folder
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        made = play.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def opened(server, browser, tmp_path):
    """Open a notebook of the given cells and run them all."""
    import nbformat

    address, folder = server
    shots = Path(os.environ.get("AGENTLAB_SCREENSHOTS", tmp_path))
    shots.mkdir(parents=True, exist_ok=True)
    contexts = []

    def open_(name: str, *cells: str, width: int = 1280) -> Page:
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        book = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(c.strip()) for c in cells],
            metadata={"kernelspec": kernel},
        )
        nbformat.write(book, folder / f"{name}.ipynb")
        context = browser.new_context(viewport={"width": width, "height": 1000})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        made = Page(page, shots)
        page.goto(f"{address}/lab/workspaces/{name}/tree/{name}.ipynb?token={TOKEN}&reset")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")

        def idle() -> bool:  # the toolbar says idle before there is a kernel
            sessions = _get(f"{address}/api/sessions?token={TOKEN}")
            mine = [s for s in sessions if s["path"] == f"{name}.ipynb"]
            return bool(mine) and mine[0]["kernel"]["execution_state"] == "idle"

        _wait(idle)
        page.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
        page.locator('li[data-command="runmenu:run-all"]').click()
        return made

    yield open_
    for context in contexts:
        context.close()


def test_step_to_the_end(opened):
    page = opened(
        "steps", TRAVEL, "print(run.step())", "print(run.verdict.success, len(run.visited))"
    )
    page.one(".agentlab-step").wait_for(state="visible")
    page.until(".agentlab-place", "visit 1 of 1")  # the second cell made a step: it followed
    assert "before planning" in page.text(".agentlab-chip")
    assert "no plan yet" in page.text(".agentlab-settled")
    page.shoot("steps-0-start")
    clicks = 1
    while page.one(".agentlab-step").is_enabled():
        page.click("step")
        clicks += 1
        page.until(".agentlab-place", f"visit {clicks} of {clicks}")
        assert clicks < 60
        if clicks == 5:
            page.shoot("steps-1-under-way")
    assert "goal reached" in page.text(".agentlab-chip")
    assert "6 of 6 steps settled" in page.text(".agentlab-settled")
    boxes = page.page.locator(".agentlab-live .agentlab-plan .agentlab-is-completed")
    assert boxes.count() == 6
    page.one('.agentlab-box[data-step="book_hotel"]').click()
    page.until(".agentlab-panel-steps h4", "book_hotel")
    page.shoot("steps-2-end")
    page.click("tab-trace")
    assert "silent" in page.text(".agentlab-panel-trace")  # the faults of seed 1
    page.shoot("steps-3-trace")
    last = page.page.locator(".jp-CodeCell").last  # what the person clicked is what Python sees
    last.locator(".cm-content").click()
    page.page.keyboard.press("Control+Enter")
    last.locator(".jp-OutputArea-output", has_text=f"True {clicks}").wait_for()
    assert page.errors == []


def test_look_back_fork_and_edit_the_plan(opened):
    page = opened("forks", TRAVEL)
    page.click("run")
    page.until(".agentlab-chip", "goal reached")
    page.one(".agentlab-slider").focus()
    page.page.keyboard.press("Home")
    page.until(".agentlab-place", "visit 0 of")
    for _ in range(3):
        page.page.keyboard.press("ArrowRight")
    page.until(".agentlab-place", "visit 3 of")
    page.click("tab-state")
    page.until(".agentlab-panel-state", "Changed by visit 2, plan_execution")
    page.shoot("forks-0-state")
    page.click("tab-plan")
    text = page.one(".agentlab-text")
    document = json.loads(text.input_value())
    assert len(document["steps"]) == 6 - document_settled(page)
    text.fill("{ not a plan")
    page.click("fork-plan")
    page.until(".agentlab-problems", "not JSON")
    assert text.input_value() == "{ not a plan"
    page.shoot("forks-1-problem")
    document["steps"][0]["name"] = "another"
    document["steps"][0]["targetResource"] = "book_fligth"
    text.fill(json.dumps(document, indent=2))
    page.click("check")
    page.until(".agentlab-problems", "did you mean 'book_flight'")
    page.click("reset")
    document = json.loads(text.input_value())
    del document["answer"]
    document["steps"] = document["steps"][:-1]
    text.fill(json.dumps({**document, "answer": None}))
    page.click("fork-plan")
    page.until(".agentlab-message-line", "with another plan")
    assert page.one(".agentlab-runs").locator("option").count() == 2
    page.until(".agentlab-settled", "of 5 steps")
    page.one(".agentlab-kind").select_option("error")
    page.one(".agentlab-tool").select_option("book_flight")
    page.one(".agentlab-persistence").select_option("permanent")
    page.click("inject")
    page.until(".agentlab-targets", "error on book_flight")
    page.one(".agentlab-nodes").select_option("reflection")
    page.click("until")
    page.until(".agentlab-chip", "before reflection")
    page.shoot("forks-2-fork")
    page.one(".agentlab-runs").select_option("0")
    page.until(".agentlab-chip", "goal reached")
    assert page.errors == []


def test_a_prompt_is_edited_asked_again_and_forked_from(opened):
    page = opened("asked", ASKED)
    page.click("run")
    page.until(".agentlab-chip", "goal missed")
    assert not page.one(".agentlab-asked").is_visible()
    page.click("tab-lm")
    page.until(".agentlab-panel-lm", "Make a plan that reaches the user's goal")
    page.shoot("asked-0-calls")
    page.page.locator('.agentlab-live [data-call="1"]').click()
    prompt = page.one(".agentlab-prompt")
    prompt.wait_for(state="visible")
    assert prompt.input_value().startswith("## task")
    prompt.fill("Plan it otherwise.")
    page.click("ask")
    page.until(".agentlab-message-line", "This is the model's reply")
    assert '"two"' in page.one(".agentlab-replied").input_value()
    page.shoot("asked-1-again")
    page.click("fork-reply")
    page.until(".agentlab-message-line", "This is a fork")
    page.click("step")
    page.until(".agentlab-place", "visit 2 of 2")
    page.click("tab-state")
    page.until(".agentlab-panel-state", "two")
    page.click("tab-steps")
    assert not page.one(".agentlab-asked").is_visible()
    assert page.page.evaluate("window.evil") is None
    assert page.errors == []


def test_a_person_publishes_an_event_and_the_run_decides(opened):
    page = opened("resident", RESIDENT)
    page.one(".agentlab-nodes").select_option("monitor")
    page.click("until")
    page.until(".agentlab-chip", "before monitor")
    news = page.one(".agentlab-news")
    news.fill("<b>no trip</b> after noon")
    page.click("publish")
    page.until(".agentlab-message-line", "NEW_CONSTRAINT is published")
    assert news.input_value() == ""
    page.one(".agentlab-nodes").select_option("execute")
    page.click("until")
    page.until(".agentlab-chip", "before execute")
    page.click("tab-trace")
    page.until(".agentlab-panel-trace", "<b>no trip</b> after noon")
    assert "REPLAN_REMAINING" in page.text(".agentlab-panel-trace")
    page.shoot("resident-0-decided")
    page.click("run")
    page.until(".agentlab-chip", "goal reached")
    assert not page.one(".agentlab-publish").is_enabled()
    assert page.errors == []


def test_a_person_approves_edits_and_says_the_next_turn(opened):
    page = opened("waiting", WAITING)
    page.click("run")
    page.until(".agentlab-chip", "waits for people")
    page.until(".agentlab-message-line", "The run waits for first, second.")
    assert not page.one(".agentlab-step").is_enabled()
    assert not page.one(".agentlab-turn").is_visible()
    cards = page.page.locator(".agentlab-live .agentlab-waiting article")
    assert cards.count() == 2
    first = cards.first
    assert "first: refund (irreversible)" in first.inner_text()
    box = first.locator(".agentlab-arguments")
    given = json.loads(box.input_value())
    assert given["why"].startswith("</textarea>")
    assert not first.locator(".agentlab-edit-call").is_enabled()
    page.shoot("waiting-0-asked")
    box.fill("{")
    assert not first.locator(".agentlab-approve-call").is_enabled()  # it would not be what is shown
    first.locator(".agentlab-edit-call").click()
    page.until(".agentlab-message-line", "not JSON")
    assert box.input_value() == "{"
    page.shoot("waiting-1-problem")
    box.fill(json.dumps({**given, "order": 99}))
    first.locator(".agentlab-edit-call").click()
    page.until(".agentlab-message-line", "which is now refund")
    assert cards.count() == 1
    page.one(".agentlab-approve-call").click()  # the other one is the first now
    page.until(".agentlab-message-line", "a person approved refund")
    assert cards.count() == 0
    page.click("run")
    page.until(".agentlab-chip", "finished")
    page.click("tab-steps")
    page.until(".agentlab-panel-steps", "refunded 99")
    page.until(".agentlab-panel-steps", "refunded 18")
    said = page.one(".agentlab-said")
    said.fill("And now?")
    page.shoot("waiting-2-end")
    page.click("say")
    page.until(".agentlab-message-line", "The next turn begins")
    page.until(".agentlab-task", "And now?")
    assert page.one(".agentlab-step").is_enabled()
    assert page.page.evaluate("window.evil") is None
    assert page.errors == []


def document_settled(page) -> int:
    return int(page.text(".agentlab-settled").split()[0])


def test_a_long_run_shows_progress_and_is_paused(opened):
    page = opened("slow", SLOW)
    page.click("run")
    page.until(".agentlab-place", "visit ")
    page.page.wait_for_function(
        "parseInt(document.querySelector('.agentlab-live .agentlab-settled').innerText) > 4"
    )
    assert not page.one(".agentlab-step").is_enabled()
    page.shoot("slow-0-running")
    page.click("pause")
    page.until(".agentlab-message-line", "Paused after")
    there = page.text(".agentlab-place")
    page.page.wait_for_timeout(600)
    assert page.text(".agentlab-place") == there
    assert document_settled(page) < 120
    page.click("run")
    page.until(".agentlab-chip", "finished")
    assert "120 of 120" in page.text(".agentlab-settled")
    page.shoot("slow-1-end")
    assert page.errors == []


def test_foreign_text_stays_text(opened):
    page = opened("hostile", HOSTILE, "from IPython.display import HTML\nHTML(run._repr_html_())")
    page.click("run")
    page.until(".agentlab-chip", "finished")
    for tab in ("steps", "state", "trace", "lm", "plan"):
        page.click(f"tab-{tab}")
        page.page.wait_for_timeout(100)
    assert "<img src=x" in page.text(".agentlab-task")
    page.page.locator(".agentlab-static .agentlab-task").wait_for()
    assert page.page.evaluate("window.evil") is None
    assert page.page.locator(".agentlab img, .agentlab script").count() == 0
    assert page.errors == []


@pytest.mark.parametrize("width", [760, 1280])
def test_it_fits(opened, width):
    page = opened(f"fits{width}", TRAVEL, width=width)
    page.click("run")
    page.until(".agentlab-chip", "goal reached")
    for tab in ("steps", "state", "trace", "lm", "plan"):
        page.click(f"tab-{tab}")
        wide = page.page.evaluate(
            "() => { const e = document.querySelector('.agentlab-live');"
            " return [e.scrollWidth, e.clientWidth] }"
        )
        assert wide[0] <= wide[1] + 1
    page.shoot(f"fits-{width}")


# ---- without a kernel ---------------------------------------------------------------------------


def _reference(text: str) -> bool:
    return any(w in text for w in ("widget-view+json", "model not found", "Loading widget"))


def test_a_saved_notebook_opened_again_shows_the_static_form(opened, server, browser):
    address, folder = server
    page = opened("saved", TWICE, "al.Inspector(run)")
    page.page.wait_for_function("document.querySelectorAll('.agentlab-live').length == 2")
    assert page.page.locator(".agentlab-static").count() == 0
    page.page.keyboard.press("Control+s")
    saved = folder / "saved.ipynb"
    _wait(lambda: "agentlab-static" in saved.read_text(encoding="utf-8"))
    assert not _reference(saved.read_text(encoding="utf-8"))

    page.page.reload()  # the kernel lives on, and so does the live form
    page.page.wait_for_function("document.querySelectorAll('.agentlab-live').length == 2")
    page.one(".agentlab-tab-trace").click()

    for session in _get(f"{address}/api/sessions?token={TOKEN}"):
        if session["path"] == "saved.ipynb":
            end = urllib.request.Request(
                f"{address}/api/sessions/{session['id']}?token={TOKEN}", method="DELETE"
            )
            urllib.request.urlopen(end, timeout=10).close()
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    try:
        again = context.new_page()
        again.goto(f"{address}/lab/workspaces/again/tree/saved.ipynb?token={TOKEN}&reset")
        again.locator(".agentlab-static .agentlab-task").first.wait_for()
        again.wait_for_timeout(3000)  # whatever a front end would still put there
        again.screenshot(path=str(page.shots / "saved-0-again.png"))
        assert again.locator(".agentlab-static .agentlab-task:visible").count() == 2
        assert again.locator(".agentlab-live").count() == 0
        outputs = again.locator(".jp-OutputArea-output").all_inner_texts()
        assert all("goal reached" in t and not _reference(t) for t in outputs)
        assert again.evaluate("window.evil") is None
    finally:
        context.close()


def test_an_exported_notebook_shows_the_static_form(browser, tmp_path):
    import nbformat

    cells = [nbformat.v4.new_code_cell(c.strip()) for c in (TWICE, "al.Inspector(run)")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "book.ipynb")
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", "book.ipynb"]
    env = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")}
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, timeout=300)
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, offline=True)
    try:
        page = context.new_page()
        page.goto((tmp_path / "book.html").as_uri(), wait_until="domcontentloaded")
        shots = Path(os.environ.get("AGENTLAB_SCREENSHOTS", tmp_path))
        page.screenshot(path=str(shots / "exported.png"))
        assert page.locator(".agentlab-static .agentlab-task:visible").count() == 2
        assert page.locator(".jp-OutputArea-output >> text=goal reached").count() == 2
        assert page.evaluate("window.evil") is None
    finally:
        context.close()
