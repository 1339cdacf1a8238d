// Drawings of the page, each from a part of a snapshot. Elements are kept and changed, never made anew, where there are many.
"use strict";

const drawings = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const SIGNS = { lost: "✕", down: "✕", paused: "‖", asleep: "z", finished: "✓", left: "–", starting: "", suspect: "?", alive: "" };
  const PALETTE = ["#1a5fb4", "#c64600", "#26834f", "#8a3ba8", "#a1720a", "#b3261e", "#0f7c8a", "#6b6b6b", "#c03a83", "#5b7a1a"];
  const DARK = ["#7db4ff", "#ffa064", "#6fd39b", "#d79cf0", "#e6c35c", "#ff8a80", "#62d0de", "#b5b5b5", "#ff8fc4", "#b6d977"];
  const dark = matchMedia("(prefers-color-scheme: dark)");

  const colour = number => (dark.matches ? DARK : PALETTE)[number % PALETTE.length];

  function make(name, attributes = {}, parent = null) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (parent) parent.append(element);
    return element;
  }

  function set(element, attributes) {
    for (const [key, value] of Object.entries(attributes)) {
      const text = String(value);
      if (element.getAttribute(key) !== text) element.setAttribute(key, text);
    }
  }

  function say(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  // As many children as items, each changed to show its item.
  function each(parent, items, create, change) {
    while (parent.children.length > items.length) parent.lastElementChild.remove();
    items.forEach((item, at) => {
      const child = parent.children[at] ?? parent.appendChild(create(item, at));
      change(child, item, at);
    });
  }

  // -- the overlay ------------------------------------------------------------------------------------------------------

  const CIRCLE = 30; // peers that have room on a circle
  let layoutKey = "";
  let layout = [];

  function places(devices, width) {
    const key = `${width} ${devices.map(device => `${device.name}/${device.group}/${device.at ?? ""}`).join(" ")}`;
    if (key === layoutKey) return layout;
    layoutKey = key;
    const many = devices.length > CIRCLE;
    const margin = many ? 16 : 46;
    if (devices.every(device => device.at)) layout = given(devices, width, margin);
    else if (!many) layout = circle(devices, width, margin);
    else layout = grid(devices, width, margin);
    return layout;
  }

  function given(devices, width, margin) {
    const xs = devices.map(device => device.at[0]), ys = devices.map(device => device.at[1]);
    const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const wide = right - left, tall = high - low;
    const scale = (width - 2 * margin) / Math.max(wide, tall, 1e-9);
    const height = Math.max(90, Math.min(width, tall * scale + 2 * margin));
    const found = devices.map(device => ({
      x: width / 2 + (device.at[0] - (left + right) / 2) * scale,
      y: height / 2 - (device.at[1] - (low + high) / 2) * scale, height, r: radius(devices.length, width), named: devices.length <= CIRCLE,
    }));
    return apart(found, width, height, margin / 2);
  }

  // Move peers that would cover each other, or each other's names.
  function apart(found, width, height, margin) {
    const wide = found[0].named ? 2.6 * found[0].r + 26 : 2.2 * found[0].r, tall = found[0].named ? 2 * found[0].r + 26 : wide;
    const within = (v, most) => Math.min(Math.max(v, margin), most - margin);
    for (let turn = 0; turn < 60; turn += 1) {
      let moved = false;
      for (let a = 0; a < found.length; a += 1) for (let b = a + 1; b < found.length; b += 1) {
        const p = found[a], q = found[b], dx = (q.x - p.x) / wide, dy = (q.y - p.y) / tall, far = Math.hypot(dx, dy);
        if (far >= 1) continue;
        const [ux, uy] = far > 1e-6 ? [dx / far, dy / far] : [1, 0], by = (1 - far) / 2;
        [[p, -1], [q, 1]].forEach(([one, way]) => { one.x = within(one.x + way * ux * by * wide, width); one.y = within(one.y + way * uy * by * tall, height); });
        moved = true;
      }
      if (!moved) break;
    }
    return found;
  }

  function circle(devices, width, margin) {
    const height = Math.min(width, 420), rx = width / 2 - margin - 10, ry = height / 2 - margin + 8;
    return devices.map((device, at) => {
      const angle = 2 * Math.PI * at / devices.length - Math.PI / 2;
      return { x: width / 2 + rx * Math.cos(angle), y: height / 2 - 8 + ry * Math.sin(angle), height, r: radius(devices.length, width), named: true };
    });
  }

  // Dots in rows, a block for each class of devices with its name above.
  function grid(devices, width, margin) {
    const step = devices.length > 400 ? 15 : devices.length > 150 ? 20 : 32;
    const columns = Math.max(1, Math.floor((width - 2 * margin) / step));
    const groups = new Map();
    devices.forEach((device, at) => groups.set(device.group, [...(groups.get(device.group) ?? []), at]));
    const found = [];
    let y = margin;
    for (const [group, own] of groups) {
      if (groups.size > 1) y += 16;
      own.forEach((at, number) => {
        found[at] = { x: margin + step / 2 + (number % columns) * step, y: y + step / 2 + Math.floor(number / columns) * step,
          r: step * 0.3, named: false, group: number === 0 && groups.size > 1 ? `${group}: ${own.length}` : "" };
      });
      y += Math.ceil(own.length / columns) * step + 6;
    }
    found.forEach(place => { place.height = y + margin; place.rows = true; });
    return found;
  }

  const pairs = number => number > CIRCLE ? [] :
    Array.from({ length: number }, (_, a) => Array.from({ length: a }, (_, b) => [b, a])).flat();

  const radius = (number, width) => number <= 12 ? 14 : number <= CIRCLE ? 11 : Math.max(4, Math.min(9, width / number * 1.6));

  function overlay(svg, snapshot) {
    const width = Math.max(260, svg.clientWidth || 400);
    const at = places(snapshot.devices, width);
    const height = at.length ? at[0].height : 120;
    set(svg, { viewBox: `0 0 ${width} ${height}` });
    const edges = svg.children[0] ?? make("g", {}, svg), peers = svg.children[1] ?? make("g", {}, svg);
    const links = snapshot.links ?? pairs(at.length);  // none said: a full mesh
    each(edges, at.length && at[0].rows ? [] : links, () => make("line", { class: "edge" }), (line, [a, b]) =>
      set(line, { x1: at[a].x, y1: at[a].y, x2: at[b].x, y2: at[b].y }));
    each(peers, snapshot.devices, peer, (group, device, number) => place(group, device, at[number]));
    set(svg, { "aria-label": words(snapshot) });
  }

  function peer() {
    const group = make("g");
    make("title", {}, group);
    make("circle", { class: "ring" }, group);
    make("circle", { class: "peer" }, group);
    make("text", { class: "sign" }, group);
    make("text", { class: "name" }, group);
    make("text", { class: "soft" }, group);
    return group;
  }

  function place(group, device, at) {
    const [title, ring, dot, sign, name, heading] = group.children;
    const away = ["lost", "down", "left"].includes(device.status);
    const role = device.role === "aggregates" ? `aggregates term ${device.term}` : device.role === "waited" ? "is waited for" : "";
    set(group, { class: `${device.status} ${device.role}`, "data-peer": device.name });
    say(title, [device.name, device.group, device.status, role].filter(Boolean).join(", "));
    set(ring, { cx: at.x, cy: at.y, r: at.r + Math.min(5, 0.45 * at.r), "stroke-width": at.r < 7 ? 2 : 3 });
    set(dot, { cx: at.x, cy: at.y, r: at.r });
    set(sign, { x: at.x, y: at.y });
    say(sign, at.r < 7 ? "" : device.role === "aggregates" && !away ? "A" : SIGNS[device.status] ?? "");
    set(name, { x: at.x, y: at.y + at.r + 19 });
    say(name, at.named ? short(device.name) : "");
    set(heading, { x: at.x - at.r, y: at.y - at.r - 9 });
    say(heading, at.group ?? "");
  }

  const short = name => name.length > 14 ? `${name.slice(0, 13)}…` : name;

  function words(snapshot) {
    const count = {};
    for (const device of snapshot.devices) count[device.status] = (count[device.status] ?? 0) + 1;
    const statuses = Object.entries(count).map(([status, number]) => `${number} ${status}`).join(", ");
    const leader = snapshot.devices.find(device => device.role === "aggregates");
    return `${snapshot.devices.length} peers: ${statuses}${leader ? `; ${leader.name} aggregates` : ""}`;
  }

  function legend(list) {
    const shown = [["alive", "", "here"], ["alive aggregates", "A", "aggregates"], ["alive waited", "", "waited for"], ["lost", "✕", "gone"],
      ["paused", "‖", "paused"], ["asleep", "z", "asleep"], ["finished", "✓", "finished"]];
    for (const [kind, sign, text] of shown) {
      const item = list.appendChild(document.createElement("li"));
      const svg = make("svg", { viewBox: "-13 -13 26 26", "aria-hidden": "true" }, item);
      const group = make("g", { class: kind }, svg);
      make("circle", { class: "ring", r: 11, "stroke-width": 3 }, group);
      make("circle", { class: "peer", r: 7 }, group);
      make("text", { class: "sign" }, group).textContent = sign;
      item.append(text);
    }
  }

  // -- the time line ----------------------------------------------------------------------------------------------------

  const SHAPES = {
    election: "M0,-7 L7,6 L-7,6 Z", fault: "M-5,-5 L5,5 M-5,5 L5,-5", death: "M-5,-5 L5,5 M-5,5 L5,-5", return: "M-5,1 L-1,5 L6,-5",
    wait: "M-5,-6 H-1.5 V6 H-5 Z M1.5,-6 H5 V6 H1.5 Z", end: "M-4,-7 H8 L4,-3 L8,1 H-2 V7 H-4 Z",
  };
  const ROWS = { election: 0, fault: 1, death: 1, return: 1, wait: 1, end: 0 };

  function time(svg, snapshot) {
    const width = Math.max(260, svg.clientWidth || 800), left = 74, right = width - 18, height = 112;
    const last = Math.max(snapshot.player ? snapshot.player.end : snapshot.t, 0.001);
    const first = snapshot.player ? 0 : Math.max(0, Math.min(start(snapshot), last));
    const x = t => left + (right - left) * (t - first) / Math.max(last - first, 1e-9);
    set(svg, { viewBox: `0 0 ${width} ${height}` });
    if (!svg.children.length) {
      for (const kind of ["labels", "grid", "rounds", "marks", "now"]) make("g", { class: kind }, svg);
      [["elections", 18], ["faults", 46], ["rounds", 74]].forEach(([text, y]) => {
        make("text", { class: "soft", x: 0, y: y + 4 }, svg.children[0]).textContent = text;
      });
    }
    const [, gridLines, rounds, marks, now] = svg.children;
    each(gridLines, ticks(first, last, (right - left) / 90), () => {
      const tick = make("g");
      make("line", { class: "axis", y1: 4, y2: 92 }, tick);
      make("text", { class: "soft", y: 106, "text-anchor": "middle" }, tick);
      return tick;
    }, (tick, t) => {
      set(tick.children[0], { x1: x(t), x2: x(t) });
      set(tick.children[1], { x: x(t) });
      say(tick.children[1], seconds(t));
    });
    each(rounds, snapshot.rounds.filter(round => round.t >= first), () => make("line"), (line, round) =>
      set(line, { x1: x(round.t), x2: x(round.t), y1: 64, y2: 86, class: round.present < round.roster ? "round few" : "round" }));
    each(marks, snapshot.marks.filter(mark => mark.t >= first), () => {
      const path = make("path");
      make("title", {}, path);
      return path;
    }, (path, mark) => {
      set(path, { d: SHAPES[mark.kind], class: `mark-${mark.kind}`, transform: `translate(${x(mark.t).toFixed(1)},${ROWS[mark.kind] ? 46 : 18})`, "data-kind": mark.kind });
      say(path.firstChild, `${mark.t.toFixed(2)} s: ${mark.text}`);
    });
    each(now, snapshot.player ? [snapshot.player.t] : [], () => make("line", { stroke: "var(--ink)", y1: 0, y2: 94 }), (line, t) => set(line, { x1: x(t), x2: x(t) }));
  }

  // Nothing happens at first: a run begins shortly before its first job.
  function start(snapshot) {
    const known = [...snapshot.marks.map(mark => mark.t), ...snapshot.rounds.map(round => round.t)];
    return known.length ? Math.min(...known) - (snapshot.t - Math.min(...known)) * 0.03 : 0;
  }

  function ticks(first, last, most) {
    const rough = (last - first) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
    const step = [1, 2, 5, 10].map(by => by * power).find(by => by >= rough) ?? power * 10;
    const found = [];
    for (let t = Math.ceil(first / step) * step; t <= last && found.length < 40; t += step) found.push(t);
    return found;
  }

  function seconds(t) {
    if (t < 120) return `${Number(t.toPrecision(6))} s`;
    if (t < 7200) return `${Number((t / 60).toPrecision(4))} min`;
    return `${Number((t / 3600).toPrecision(4))} h`;
  }

  function timeLegend(list) {
    const shown = [["election", "election"], ["fault", "fault or death"], ["return", "back"], ["wait", "no majority"], ["end", "job ended"]];
    for (const [kind, text] of shown) {
      const item = list.appendChild(document.createElement("li"));
      const svg = make("svg", { viewBox: "-10 -10 20 20", "aria-hidden": "true" }, item);
      make("path", { d: SHAPES[kind], class: `mark-${kind}` }, svg);
      item.append(text);
    }
    const item = list.appendChild(document.createElement("li"));
    make("line", { class: "round few", x1: 0, x2: 0, y1: -8, y2: 8 }, make("svg", { viewBox: "-10 -10 20 20", "aria-hidden": "true" }, item));
    item.append("round without some peers");
  }

  // -- the centers, the association graph -------------------------------------------------------------------------------

  const frames = {};

  function plane(svg, found) {
    const width = Math.max(260, svg.clientWidth || 400), height = Math.min(width, 360), m = { left: 54, right: 14, top: 12, bottom: 42 };
    const [left, right, low, high] = wider(`${found.x} ${found.y} ${found.paths.length}`, found.box);
    const x = v => m.left + (width - m.left - m.right) * (v - left) / (right - left);
    const y = v => height - m.bottom - (height - m.top - m.bottom) * (v - low) / (high - low);
    set(svg, { viewBox: `0 0 ${width} ${height}` });
    if (!svg.children.length) ["axes", "trails", "centers"].forEach(kind => make("g", { class: kind }, svg));
    const [axes, trails, centers] = svg.children;
    const parts = [...ticks(left, right, 5).map(v => ["x", v]), ...ticks(low, high, 5).map(v => ["y", v]), ["name x", 0], ["name y", 0]];
    each(axes, parts, () => {
      const part = make("g");
      make("line", { class: "axis" }, part);
      make("text", { class: "soft" }, part);
      return part;
    }, (part, [kind, v]) => axis(part, kind, v, x, y, width, height, m, found));
    each(trails, found.paths, () => make("polyline", { class: "trail" }), (line, path, number) =>
      set(line, { points: path.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" "), stroke: colour(number) }));
    each(centers, found.paths, () => {
      const group = make("g");
      make("circle", { class: "center", r: 8 }, group);
      make("text", { "text-anchor": "middle", "dominant-baseline": "central" }, group);
      return group;
    }, (group, path, number) => {
      const [a, b] = path[path.length - 1];
      set(group.children[0], { cx: x(a), cy: y(b), fill: colour(number) });
      set(group.children[1], { x: x(a), y: y(b), class: "on" });
      say(group.children[1], String(number));
    });
  }

  // The frame grows and never shrinks, so that the picture does not jump.
  function wider(key, [left, right, low, high]) {
    const pad = (a, b) => (b - a || Math.abs(a) || 1) * 0.08;
    const now = [left - pad(left, right), right + pad(left, right), low - pad(low, high), high + pad(low, high)];
    const before = frames[key];
    if (before && before[0] <= left && before[1] >= right && before[2] <= low && before[3] >= high) return before;
    frames[key] = now;
    return now;
  }

  function axis(part, kind, v, x, y, width, height, m, found) {
    const [line, text] = part.children;
    if (kind === "x") {
      set(line, { x1: x(v), x2: x(v), y1: m.top, y2: height - m.bottom });
      set(text, { x: x(v), y: height - m.bottom + 15, "text-anchor": "middle", transform: "" });
      say(text, String(Number(v.toPrecision(6))));
    } else if (kind === "y") {
      set(line, { x1: m.left, x2: width - m.right, y1: y(v), y2: y(v) });
      set(text, { x: m.left - 6, y: y(v) + 4, "text-anchor": "end", transform: "" });
      say(text, String(Number(v.toPrecision(6))));
    } else {
      const middle = (height - m.bottom + m.top) / 2;
      set(line, { x1: 0, x2: 0, y1: 0, y2: 0 });
      set(text, kind === "name x" ? { x: (width + m.left - m.right) / 2, y: height - 6, "text-anchor": "middle", transform: "" }
        : { x: 0, y: 0, "text-anchor": "middle", transform: `translate(12,${middle}) rotate(-90)` });
      say(text, kind === "name x" ? found.x : found.y);
    }
  }

  function graph(svg, found) {
    const width = Math.max(260, svg.clientWidth || 400), height = Math.min(width, 400);
    set(svg, { viewBox: `0 0 ${width} ${height}` });
    if (!svg.children.length) ["links", "nodes", "names"].forEach(kind => make("g", { class: kind }, svg));
    const [links, nodes, names] = svg.children;
    const number = found.peers.length, rx = width / 2 - 74, ry = height / 2 - 34;
    const owners = [...new Set(found.peers)], gap = 0.7; // in nodes, between peers
    const total = number + gap * owners.length;
    const angle = at => 2 * Math.PI * (at + gap * owners.indexOf(found.peers[at])) / total - Math.PI / 2;
    const at = index => [width / 2 + rx * Math.cos(angle(index)), height / 2 + ry * Math.sin(angle(index))];
    const group = Array(number).fill(-1);
    found.groups.forEach((own, which) => own.forEach(index => { group[index] = which; }));
    each(links, found.links, () => make("line"), (line, [a, b]) => {
      const [x1, y1] = at(a), [x2, y2] = at(b);
      set(line, { x1, y1, x2, y2, stroke: group[a] >= 0 && group[a] === group[b] ? colour(group[a]) : "var(--link)", "stroke-width": 2 });
    });
    const r = Math.max(4, Math.min(11, 2 * Math.PI * Math.min(rx, ry) / total * 0.42));
    each(nodes, found.peers, () => {
      const node = make("g");
      make("title", {}, node);
      make("circle", { class: "center" }, node);
      make("text", { "text-anchor": "middle", "dominant-baseline": "central", class: "on" }, node);
      return node;
    }, (node, peer, index) => {
      const [x, y] = at(index);
      set(node.children[1], { cx: x, cy: y, r, fill: group[index] < 0 ? "var(--quiet)" : colour(group[index]) });
      set(node.children[2], { x, y });
      say(node.children[2], r < 7 || group[index] < 0 ? "" : letter(group[index]));
      say(node.children[0], `cluster ${index + 1}, of ${peer}${group[index] < 0 ? "" : `, community ${letter(group[index])}`}`);
    });
    each(names, number > 0 && owners.length <= 24 ? owners : [], () => make("text"), (text, owner) => {
      const own = found.peers.map((peer, index) => peer === owner ? index : -1).filter(index => index >= 0);
      const middle = (angle(own[0]) + angle(own[own.length - 1])) / 2;
      const [cos, sin] = [Math.cos(middle), Math.sin(middle)];
      set(text, { x: width / 2 + (rx + r + 8) * cos, y: height / 2 + (ry + r + 10) * sin + 4,
        "text-anchor": cos > 0.3 ? "start" : cos < -0.3 ? "end" : "middle" });
      say(text, short(owner));
    });
  }

  const letter = number => number < 26 ? String.fromCharCode(65 + number) : String(number + 1);

  return { colour, each, graph, legend, make, overlay, plane, say, seconds, set, time, timeLegend, dark };
})();
