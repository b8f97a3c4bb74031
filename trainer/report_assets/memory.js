// The memory bank: a table that sorts by any column and searches all text.
const ENTRY_COLUMNS = [
  { name: "id", of: (e) => e.entry_id },
  { name: "experience", of: (e) => e.text, long: true },
  { name: "source state", of: (e) => e.source_observation, long: true },
  { name: "kind", of: (e) => e.task_kind },
  { name: "since", of: (e) => e.created_step, number: true },
  { name: "uses", of: (e) => e.uses, number: true },
  { name: "wins", of: (e) => e.successes, number: true },
  { name: "utility", of: (e) => (e.successes + 1) / (e.uses + 2), number: true, format: (x) => x.toFixed(2) },
];

// Returns a function that shows one entry by its id.
function drawMemory(data) {
  const section = document.getElementById("memory");
  if (!data.memory || !data.memory.entries.length) {
    section.append(el("p", { class: "dim" }, "The run keeps no memory, or it is still empty."));
    return () => {};
  }
  const { entries, total, snapshot } = data.memory;
  let sortBy = ENTRY_COLUMNS[5], descending = true;
  const search = el("input", { type: "search", placeholder: "search all columns", size: 32, "aria-label": "search the bank", oninput: show });
  const count = el("span", { class: "dim" });
  const head = el("tr", {}, ENTRY_COLUMNS.map((column) => el("th", {
    class: `sortable ${column.number ? "number" : ""}`,
    onclick: () => { descending = sortBy === column ? !descending : Boolean(column.number); sortBy = column; show(); },
  }, column.name)));
  const body = el("tbody");

  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = entries.filter((e) => {
      const text = `${e.entry_id} ${e.text} ${e.source_observation} ${e.task_kind}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0) * (descending ? -1 : 1);
    shown.sort((a, b) => compare(sortBy.of(a), sortBy.of(b)));
    [...head.children].forEach((th, i) => {
      const column = ENTRY_COLUMNS[i];
      th.textContent = column.name + (column === sortBy ? (descending ? " ▾" : " ▴") : "");
    });
    body.replaceChildren(...shown.map(entryRow));
    count.textContent = `${shown.length} of ${total} entries, snapshot ${snapshot}`;
  }
  section.append(el("div", { class: "controls" }, search, count),
    el("div", { class: "card scroll" }, el("table", {}, el("thead", {}, head), body)));
  show();
  return (id) => { search.value = id; show(); };
}

function entryRow(entry) {
  return el("tr", {}, ENTRY_COLUMNS.map((column) => {
    const value = column.of(entry);
    const text = column.format ? column.format(value) : String(value);
    if (!column.long) return el("td", { class: column.number ? "number" : null }, text);
    return el("td", {}, el("div", { class: "clamp", onclick: (event) => event.currentTarget.classList.toggle("open") }, text));
  }));
}
