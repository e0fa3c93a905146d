// The Inspector's front end: it says what a person did and puts in place what Python made.
//
// Every piece of HTML in `view.panels` comes escaped from html.py; all other text is set as text.
// A long run goes on in chunks: while this view drives it, each answer asks for the next chunk.

const TABS = [
  ["steps", "Steps"],
  ["state", "State"],
  ["trace", "Trace"],
  ["lm", "LM calls"],
  ["plan", "Edit plan"],
];

function make(element, name, text, title) {
  const made = document.createElement(element);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  if (title) made.title = title;
  return made;
}

function button(name, text, title, click) {
  const made = make("button", `agentlab-button agentlab-${name}`, text, title);
  made.type = "button";
  made.addEventListener("click", click);
  return made;
}

function select(name, label) {
  const made = make("select", `agentlab-select agentlab-${name}`);
  made.setAttribute("aria-label", label);
  made.title = label;
  return made;
}

// Offer these values, and keep the choice when they are offered already.
function offer(box, values, texts = values) {
  const now = JSON.stringify(texts);
  if (box.dataset.offered === now) return;
  const chosen = box.value;
  box.replaceChildren(...values.map((v, i) => new Option(texts[i], v)));
  if (values.includes(chosen)) box.value = chosen;
  box.dataset.offered = now;
}

// Put HTML in place; what is unfolded and what has the focus stay so.
function fill(panel, html) {
  if (panel.agentlabHtml === html) return;
  panel.agentlabHtml = html;
  const states = new Map();
  for (const d of panel.querySelectorAll("details[data-key]")) states.set(d.dataset.key, d.open);
  const focused = panel.contains(document.activeElement) && document.activeElement.dataset.step;
  panel.innerHTML = html;
  for (const d of panel.querySelectorAll("details[data-key]"))
    if (states.has(d.dataset.key)) d.open = states.get(d.dataset.key);
  if (focused)
    [...panel.querySelectorAll("[data-step]")].find((e) => e.dataset.step === focused)?.focus();
}

