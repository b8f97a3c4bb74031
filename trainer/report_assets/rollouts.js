// The rollout viewer: choose step, task and sibling; turns with their tokens coloured.
const COLOURINGS = {
  advantage: { label: "advantage", value: (turn, i) => (turn.advantages ? turn.advantages[turn.advantages.length === 1 ? 0 : i] : 0) },
  surprise: { label: "log-prob (red: unlikely)", value: (turn, i) => turn.logprobs[i] },
};

function groupRollouts(rows) {
  const steps = new Map();
  for (const row of rows) {
    const step = `${row.phase} ${row.step}`;
    if (!steps.has(step)) steps.set(step, new Map());
    const groups = steps.get(step);
    if (!groups.has(row.group)) groups.set(row.group, []);
    groups.get(row.group).push(row);
  }
  return steps;
}

function options(select, labels) {
  select.replaceChildren(...labels.map((label, i) => el("option", { value: i }, label)));
}

function drawRollouts(data, openEntry) {
  const section = document.getElementById("rollouts");
  if (!data.rollouts.length) {
    section.append(el("p", { class: "dim" }, "No rollouts yet."));
    return;
  }
  const steps = [...groupRollouts(data.rollouts)].map(([name, groups]) => ({ name, groups: [...groups.values()] }));
  const stepSelect = el("select", { "aria-label": "step" }), taskSelect = el("select", { "aria-label": "task" });
  const colourSelect = el("select", { "aria-label": "colour tokens by" });
  const siblings = el("span", { class: "controls", style: "margin:0" }), view = el("div", { class: "card" });
  let sibling = 0;
  const group = () => steps[stepSelect.value].groups[taskSelect.value];

  function showTrajectory() {
    siblings.replaceChildren(...group().map((row, i) => el("button", {
      "aria-pressed": String(i === sibling), class: row.outcome.success ? "good" : "bad",
      onclick: () => { sibling = i; showTrajectory(); },
    }, `${row.outcome.success ? "✓" : "✗"} sibling ${row.index}`)));
    view.replaceChildren(...trajectoryView(group()[sibling], colourSelect.value, openEntry));
  }
  function showTasks() {
    options(taskSelect, steps[stepSelect.value].groups.map((rows) =>
      `${rows[0].task.kind} · ${rows[0].task.task_id} · ${rows.filter((r) => r.outcome.success).length} of ${rows.length} shown won`));
    sibling = 0;
    showTrajectory();
  }
  options(stepSelect, steps.map((step) => step.name));
  colourSelect.append(...Object.entries(COLOURINGS).map(([key, c]) => el("option", { value: key }, c.label)));
  stepSelect.addEventListener("change", showTasks);
  taskSelect.addEventListener("change", () => { sibling = 0; showTrajectory(); });
  colourSelect.addEventListener("change", showTrajectory);
  section.append(
    el("p", { class: "dim" }, "A sample; every turn of every trajectory is in rollouts.jsonl.zst."),
    el("div", { class: "controls" }, el("label", {}, "step ", stepSelect), el("label", {}, "task ", taskSelect), siblings,
      el("label", {}, "colour by ", colourSelect),
      el("span", { class: "scale", style: "background:linear-gradient(90deg,var(--bad),transparent,var(--good))", title: "negative to positive" })),
    view);
  const lastTraining = steps.map((step) => !step.name.startsWith("eval")).lastIndexOf(true);
  stepSelect.value = Math.max(lastTraining, 0);
  showTasks();
}

