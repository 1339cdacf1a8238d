// The page: it takes whole snapshots and draws the newest one once a frame. No snapshot depends on another.
"use strict";

const { each, make, say, set } = drawings;
const get = id => document.getElementById(id);
const SILENT_S = 11; // beats come every 5 s

let newest = null; // not drawn yet
let shown = null;
let heardAt = performance.now();
let lostAt = null;
let dragging = false;
const counts = { snapshots: 0, drawn: 0 };
window.live = { counts, get snapshot() { return shown; } };

// -- taking snapshots ---------------------------------------------------------------------------------------------------

const source = new EventSource("events");
source.onmessage = message => {
  newest = message.data;
  counts.snapshots += 1;
  heard();
  requestAnimationFrame(draw);
};
source.addEventListener("beat", heard);
source.onerror = () => { lostAt ??= heardAt; tell(); };

function heard() {
  heardAt = performance.now();
  lostAt = null;
  tell();
}

function tell() {
  const state = get("state"), now = performance.now();
  if (lostAt === null && now - heardAt > 1000 * SILENT_S) lostAt = heardAt;
  if (shown?.ended) return kind(state, "ended", shown.outcome ? `ended: ${shown.outcome}` : "ended");
  if (lostAt !== null) return kind(state, "lost", `connection lost since ${Math.round((now - lostAt) / 1000)} s`);
  if (shown === null) return kind(state, "", "connecting");
  if (shown.trouble) return kind(state, "lost", "no peer answers");
  if (shown.player) return kind(state, "live", shown.player.playing ? "replay" : "replay, paused");
  return kind(state, "live", shown.asked ? `live, ${shown.asked} answers` : "live");
}

function kind(element, name, text) {
  element.className = `state ${name}`;
  say(element, text);
}

setInterval(tell, 1000);

// -- drawing ------------------------------------------------------------------------------------------------------------

function draw() {
  if (newest === null) return;
  shown = JSON.parse(newest);
  newest = null;
  counts.drawn += 1;
  paint();
  if (shown.ended) source.close();
}

function paint() {
  say(get("title"), shown.title);
  say(get("details"), shown.details);
  document.title = shown.title;
  say(get("clock"), drawings.seconds(Number((shown.player?.t ?? shown.t).toFixed(1))));
  get("trouble").hidden = !shown.trouble;
  say(get("trouble"), shown.trouble);
  player(shown.player);
  job(shown.job);
  drawings.overlay(get("overlay"), shown);
  drawings.time(get("time"), shown);
  show("s-graph", shown.graph, () => { drawings.graph(get("graph"), shown.graph); graphWords(shown.graph); });
  show("s-plane", shown.plane, () => drawings.plane(get("plane"), shown.plane));
  charts(shown.moves, shown.graph);
  lines(shown.lines);
  devices(shown.devices);
  tell();
}

function show(id, what, then) {
  get(id).hidden = !what;
  if (what) then();
}

// A section that would stand beside a hole is as wide as two.
function fill() {
  const half = [...document.querySelectorAll("main > section:not(.whole)")].filter(section => !section.hidden);
  half.forEach((section, at) => section.classList.toggle("wide", half.length % 2 === 1 && at === half.length - 1));
}

function job(now) {
  const rows = now === null ? [["job", `none yet: ${shown.devices.filter(one => one.status !== "starting").length} of ${shown.devices.length} peers are here`, true]] : [
    ["job", `${now.number} of ${now.of}: ${now.protocol}`],
    ["round", now.round === null ? "–" : String(now.round)],
    ["stage", now.phase || now.stage || "–"],
    ["term", now.term === null ? "–" : String(now.term)],
    ["aggregator", now.aggregator ? now.aggregator + (gone(now.aggregator) ? " (gone)" : "") : "none"],
    ["contributed", now.round === null ? "–" : `${now.contributed} of ${now.n_peers}`],
    ["finished", `${now.finished} of ${now.n_peers}`],
    ["waits for", now.waiting || (now.waits_for.length ? names(now.waits_for) : "–"), true],
  ];
  each(get("job"), rows, () => {
    const row = document.createElement("div");
    row.append(document.createElement("dt"), document.createElement("dd"));
    return row;
  }, (row, [name, value, long]) => {
    row.className = long ? "long" : "";
    say(row.children[0], name);
    say(row.children[1], value);
  });
}

