"use strict";
// Unpacks the rollouts and lets a person browse them. What models wrote enters the page by textContent alone.

const PAGE_ROWS = 100;
const LONG = 600;  // characters of a prompt that begins folded, so that the completion is in sight
const byId = (id) => document.getElementById(id);
const make = (tag, text = "", kind = "") => {
  const element = document.createElement(tag);
  element.textContent = text;
  if (kind) element.className = kind;
  return element;
};

async function unpack() {
  const bytes = Uint8Array.from(atob(byId("data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// One object per rollout, over the columns.
function rolloutsOf(data) {
  const names = Object.keys(data.rows);
  return data.rows.run.map((_, i) => {
    const own = Object.fromEntries(names.map((name) => [name, data.rows[name][i]]));
    const [, step, ...cosines] = data.steps[own.at];
    const [completion, spans] = data.texts[own.text];
    const run = data.runs[own.run];
    const perStep = Object.fromEntries(data.per_step.map((name, j) => [name, cosines[j]]));
    return { ...own, ...perStep, step, completion, spans, runName: run.name, arm: run.arm, place: run.place,
      kind: data.kinds[own.label].replaceAll("_", " "), asked: data.prompts[own.prompt] };
  });
}

// ---------------------------------------------------------------- numbers as text

const number = (digits, sign = false) => (v) =>
  v === null ? "-" : (sign && v > 0 ? "+" : "") + v.toFixed(digits);
const yesNo = (v) => (v === null ? "unknown" : v ? "yes" : "no");
const COLUMNS = [
  { key: "runName", head: "run", title: "run" },
  { key: "step", head: "step", n: true, title: "step of the run, from 0" },
  { key: "kind", head: "label", title: "the benchmark's label" },
  { key: "reward", head: "reward", n: true, show: number(1), title: "0.5 if it compiles, plus 3.0 if it passes" },
  { key: "advantage", head: "adv", n: true, show: number(2, true), title: "advantage: reward against its group" },
  { key: "cos_S_contrib", head: "cos_S", n: true, show: number(4, true),
    title: "cos_S_contrib: the sample's own gradient against V; positive = hack-ward" },
  { key: "comp_len", head: "tokens", n: true, title: "comp_len: length of the completion" },
];
const FACTS = [
  ["label", (r) => r.kind], ["reward", (r) => number(1)(r.reward)],
  ["advantage", (r) => number(3, true)(r.advantage)], ["hacked", (r) => yesNo(r.hacked)],
  ["gt_pass", (r) => yesNo(r.gt_pass)], ["can_compile", (r) => yesNo(r.can_compile)],
  ["cos_S_contrib (sample)", (r) => number(4, true)(r.cos_S_contrib)],
  ["cos_in (step)", (r) => number(4)(r.cos_in)], ["cos_out (step)", (r) => number(4)(r.cos_out)],
  ["cos_update_in (step)", (r) => number(4)(r.cos_update_in)],
  ["cos_update (step)", (r) => number(4)(r.cos_update)], ["cos_null (step)", (r) => number(4)(r.cos_null)],
  ["tokens", (r) => r.comp_len + (r.truncated ? " (cut at the limit)" : "")], ["source", (r) => r.source],
  ["problem", (r) => r.problem_id], ["sample of its group", (r) => r.sample_id], ["arm", (r) => r.arm],
  ["seed", (r) => r.seed], ["hint", (r) => r.hint],
];
const SPANS = { own: "its own evaluation function", binds: "binds that name", calls: "calls it" };

// ---------------------------------------------------------------- state

const state = { all: [], shown: [], at: -1, page: 0, sort: { key: "", down: false }, spanKinds: [],
  linked: false };  // whether the address follows what is chosen: not before a person chose
const filters = byId("filters");
const head = document.querySelector("#list thead tr");
const body = document.querySelector("#list tbody");

function wanted() {
  const asked = filters.elements;
  const value = (name) => asked[name].value;
  const labels = new Set([...filters.querySelectorAll("[name=label]:checked")].map((box) => Number(box.value)));
  const from = value("from") === "" ? -Infinity : Number(value("from"));
  const to = value("to") === "" ? Infinity : Number(value("to"));
  const text = value("text").toLowerCase();
  return (r) =>
    labels.has(r.label) && r.step >= from && r.step <= to &&
    (!value("arm") || r.arm === value("arm")) && (!value("run") || r.runName === value("run")) &&
    (!value("seed") || String(r.seed) === value("seed")) && (!value("source") || r.source === value("source")) &&
    (!value("hacked") || String(r.hacked) === value("hacked")) &&
    (!text || r.completion.toLowerCase().includes(text));
}

// Unknown values come last whichever way it is sorted; equals stay in order of run, step and row.
function ordered(rows) {
  const { key, down } = state.sort;
  if (!key) return rows;
  const way = down ? -1 : 1;
  return [...rows].sort((a, b) => {
    if (a[key] === null || b[key] === null) return (a[key] === null) - (b[key] === null);
    return a[key] < b[key] ? -way : a[key] > b[key] ? way : 0;
  });
}

function refresh() {
  const current = state.shown[state.at];
  state.shown = ordered(state.all.filter(wanted()));
  const again = state.shown.indexOf(current);
  byId("count").textContent = `${state.shown.length.toLocaleString("en")} of ` +
    `${state.all.length.toLocaleString("en")} rollouts in this page match`;
  if (state.shown.length) return select(Math.max(again, 0));
  state.at = -1;
  byId("detail").hidden = true;
  drawList();
}

// ---------------------------------------------------------------- list

function drawHead() {
  head.replaceChildren(...COLUMNS.map((column) => {
    const cell = make("th", "", column.n ? "n" : "");
    const own = state.sort.key === column.key;
    cell.scope = "col";
    cell.ariaSort = own ? (state.sort.down ? "descending" : "ascending") : "none";
    const button = make("button", column.head + (own ? (state.sort.down ? " ▼" : " ▲") : ""));
    button.type = "button";
    button.title = `${column.title}; sort by it`;
    button.dataset.sort = column.key;
    cell.append(button);
    return cell;
  }));
}

function drawList() {
  drawHead();
  const first = state.page * PAGE_ROWS;
  const rows = state.shown.slice(first, first + PAGE_ROWS);
  body.replaceChildren(...rows.map((rollout, i) => {
    const line = make("tr");
    line.dataset.at = first + i;
    line.ariaCurrent = String(first + i === state.at);
    line.append(...COLUMNS.map((c) =>
      make("td", c.show ? c.show(rollout[c.key]) : String(rollout[c.key]), c.n ? "n" : "")));
    return line;
  }));
  const last = Math.max(Math.ceil(state.shown.length / PAGE_ROWS), 1);
  document.querySelector("#pages span").textContent = `page ${state.page + 1} of ${last}`;
  document.querySelector("[data-page='-1']").disabled = state.page === 0;
  document.querySelector("[data-page='1']").disabled = state.page + 1 >= last;
}

function keepInSight() {
  const line = body.querySelector("[aria-current=true]");
  const list = byId("list");
  if (!line) return;
  const top = line.offsetTop - head.offsetHeight;
  const bottom = line.offsetTop + line.offsetHeight;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (bottom > list.scrollTop + list.clientHeight) list.scrollTop = bottom - list.clientHeight;
}

// ---------------------------------------------------------------- detail

// A text with marks: spans [start, end, kind] and every hit of the search, which may overlap.
function painted(text, spans, search) {
  const ranges = [];
  for (let i = 0; i < spans.length; i += 3) ranges.push([spans[i], spans[i + 1], state.spanKinds[spans[i + 2]]]);
  const low = text.toLowerCase();
  // Lower case may change a text's length (İ); its places would then be wrong.
  if (search && low.length === text.length) {
    for (let at = low.indexOf(search); at >= 0; at = low.indexOf(search, at + search.length)) {
      ranges.push([at, at + search.length, "hit"]);
    }
  }
  const cuts = [...new Set([0, text.length, ...ranges.flatMap(([a, b]) => [a, b])])].sort((a, b) => a - b);
  return cuts.slice(1).map((end, i) => {
    const over = ranges.filter(([a, b]) => a <= cuts[i] && b >= end).map((range) => range[2]);
    const piece = text.slice(cuts[i], end);
    if (!over.length) return document.createTextNode(piece);
    const mark = make("mark", piece, over.join(" "));
    const said = over.filter((kind) => SPANS[kind]).map((kind) => SPANS[kind]).join(", ");
    if (said) mark.title = said;
    return mark;
  });
}

function legendOf(rollout) {
  const kinds = new Set(rollout.spans.filter((_, i) => i % 3 === 2).map((kind) => state.spanKinds[kind]));
  if (!kinds.size) return [document.createTextNode("It neither writes nor calls an evaluation function.")];
  const out = [document.createTextNode("Marked: ")];
  [...kinds].forEach((kind, i) => {
    if (i) out.push(document.createTextNode(", "));
    out.push(make("mark", SPANS[kind], kind));
  });
  return out;
}

function drawDetail() {
  const r = state.shown[state.at];
  byId("detail").hidden = false;
  byId("where").textContent = `${(state.at + 1).toLocaleString("en")} of ${state.shown.length.toLocaleString("en")}`;
  document.querySelector("[data-turn='-1']").disabled = state.at === 0;
  document.querySelector("[data-turn='1']").disabled = state.at + 1 === state.shown.length;
  byId("name").textContent = `${r.runName}, step ${r.step}: ${r.kind}`;
  byId("facts").replaceChildren(...FACTS.map(([name, of]) => {
    const pair = make("div");
    pair.append(make("dt", name), make("dd", String(of(r))));
    return pair;
  }));
  if (!state.linked) byId("asked").open = r.asked.length < LONG;  // afterwards as the reader leaves it
  byId("prompt").textContent = r.asked;
  byId("legend").replaceChildren(...legendOf(r));
  const search = filters.elements.text.value.toLowerCase();
  byId("completion").replaceChildren(...painted(r.completion, r.spans, search));
  byId("jump").disabled = !byId("completion").querySelector(".own");
  byId("show").textContent = `just show ${r.place} ${r.step} ${r.row}`;
  byId("detail").scrollTop = 0;
}

function select(at) {
  state.at = Math.min(Math.max(at, 0), state.shown.length - 1);
  state.page = Math.floor(state.at / PAGE_ROWS);
  drawList();
  drawDetail();
  keepInSight();
  const { runName, step, row } = state.shown[state.at];
  if (state.linked) history.replaceState(null, "", `#rollout=${encodeURIComponent(runName)}/${step}/${row}`);
}

const jump = () => byId("completion").querySelector(".own")?.scrollIntoView({ block: "center" });

// ---------------------------------------------------------------- wiring

function offer(name, values) {
  filters.elements[name].append(...[...new Set(values)].map((value) => {
    const option = make("option", String(value));
    option.value = String(value);
    return option;
  }));
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const inList = event.target.closest("#list");
  const turn = { j: 1, k: -1, ...(inList ? { ArrowDown: 1, ArrowUp: -1 } : {}) }[event.key];
  if (turn && state.at >= 0) {
    event.preventDefault();
    select(state.at + turn);
  } else if (event.key === "h") jump();
}

function onClick(event) {
  const { sort, page, turn } = event.target.dataset;
  const line = event.target.closest("tr[data-at]");
  if (sort) {
    state.sort = { key: sort, down: state.sort.key === sort && !state.sort.down };
    state.at = -1;
    refresh();
    head.querySelector(`[data-sort="${sort}"]`).focus();
  } else if (page) select((state.page + Number(page)) * PAGE_ROWS);
  else if (turn) select(state.at + Number(turn));
  else if (line) {
    select(Number(line.dataset.at));
    if (matchMedia("(max-width: 60rem)").matches) byId("detail").scrollIntoView();
  }
}

// The rollout that the address names (a link to one), or the first.
function addressed() {
  const match = /^#rollout=(.+)\/(\d+)\/(\d+)$/.exec(location.hash);
  const run = match && decodeURIComponent(match[1]);
  const at = match ? state.shown.findIndex((r) =>
    r.runName === run && r.step === Number(match[2]) && r.row === Number(match[3])) : -1;
  if (at >= 0) {
    select(at);
    byId("rollouts").scrollIntoView();
  }
}

async function start() {
  const data = await unpack();
  state.all = rolloutsOf(data);
  state.spanKinds = data.span_kinds;
  offer("arm", data.runs.map((run) => run.arm));
  offer("run", data.runs.map((run) => run.name));
  offer("seed", state.all.map((r) => r.seed).sort((a, b) => a - b));
  offer("source", state.all.map((r) => r.source));
  refresh();
  addressed();
  state.linked = true;
  filters.addEventListener("input", refresh);
  filters.addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", () => {
    filters.reset();
    refresh();
  });
  document.addEventListener("click", onClick);
  document.addEventListener("keydown", onKey);
  byId("jump").addEventListener("click", jump);
  document.body.dataset.ready = "yes";
}

start();
