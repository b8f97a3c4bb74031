// The head of the report, the curves, success by task kind, alarms.
function wilson(won, played) {
  const z = 1.959963984540054;
  if (!played) return [0, 1];
  const rate = won / played, scale = 1 + (z * z) / played;
  const centre = (rate + (z * z) / (2 * played)) / scale;
  const margin = (z / scale) * Math.sqrt((rate * (1 - rate)) / played + (z * z) / (4 * played * played));
  return [Math.max(0, centre - margin), Math.min(1, centre + margin)];
}

function evaluationSeries(data) {
  const series = new Map();
  for (const row of data.evaluations) {
    const name = `${row.split}, ${row.name.replace("_t", ", temperature ")}`;
    if (!series.has(name)) series.set(name, []);
    series.get(name).push(row);
  }
  return [...series].map(([name, rows]) => ({ name, rows: rows.filter((row) => row.played > 0) }))
    .filter(({ rows }) => rows.length);
}

function evaluationTile({ name, rows }) {
  const first = rows[0], last = rows[rows.length - 1];
  const interval = (row) => `${percent(row.success_rate)} (${percent(row.success_low)} to ${percent(row.success_high)})`;
  const gain = last.success_rate - first.success_rate;
  const headline = rows.length === 1 ? percent(last.success_rate)
    : [`${percent(first.success_rate)} → ${percent(last.success_rate)} `,
       el("small", { class: gain >= 0 ? "good" : "bad" }, points(gain))];
  return el("div", { class: "card tile" },
    el("div", { class: "dim" }, `Held-out success: ${name}`),
    el("div", { class: "big" }, headline),
    el("div", { class: "dim" },
      rows.length > 1 ? el("div", {}, `${first.phase} ${first.step}: ${interval(first)}`) : null,
      el("div", {}, `${last.phase} ${last.step}: ${interval(last)}, ${last.played} episodes`)));
}

function facts(data) {
  const s = data.settings, phases = data.phases;
  const seconds = Object.values(phases).flatMap((p) => p.columns["timing/seconds"] || []).reduce((a, b) => a + (b || 0), 0);
  const done = (phase) => (phases[phase] ? phases[phase].steps[phases[phase].steps.length - 1] : 0);
  const part = (name) => (s[name] && s[name]._target_ ? s[name]._target_.split(".").pop() : "none");
  return [
    ["policy updates", `${done("grpo")} of ${s.train.steps}`],
    ["warm start updates", s.sft ? `${done("sft")} of ${s.sft.steps}` : "none"],
    ["trajectories per update", `${s.train.tasks_per_step} tasks × ${s.train.group_size}`],
    ["learning rate", s.train.learning_rate],
    ["environment", part("env")], ["agent", part("agent")], ["memory", part("memory")],
    ["rewards", Object.keys(s.rewards || {}).join(", ")],
    ["advantage", s.advantage && s.advantage._target_ ? s.advantage._target_.split(".").pop() : "none"],
    ["model", modelName(s)],
    ["seed", s.run.seed], ["time in updates", duration(seconds)],
  ];
}

function modelName(settings) {
  const model = (settings.policy && settings.policy.model) || {};
  if (model.model) return model.model;
  return model.layers ? `${model.layers} layers × ${model.hidden_size}, from nothing` : "unknown";
}

function drawOverview(data) {
  const section = document.getElementById("overview");
  section.append(el("h1", {}, data.name));
  const tiles = evaluationSeries(data).map(evaluationTile);
  section.append(tiles.length ? el("div", { class: "tiles" }, tiles) : el("p", { class: "dim" }, "No evaluation yet."));
  section.append(el("div", { class: "card facts" },
    facts(data).map(([name, value]) => el("div", {}, el("span", {}, name), String(value)))));
  if (data.alarms.length) {
    section.append(el("p", { class: "warn" }, `${data.alarms.length} kinds of alarm: `,
      el("a", { href: "#alarms", class: "warn" }, data.alarms.map((a) => a.alarm).join(", "))));
  }
}

// Charts of a phase: [title, [[column, label], ...], options]; a column that the run lacks is left out.
const CHARTS = [
  ["Success while training", [["success", "success"]], { range: [0, 1], format: percent, note: "band: 95 % over groups" }],
  ["Reward", [["reward", "total"]], { note: "band: 95 % over groups" }],
  ["Loss", [["loss", "loss"]], {}],
  ["Entropy", [["entropy", "entropy"]], { note: "nats per token" }],
  ["KL", [["kl", "to the reference"], ["approx_kl", "of the update"]], { note: "nats per token" }],
  ["Gradient norm", [["grad_norm", "before clipping"]], {}],
  ["Sampler/trainer gap", [["logprob_gap", "mean"]], { note: "nats per token" }],
  ["Tokens per trajectory", [["completion_tokens", "tokens"]], { note: "band: 95 % over groups" }],
  ["Episode length", [["steps", "environment steps"], ["turns", "turns"]], {}],
  ["Groups and limits", [["tied_groups", "tied groups"], ["masked", "masked"], ["truncated", "truncated turns"], ["step_limit", "step limit"], ["context_limit", "context limit"]], { range: [0, 1], format: percent }],
  ["Faults", [["invalid_actions", "invalid actions"], ["faults", "malformed turns"], ["repeated_actions", "repeat themselves"]], { range: [0, 1], format: percent }],
  ["Memory reads", [["memory_reads", "per trajectory"]], {}],
  ["Memory rejected", [["memory_rejected", "rejected"], ["memory_found", "found something"]], { range: [0, 1], format: percent }],
  ["Memory size", [["memory/size", "entries"]], {}],
  ["Memory utility", [["memory/utility_mean", "mean utility"]], { range: [0, 1] }],
  ["Seconds per update", [["timing/seconds", "all"], ["timing/rollout_seconds", "rollout"]], {}],
];