const gone = name => shown.devices.some(one => one.name === name && ["lost", "down", "left"].includes(one.status));

function names(list) {
  const number = Math.max(list.length, shown.devices.filter(one => one.role === "waited").length);
  return number > 3 ? `${list.slice(0, 3).join(", ")} and ${number - 3} more` : list.join(", ");
}

function graphWords(graph) {
  const parts = [`${graph.peers.length} clusters`, `${graph.links.length} links`, `${graph.groups.length} communities`, `${graph.isolated.length} isolated`];
  say(get("graph-words"), `${parts.join(", ")}${graph.phase ? `; now: ${graph.phase}` : ""}`);
}

function lines(told) {
  each(get("lines"), told.slice(-8).reverse(), () => {
    const item = document.createElement("li");
    item.append(document.createElement("time"), document.createElement("span"));
    return item;
  }, (item, line) => {
    say(item.children[0], `${line.t.toFixed(2)} s`);
    say(item.children[1], line.text);
    item.title = line.text;
  });
}

const ROWS = 200; // of a larger fleet, peers that need attention come first, and the others are counted

function devices(all) {
  const attention = one => one.role ? 0 : ["alive", "finished"].includes(one.status) ? 2 : 1;
  const list = all.length <= ROWS ? all : [...all].sort((a, b) => attention(a) - attention(b)).slice(0, ROWS);
  say(get("more"), all.length > ROWS ? `and ${all.length - ROWS} more` : "");
  each(get("devices"), list, () => {
    const row = document.createElement("tr");
    for (let at = 0; at < 7; at += 1) row.append(document.createElement("td"));
    [3, 4, 5].forEach(at => { row.children[at].className = "number"; });
    const svg = make("svg", { viewBox: "0 0 64 10", "aria-hidden": "true" });
    make("rect", { class: "case", x: 0.5, y: 0.5, width: 63, height: 9 }, svg);
    make("rect", { class: "battery", x: 2, y: 2, height: 6 }, svg);
    row.children[6].append(svg, document.createElement("span"));
    return row;
  }, (row, one) => {
    const role = one.role === "aggregates" ? `, aggregates term ${one.term}` : one.role === "waited" ? ", waited for" : "";
    const cells = [one.name, one.group, one.status + role + (one.lives > 1 ? `, life ${one.lives}` : ""), one.round ?? "–", bytes(one.bytes_sent), joules(one.energy_j)];
    cells.forEach((text, at) => say(row.children[at], String(text)));
    const [svg, text] = row.children[6].children;
    if (svg.style.display !== (one.battery === null ? "none" : "")) svg.style.display = one.battery === null ? "none" : "";
    if (one.battery !== null) set(svg.children[1], { width: Math.max(0, 60 * one.battery), class: one.battery < 0.2 ? "battery low" : "battery" });
    say(text, one.battery === null ? "–" : `${Math.round(100 * one.battery)} %`);
  });
}

function bytes(number) {
  if (number === null) return "–";
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (number >= size) return `${(number / size).toFixed(1)} ${unit}`;
  return `${number} B`;
}

const joules = number => number === null ? "–" : `${Number(number.toPrecision(3))} J`;

// -- charts -------------------------------------------------------------------------------------------------------------

const plots = {};

function charts(moves, graph) {
  const movement = moves !== null && moves.rounds.length > 0;
  const computed = moves !== null && moves.objectives.length > 1;
  get("s-moves").hidden = graph !== null && !movement;
  get("s-objective").hidden = !computed;
  fill();
  if (!get("s-moves").hidden) chart("moves", moves?.rounds ?? [], moves?.shifts ?? [], true);
  const only = moves !== null && moves.objectives.length === 1 ? `Objective ${Number(moves.objectives[0].toPrecision(6))}, of round ${moves.objective_rounds[0]}.` : "";
  say(get("moves-words"), [!movement ? "No center has moved yet." : moves.tol > 0 ? `The job ends below ${moves.tol}.` : "", only].join(" ").trim());
  if (computed) chart("objective", moves.objective_rounds, moves.objectives, false);
}

