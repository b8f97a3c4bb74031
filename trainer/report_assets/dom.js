// Elements and number formats.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const percent = (x) => `${(100 * x).toFixed(1)} %`;
const points = (x) => `${x >= 0 ? "+" : "−"}${Math.abs(100 * x).toFixed(1)} points`;

function compact(x) {
  if (x === null || x === undefined) return "–";
  const size = Math.abs(x);
  if (size === 0) return "0";
  if (size >= 1e5 || size < 1e-3) return x.toExponential(1);
  if (Number.isInteger(x)) return String(x);
  return size >= 100 ? x.toFixed(0) : size >= 10 ? x.toFixed(1) : x.toPrecision(2);
}

function duration(seconds) {
  if (seconds < 90) return `${seconds.toFixed(0)} s`;
  return seconds < 5400 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function showTooltip(event, text) {
  const tip = document.getElementById("tooltip");
  tip.textContent = text;
  tip.hidden = false;
  const x = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  const y = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8);
  tip.style.left = `${x}px`;
  tip.style.top = `${y}px`;
}

function hideTooltip() {
  document.getElementById("tooltip").hidden = true;
}