function series(phase, column, name) {
  const values = phase.columns[column];
  if (!values) return null;
  const sem = phase.columns[`${column}_sem`];
  const bound = (sign) => values.map((v, i) => (v === null || sem[i] === null ? null : v + sign * 1.96 * sem[i]));
  return { name, xs: phase.steps, values, ...(sem ? { low: bound(-1), high: bound(1) } : {}) };
}

function familyChart(phase, prefix, title, options) {
  const names = Object.keys(phase.columns).filter((name) => name.startsWith(prefix));
  const all = names.map((name) => series(phase, name, name.slice(prefix.length)));
  return all.length ? lineChart({ title, series: all, ...options }) : null;
}

// A warm start has no sampling policy to be compared with.
const SFT_CHARTS = new Set(["Loss", "Entropy", "Gradient norm", "Seconds per update"]);

function phaseCharts(phase, name) {
  const fixed = CHARTS.filter(([title]) => name !== "sft" || SFT_CHARTS.has(title)).map(([title, columns, options]) => lineChart({
    title, series: columns.map(([column, name]) => series(phase, column, name)).filter(Boolean), ...options,
  }));
  return [...fixed,
    familyChart(phase, "success/", "Success while training, by task kind", { range: [0, 1], format: percent }),
    familyChart(phase, "reward/", "Reward parts", { note: "before their weights" }),
    familyChart(phase, "failures/", "Failed episodes, by owner", {}),
  ].filter(Boolean);
}

function drawCurves(data) {
  const section = document.getElementById("curves");
  const held = lineChart({
    title: "Held-out success", note: "95 % Wilson intervals", range: [0, 1], format: percent,
    series: evaluationSeries(data).map(({ name, rows }) => {
      const grpo = rows.filter((row) => row.phase === rows[rows.length - 1].phase);
      const column = (key) => grpo.map((row) => row[key]);
      return { name, xs: column("step"), values: column("success_rate"), low: column("success_low"), high: column("success_high"), dots: true };
    }),
  });
  const order = Object.keys(data.phases).sort((a, b) => (a === "sft") - (b === "sft"));
  for (const phase of order) {
    const charts = phaseCharts(data.phases[phase], phase);
    if (phase === order[0] && held) charts.unshift(held);
    section.append(el("h3", {}, phase === "sft" ? "Warm start (sft)" : phase), el("div", { class: "charts" }, charts));
  }
  if (!order.length) section.append(el("p", { class: "dim" }, "No step yet."));
}

function drawTasks(data) {
  const section = document.getElementById("tasks");
  const plots = evaluationSeries(data).map(({ name, rows }, i) => {
    const first = rows[0], last = rows[rows.length - 1];
    const kinds = Object.keys(last.by_kind);
    const mark = (row, kind, hollow) => {
      const [won, played] = row.by_kind[kind] || [0, 0];
      const [low, high] = wilson(won, played);
      return { value: played ? won / played : 0, low, high, hollow, label: `${row.phase} ${row.step}: ${won} of ${played} won (${percent(low)} to ${percent(high)})` };
    };
    return ratePlot({
      title: name, colour: COLOURS[i % COLOURS.length],
      rows: kinds.map((kind) => ({ name: kind, marks: [...(first === last ? [] : [mark(first, kind, true)]), mark(last, kind, false)] })),
    });
  });
  section.append(plots.length ? el("div", { class: "charts", style: "grid-template-columns:repeat(auto-fit,minmax(420px,1fr))" }, plots)
    : el("p", { class: "dim" }, "No evaluation yet."));
}

function drawAlarms(data) {
  const section = document.getElementById("alarms");
  if (!data.alarms.length) {
    section.append(el("p", { class: "dim" }, "None."));
    return;
  }
  const head = ["alarm", "steps", "last finding", "expected", "what to do"].map((name) => el("th", {}, name));
  const rows = data.alarms.map((a) => el("tr", {},
    el("td", {}, el("b", { class: "warn" }, a.alarm)),
    el("td", {}, a.count === 1 ? `${a.phase} ${a.first}` : `${a.count} times, ${a.phase} ${a.first} to ${a.last}`),
    el("td", {}, a.found), el("td", {}, a.expected), el("td", {}, a.action)));
  section.append(el("div", { class: "card" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))));
}