function render({ model, el }) {
  let driving = false; // this view asks for the next chunk of a long run
  let wanted = null; // the visit that the slider asked for, until the answer is here
  let dirty = false; // the plan's text was edited and not taken yet
  let base = null; // the text that the editing began from
  let accepted = 0;

  const act = (action, given = {}) => {
    wanted = null;
    model.send({ do: action, ...given });
  };
  const drive = (given) => {
    driving = true;
    act("run", given);
  };

  // ---- the parts, from top to bottom
  const head = make("div", "agentlab-head");
  const runs = select("runs", "Run that is shown");
  const step = button("step", "Step", "Run the next node", () => act("step"));
  const run = button("run", "Run", "Run to the end", () => drive());
  const pause = button("pause", "Pause", "Stop after this node", () => {
    driving = false;
    act("pause");
  });
  const until = button("until", "Run to", "Stop just before this node", () =>
    drive({ node: nodes.value }),
  );
  const nodes = select("nodes", "Node to run to");
  const rewind = button("rewind", "Rewind", "", () => act("rewind"));
  const fork = button("fork", "Fork", "", () => act("fork"));
  const group = (name, ...parts) => {
    const made = make("span", `agentlab-group ${name}`);
    made.append(...parts);
    return made;
  };
  const bar = make("div", "agentlab-bar-tools");
  bar.append(
    group("", step, run, pause),
    group("", until, nodes),
    group("", rewind, fork, runs),
  );

  const kind = select("kind", "Kind of fault");
  const tool = select("tool", "Tool that fails");
  const lasting = select("persistence", "How long the fault stands");
  const silent = make("input", "agentlab-silent");
  silent.type = "checkbox";
  const falseResult = "No error comes back: the result is false";
  const silentLabel = make("label", "agentlab-tick", "silent", falseResult);
  silentLabel.prepend(silent);
  const fromHere = "From here on, calls of this tool meet this fault";
  const inject = button("inject", "Inject fault", fromHere, () =>
    act("inject", {
      kind: kind.value,
      tool: tool.value,
      persistence: lasting.value,
      silent: silent.checked,
    }),
  );
  const event = select("event", "Type of event");
  const news = make("input", "agentlab-call-text agentlab-news");
  news.type = "text";
  news.setAttribute("aria-label", "What happened");
  news.placeholder = "what happened";
  const tell = () => {
    act("publish", { type: event.value, description: news.value });
    news.value = "";
  };
  news.addEventListener("keydown", (e) => e.key === "Enter" && !publish.disabled && tell());
  const heard = "Let the run hear of something; resident and event_driven strategies decide about it";
  const publish = button("publish", "Publish event", heard, tell);
  const targets = make("span", "agentlab-targets");
  const clear = button("clear", "Clear", "Aim no fault at a tool any more", () =>
    act("clear_faults"),
  );
  const faults = make("div", "agentlab-bar-tools agentlab-faults");
  faults.append(
    group("", inject, kind, make("span", "agentlab-word", "on"), tool, lasting, silentLabel),
    group("", targets, clear),
    group("", publish, event, news),
  );

  // what waits for a person: each call is a card made by waiting.py
  const waits = make("div", "agentlab-waits");
  const card = (event) => event.target.closest?.("[data-review]");
  waits.addEventListener("click", (event) => {
    const hit = event.target.closest?.("[data-answer]");
    if (!hit) return;
    const of = card(event);
    act("review", {
      call_id: of.dataset.review,
      answer: hit.dataset.answer,
      arguments: of.querySelector(".agentlab-arguments").value,
      reason: of.querySelector(".agentlab-reason").value,
    });
  });
  waits.addEventListener("input", (event) => edits(card(event)));
  // what was edited must not be taken for approved as it was
  const edits = (of) => {
    const given = of.querySelector(".agentlab-arguments");
    const same = given.value === given.defaultValue;
    of.querySelector("[data-answer=approve]").disabled = !same;
    of.querySelector("[data-answer=edit]").disabled = same;
  };
  const said = make("input", "agentlab-call-text agentlab-news agentlab-said");
  said.type = "text";
  said.placeholder = "what the user says next";
  said.setAttribute("aria-label", said.placeholder);
  const speak = () => {
    act("say", { text: said.value });
    said.value = "";
  };
  said.addEventListener("keydown", (e) => e.key === "Enter" && speak());
  const nextTurn = "Begin the next turn of this run";
  const turn = group("agentlab-turn", button("say", "Say", nextTurn, speak), said);

  const message = make("p", "agentlab-message-line");
  message.setAttribute("role", "status");
  const progress = make("progress", "agentlab-progress");
  const settled = make("span", "agentlab-settled");
  const back = button("back", "◀", "One visit back", () => look(slider.valueAsNumber - 1));
  const slider = make("input", "agentlab-slider");
  slider.type = "range";
  slider.min = 0;
  slider.setAttribute("aria-label", "Visit that is looked at");
  const forth = button("forth", "▶", "One visit on", () => look(slider.valueAsNumber + 1));
  const place = make("span", "agentlab-place");
  const look = (at) => {
    act("look", { at });
    wanted = slider.value = at;
  };
  slider.addEventListener("input", () => look(slider.valueAsNumber));
  const time = make("div", "agentlab-time");
  time.append(
    group("agentlab-moves", back, slider, forth),
    place,
    group("agentlab-done", progress, settled),
  );

  const graph = make("div", "agentlab-graph");
  const tabs = make("div", "agentlab-tabs");
  tabs.setAttribute("role", "tablist");
  const panels = {};
  const heads = {};
  const open = (name) => {
    for (const [key] of TABS) {
      heads[key].setAttribute("aria-selected", key === name);
      panels[key].hidden = key !== name;
    }
    asked.classList.toggle("agentlab-away", name !== "lm");
  };
  for (const [name, text] of TABS) {
    heads[name] = button(`tab-${name}`, text, "", () => open(name));
    heads[name].setAttribute("role", "tab");
    panels[name] = make("div", `agentlab-panel agentlab-panel-${name}`);
    panels[name].setAttribute("role", "tabpanel");
    tabs.append(heads[name]);
  }

  const text = make("textarea", "agentlab-text");
  text.spellcheck = false;
  text.setAttribute("aria-label", "What remains of the plan, as JSON");
  text.addEventListener("input", () => {
    dirty = true;
    draw();
  });
  const check = button("check", "Check", "Say what is wrong with the plan", () =>
    act("check_plan", { text: text.value }),
  );
  const apply = button("apply", "Apply", "Go on with this plan", () =>
    act("apply_plan", { text: text.value }),
  );
  const fromLooked = "A new run from the visit that is looked at";
  const forkPlan = button("fork-plan", "Fork with this plan", fromLooked, () =>
    act("fork_plan", { text: text.value }),
  );
  const reset = button("reset", "Reset", "Drop what was edited", () => {
    dirty = false;
    draw();
  });
  const note = make("span", "agentlab-quiet");
  const problems = make("ul", "agentlab-problems agentlab-error");
  const tools = make("div", "agentlab-bar-tools");
  tools.append(group("", check, apply, forkPlan, reset), note);
  panels.plan.append(
    make(
      "p",
      "agentlab-quiet",
      "What remains of the plan. Steps that are settled stay; others may depend on them by id.",
    ),
    text,
    tools,
    problems,
  );

  const asked = make("div", "agentlab-asked");
  const askedTitle = make("h4");
  const prompt = make("textarea", "agentlab-call-text agentlab-prompt");
  prompt.setAttribute("aria-label", "Last message of the prompt");
  const reply = make("textarea", "agentlab-call-text agentlab-replied");
  reply.setAttribute("aria-label", "Reply");
  const number = () => model.get("view").asking.number;
  const askAgain = button("ask", "Ask again", "Ask the model with this prompt", () =>
    act("ask", { number: number(), prompt: prompt.value }),
  );
  const withReply = "A new run from the visit of this call, which gets this reply";
  const forkReply = button("fork-reply", "Fork with this reply", withReply, () =>
    act("fork_reply", { number: number(), reply: reply.value }),
  );
  const closeCall = button("close-call", "Close", "Leave it as it is", () => act("close_call"));
  const askedTools = make("div", "agentlab-bar-tools");
  askedTools.append(group("", askAgain, forkReply, closeCall));
  const word = (text) => make("div", "agentlab-quiet", text);
  asked.append(
    ...[askedTitle, word("Last message of the prompt"), prompt, word("Reply"), reply, askedTools],
  );
  let askedNow = ""; // what Python says of the call; the texts are set when it changes
  function ask(asking, running) {
    asked.hidden = !asking;
    askAgain.disabled = forkReply.disabled = running;
    const now = JSON.stringify(asking);
    if (now === askedNow) return;
    askedNow = now;
    if (!asking) return;
    askedTitle.textContent = asking.title;
    prompt.value = asking.prompt;
    reply.value = asking.reply;
  }
  panels.lm.addEventListener("click", (event) => {
    const hit = event.target.closest?.("[data-call]");
    if (hit) act("edit_call", { number: Number(hit.dataset.call) });
  });

  // ---- showing
  function draw() {
    const view = model.get("view");
    fill(head, view.panels.head);
    fill(graph, view.panels.graph);
    fill(waits, view.panels.waiting);
    for (const one of waits.querySelectorAll("[data-review]")) edits(one);
    turn.hidden = !view.ended;
    for (const name of ["steps", "state", "trace", "lm"]) fill(panels[name], view.panels[name]);
    ask(view.asking, view.running);

    step.disabled = run.disabled = until.disabled = view.running || view.ended || view.waits;
    pause.disabled = !view.running;
    const past = view.at < view.last;
    rewind.textContent = past ? "Rewind to here" : "Rewind";
    rewind.title = past ? `Go back before visit ${view.at}` : "Go back one visit";
    rewind.disabled = view.running || view.last === 0;
    fork.textContent = past ? "Fork here" : "Fork";
    fork.title = `A new run from before visit ${view.at}; nothing is executed again`;
    fork.disabled = view.running;
    if (!nodes.options.length) {
      offer(nodes, view.nodes);
      nodes.value = view.nodes.at(-1);
    }
    offer(runs, view.runs.map((_, i) => String(i)), view.runs);
    runs.value = String(view.run);
    runs.hidden = view.runs.length < 2;
    offer(kind, view.kinds, view.kinds.map((k) => k.replaceAll("_", " ")));
    offer(tool, view.tools);
    offer(lasting, view.persistence);
    offer(event, view.events);
    publish.disabled = view.ended;
    inject.disabled = view.running || !view.tools.length;
    targets.textContent = view.targets.length ? `aimed: ${view.targets.join(", ")}` : "";
    clear.hidden = !view.targets.length;

    message.textContent = view.message ? view.message.text : "";
    message.className = `agentlab-message-line agentlab-${view.message ? view.message.kind : "none"}`;
    slider.max = view.last;
    if (view.at === wanted || view.message) wanted = null;
    if (wanted === null) slider.value = view.at;
    back.disabled = view.at === 0;
    forth.disabled = !past;
    place.textContent = `visit ${view.at} of ${view.last}, ${view.place}`;
    progress.max = Math.max(view.steps, 1);
    progress.value = view.settled;
    const counted = `${view.settled} of ${view.steps} steps settled`;
    settled.textContent = view.steps ? counted : view.planned ? "no steps" : "no plan yet";

    edit(view.editor, past);
    el.classList.toggle("agentlab-running", view.running);
  }

  function edit(editor, past) {
    if (editor.accepted !== accepted) {
      accepted = editor.accepted;
      dirty = false;
    }
    const now = editor.text ?? "";
    if (!dirty) {
      base = now;
      if (text.value !== now) text.value = now;
    }
    text.disabled = editor.text === null && !dirty;
    text.placeholder = "There is no plan yet.";
    const ready = editor.text !== null;
    check.disabled = forkPlan.disabled = !ready;
    apply.disabled = !ready || past;
    reset.disabled = !dirty;
    const moved = base === now ? "edited, not taken yet" : "edited; the plan has changed since";
    note.textContent = dirty ? moved : "";
    problems.replaceChildren(...editor.errors.map((e) => make("li", "", e)));
  }

  // ---- listening
  // JupyterLab takes single keys (arrows, Enter) for commands of the notebook unless the element
  // that has the focus says otherwise; it looks in document's capture phase, so say it before.
  const guard = (event) => {
    const target = event.target;
    if (!(target instanceof Element) || !el.contains(target)) return;
    const runsCell = event.shiftKey && event.key === "Enter" && target.tagName !== "TEXTAREA";
    const command = event.ctrlKey || event.metaKey || event.altKey || runsCell;
    target.toggleAttribute("data-lm-suppress-shortcuts", !command);
  };
  const choose = (event) => {
    const hit = event.target.closest?.("[data-step]");
    if (!hit || !el.contains(hit)) return;
    act("select", { step: hit.dataset.step });
    open("steps");
  };
  for (const part of [graph, panels.steps, panels.trace]) part.addEventListener("click", choose);
  graph.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(event);
  });
  runs.addEventListener("change", () => act("show_run", { index: Number(runs.value) }));
  const changed = () => {
    draw();
    driving = driving && model.get("view").running;
    if (driving) act("go_on");
  };
  model.on("change:view", changed);

  el.classList.add("agentlab", "agentlab-live");
  window.addEventListener("keydown", guard, true);
  el.append(head, bar, faults, turn, message, waits, time, graph, tabs, ...TABS.map(([name]) => panels[name]));
  panels.lm.before(asked);
  open("steps");
  draw();
  return () => {
    model.off("change:view", changed);
    window.removeEventListener("keydown", guard, true);
  };
}

// ---- the live form in the place of the static one (see place.py)

function initialize({ model }) {
  const live = new Map(); // place in the page to what takes the live form away again
  const word = `${Date.now()} ${Math.random()}`; // only a kernel can answer with it
  const found = () => document.querySelectorAll(`[data-agentlab-place="${model.get("place")}"]`);

  const put = (place) => {
    const el = make("div");
    const leave = render({ model, el });
    const before = [...place.childNodes];
    place.replaceChildren(el);
    return () => {
      leave();
      place.replaceChildren(...before);
    };
  };
  const look = () => {
    const fresh = [...found()].filter((place) => !live.has(place));
    if (!fresh.length) return;
    for (const [place, leave] of live) if (!place.isConnected && live.delete(place)) leave();
    for (const place of fresh) live.set(place, put(place));
  };
  const watch = new MutationObserver(look);
  const begin = () => {
    if (model.get("answered") !== word) return;
    model.off("change:answered", begin);
    watch.observe(document.body, { childList: true, subtree: true });
    look();
  };
  model.on("change:answered", begin);
  model.set("asked", word);
  model.save_changes();
  return () => {
    watch.disconnect();
    for (const leave of live.values()) leave();
    live.clear();
  };
}

export default { initialize, render };