function chart(id, xs, ys, log) {
  const box = get(id), width = box.clientWidth, key = `${width} ${drawings.dark.matches}`;
  const values = ys.map(y => log && !(y > 0) ? null : y);
  const digest = `${xs.length} ${xs[xs.length - 1]} ${ys[ys.length - 1]} ${ys[0]}`;
  if (plots[id]?.key === key && plots[id].digest === digest) return;
  if (plots[id]?.key === key) {
    plots[id].digest = digest;
    plots[id].plot.setData([xs, values]);
    return;
  }
  plots[id]?.plot.destroy();
  const style = getComputedStyle(document.documentElement), of = name => style.getPropertyValue(name).trim();
  const axis = { stroke: of("--soft"), grid: { stroke: of("--line"), width: 1 }, ticks: { stroke: of("--line"), width: 1 }, font: "12px system-ui", labelFont: "12px system-ui", labelSize: 20 };
  const plot = new uPlot({
    width, height: 260, legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false, range: (_, low, high) => low === null ? [0, 10] : [low, Math.max(high, low + 5)] }, y: log ? { distr: 3, range: logRange } : { range: linearRange } },
    axes: [{ ...axis, label: "round", size: 30, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] }, { ...axis, label: log ? "movement" : "objective", size: 66, ...(log ? { splits: logSplits, filter: (_, splits) => splits } : {}), values: (_, splits) => splits.map(v => log && v < 0.001 ? v.toExponential(0) : String(Number(v.toPrecision(5)))) }],
    series: [{}, { stroke: of("--chart"), width: 2, points: { show: true, size: 6, fill: of("--chart") } }],
  }, [xs, values], box);
  plots[id] = { plot, key, digest };
}

// Powers of ten, at most some six; 2 and 5 between them where there are few.
function logSplits(_, __, low, high) {
  const first = Math.round(Math.log10(low)), last = Math.round(Math.log10(high)), step = Math.ceil((last - first) / 6);
  const found = [];
  for (let power = first; power <= last; power += step) {
    found.push(10 ** power);
    if (last - first <= 2 && power < last) found.push(2 * 10 ** power, 5 * 10 ** power);
  }
  return found;
}

const logRange = (_, low, high) => low === null ? [0.01, 1] : [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high * 1.0001))];
const linearRange = (_, low, high) => low === null ? [0, 1] : [low - ((high - low) || Math.abs(low) || 1) * 0.1, high + ((high - low) || Math.abs(high) || 1) * 0.1];

// -- a replay -----------------------------------------------------------------------------------------------------------

function player(now) {
  get("player").hidden = now === null;
  if (now === null) return;
  say(get("play"), now.playing ? "Pause" : "Play");
  const slider = get("moment");
  if (Number(slider.max) !== now.end) slider.max = now.end;
  if (!dragging) slider.value = now.t;
  const speed = get("speed"), text = String(now.speed);
  if (![...speed.options].some(option => option.value === text)) speed.add(new Option(`${text} ×`, text));
  if (document.activeElement !== speed) speed.value = text;
}

function control(what, value = 0) {
  fetch("control", { method: "POST", headers: { "X-P2pclust": "control", "Content-Type": "application/json" }, body: JSON.stringify({ do: what, value }) });
}

for (const speed of [0.1, 0.25, 0.5, 1, 2, 5, 10, 50]) get("speed").add(new Option(`${speed} ×`, String(speed)));
get("play").onclick = () => control(shown?.player?.playing ? "pause" : "play");
get("speed").onchange = () => { control("speed", Number(get("speed").value)); get("speed").blur(); };
get("moment").oninput = () => { dragging = true; control("seek", Number(get("moment").value)); };
get("moment").onchange = () => { dragging = false; };
get("player").onsubmit = event => event.preventDefault();

drawings.legend(get("legend"));
drawings.timeLegend(get("time-legend"));
addEventListener("resize", () => { if (shown) requestAnimationFrame(paint); });
drawings.dark.addEventListener("change", () => { if (shown) paint(); });