function trajectoryView(row, colouring, openEntry) {
  const chip = (text, kind) => el("span", { class: `chip ${kind || ""}` }, text);
  const number = (x) => (x === null ? "none" : x.toFixed(3));
  const chips = [
    chip(row.outcome.success ? "won" : "lost", row.outcome.success ? "good" : "bad"), chip(`stop: ${row.stop_reason}`),
    row.reward === null ? null : chip(`reward ${number(row.reward)}`),
    ...Object.entries(row.parts).map(([name, value]) => chip(`${name} ${number(value)}`)),
    row.advantage === null ? null : chip(`advantage ${number(row.advantage)}`),
    row.tied ? chip("tied group", "warn") : null,
    row.status === "ok" || row.status === "evaluation" ? null : chip(row.status, "warn"),
  ];
  const numbers = [...new Set([...row.turns, ...row.steps].map((part) => part.step))].sort((a, b) => a - b);
  const largest = Math.max(1e-9, ...row.turns.flatMap((turn) => turn.pieces.map((_, i) => Math.abs(COLOURINGS[colouring].value(turn, i)))));
  return [
    el("div", { class: "dim" }, `${row.task.kind} · ${row.task.task_id} · ${row.task.split} · ${row.trajectory_id}`),
    el("div", { class: "chips" }, chips),
    row.failure ? el("p", { class: "bad" }, `${row.failure.owner}: ${row.failure.kind}: ${row.failure.message}`) : null,
    ...numbers.map((step) => stepView(row, step, colouring, largest, openEntry)),
  ].filter(Boolean);
}

function stepView(row, number, colouring, largest, openEntry) {
  const played = row.steps.find((step) => step.step === number);
  const reads = row.reads.filter((read) => read.step === number);
  const parts = [el("div", { class: "label" }, `Step ${number}`)];
  if (played) parts.push(el("div", { class: "text dim" }, played.observation));
  for (const turn of row.turns.filter((t) => t.step === number)) {
    if (turn.stage !== "query") parts.push(...reads.splice(0).map((read) => readView(read, openEntry)));
    parts.push(turnView(turn, colouring, largest));
  }
  parts.push(...reads.map((read) => readView(read, openEntry)));
  if (played) {
    parts.push(el("div", { class: "action" }, "▶ ", el("code", {}, played.action),
      played.valid ? null : el("span", { class: "bad" }, " refused by the world"),
      played.reward ? el("span", { class: "good" }, ` reward ${compact(played.reward)}`) : null));
  }
  return el("div", { class: "step" }, parts);
}

function turnView(turn, colouring, largest) {
  const tokens = turn.pieces.map((piece, i) => {
    const value = COLOURINGS[colouring].value(turn, i);
    const share = Math.round((65 * Math.abs(value)) / largest);
    const colour = value < 0 ? "--bad" : "--good";
    const advantage = turn.advantages ? `advantage ${COLOURINGS.advantage.value(turn, i).toFixed(4)}` : "not trained on";
    return el("span", {
      class: /^<\|.*\|>$/.test(piece) ? "special" : null,
      style: share > 2 ? `background:color-mix(in srgb, var(${colour}) ${share}%, transparent)` : null,
      onmousemove: (event) => showTooltip(event, `${JSON.stringify(piece)}\nlog-prob ${turn.logprobs[i].toFixed(3)}\n${advantage}`),
      onmouseleave: hideTooltip,
    }, piece);
  });
  return el("div", { class: "turn" },
    el("div", { class: "head" }, el("b", {}, turn.stage), `${turn.pieces.length} tokens`, el("span", {}, `ends by ${turn.finish_reason}`),
      turn.fault ? el("span", { class: "bad" }, turn.fault) : null),
    el("details", {}, el("summary", {}, turn.extends === null ? "prompt" : "prompt, what is new in it"),
      el("div", { class: "text mono" }, turn.prompt)),
    el("div", { class: "body text mono" }, tokens));
}

function readView(read, openEntry) {
  const found = read.entry_ids.map((id, i) => el("a", {
    href: "#memory", title: `score ${read.scores[i]}`, onclick: () => openEntry(id),
  }, `${id} (${read.scores[i].toFixed(2)}) `));
  return el("div", { class: "read" },
    el("div", {}, el("b", {}, "memory "), el("span", { class: "text" }, read.query)),
    el("div", {}, found.length ? ["found ", ...found] : "found nothing"),
    read.guidance === null ? (found.length ? el("div", { class: "dim" }, "rejected") : null)
      : el("div", { class: "text" }, `guidance: ${read.guidance}`));
}
