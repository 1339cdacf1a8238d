"""How a page looks, on a light and on a dark screen and on paper; and the few lines that let it be touched."""

from __future__ import annotations

from typing import Final

from p2pclust.scenario.pictures.palette import CROWN, CURVE, DARK, VARIABLES

__all__ = ["SCRIPT", "STYLE"]

# The colours of the pictures as they are, and for a dark page a little lighter where they would sink into it.
_NUMBERED: Final = {
    colour: name for colour, name in VARIABLES.items() if name[-1].isdigit() or colour in (CROWN, CURVE)
}
_LIGHT: Final = "; ".join(f"--{name}: {colour}" for colour, name in _NUMBERED.items())
_DARK: Final = "; ".join(f"--{VARIABLES[colour]}: {lighter}" for colour, lighter in DARK.items())

STYLE: Final = (
    """
:root { color-scheme: light dark; --paper: #fefefe; --ink: #2a2a2a; --soft: #5c5c5c; --link: #777777; --alone: #b5b5b5;
        --wrong: #c62828; --good: #2e7d32; --line: #d8d8d8; --tint: #f4f5f7; --accent: #1a4f8b; """
    + _LIGHT
    + """ }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #e4e4e4; --soft: #a8a8a8; --link: #9a9a9a;
        --alone: #6d6d6d; --wrong: #ff6b6b; --good: #66bb6a; --line: #3a3d43; --tint: #20242a; --accent: #8db8ec; """
    + _DARK
    + """ } }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem;
       margin: 1.5rem auto; padding: 0 1rem 3rem; overflow-wrap: break-word }
h1 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 0.2rem } h2 { font-size: 1.2rem; margin: 2.4rem 0 0.4rem }
section { border-top: 1px solid var(--line); margin-top: 1.6rem } section h2 { margin-top: 1rem }
@media (min-width: 62rem) { .pair { display: grid; grid-template-columns: minmax(0, 1.1fr) minmax(0, 1fr); gap: 0 2rem } }
p { margin: 0.3rem 0; max-width: 54rem } .facts, .about { color: var(--soft) } .about { font-size: 0.88rem }
a { color: var(--accent) } nav { margin: 0.8rem 0; font-size: 0.9rem; display: flex; flex-wrap: wrap; gap: 0.2rem 1rem }
.alarm { border-left: 5px solid var(--wrong); background: var(--tint); padding: 0.6rem 0.9rem; font-weight: 600;
         max-width: none }
.tiles { list-style: none; display: flex; flex-wrap: wrap; gap: 0.6rem; padding: 0; margin: 1rem 0 }
.tiles li { background: var(--tint); border-radius: 8px; padding: 0.5rem 0.9rem; border-left: 4px solid var(--line) }
.tiles b { display: block; font-size: 1.3rem; line-height: 1.3; font-variant-numeric: tabular-nums }
.tiles span { color: var(--soft); font-size: 0.85rem }
.tiles .good { border-left-color: var(--good) } .tiles .bad { border-left-color: var(--wrong) }
.tiles .bad b { color: var(--wrong) }
.figures { display: flex; flex-wrap: wrap; gap: 0.5rem 2rem; align-items: flex-start }
figure { margin: 0.6rem 0 1.2rem; width: 100% } .wide { overflow-x: auto }
img { max-width: 100%; height: auto; display: block; background: #fff }
.drawing { display: block; max-width: 100%; height: auto; overflow: visible } .drawing * { stroke-linejoin: round }
.drawing text { fill: var(--ink); font-family: system-ui, sans-serif }
.halo text { paint-order: stroke; stroke: var(--paper); stroke-width: 3px }
.narrow { height: 0; overflow: hidden; visibility: hidden }
@media (max-width: 44rem) { .broad .drawing { max-width: none; min-width: 36rem }
  .either .wide { height: 0; overflow: hidden; visibility: hidden }
  .either .narrow { height: auto; overflow: visible; visibility: visible } }
figcaption { color: var(--soft); font-size: 0.88rem; max-width: 54rem; margin-top: 0.2rem }
details { margin: 0.5rem 0 } summary { cursor: pointer; color: var(--accent) }
.table { overflow-x: auto; margin: 0.6rem 0 } table { border-collapse: collapse; font-size: 0.86rem }
th, td { padding: 0.2rem 1rem 0.2rem 0; text-align: left; vertical-align: top; white-space: nowrap }
th { border-bottom: 1px solid var(--link); font-weight: 600 } tbody tr:nth-child(even) { background: var(--tint) }
td { font-variant-numeric: tabular-nums }
.verdicts td:nth-child(2), .said td:last-child { white-space: normal }
.said td:last-child { min-width: 16rem } .verdicts td:first-child { font-weight: 600 }
.good td:first-child { color: var(--good) } .bad td:first-child { color: var(--wrong) } .bad td { font-weight: 600 }
.slider { display: flex; align-items: center; gap: 0.8rem; font-size: 0.88rem; color: var(--soft); margin: 0.3rem 0;
          max-width: 44rem }
.slider input { flex: 1; accent-color: var(--accent) }
.slider output { min-width: 7.5rem; font-variant-numeric: tabular-nums }
.cursor { visibility: hidden } .moving .cursor { visibility: visible }
[data-peer] { transition: opacity 0.1s } .pointed [data-peer] { opacity: 0.25 } .pointed [data-peer].own { opacity: 1 }
.dots:hover path, .curve:hover path { stroke-opacity: 1; opacity: 1 } .curve:hover path { stroke-width: 3.5px }
@media print { body { font-size: 11px; margin: 0; max-width: none } nav, .slider { display: none }
  .figures, figure { break-inside: avoid } .step[hidden] { display: block !important }
  .tiles li { border: 1px solid var(--line) } }
"""
)

#: Choosing a step, choosing a moment, pointing at a peer. Without it everything is seen at once.
SCRIPT: Final = """
"use strict";
const all = (where, what) => [...where.querySelectorAll(what)];
for (const slider of all(document, "input.choose")) {
  const box = slider.closest(".steps"), steps = all(box, ".step");
  const show = () => {
    steps.forEach((step, n) => { step.hidden = n + 1 !== +slider.value; });
    slider.nextElementSibling.textContent = `${slider.value} of ${slider.max}`;
  };
  slider.addEventListener("input", show);
  show();
}
for (const slider of all(document, "input.moment")) {
  const spans = text => text.split(" ").map(span => span.split(":").map(Number));
  const parts = all(slider.closest("figure"), "[data-when]").map(part => [part, spans(part.dataset.when)]);
  slider.addEventListener("input", () => {
    const t = +slider.value, whole = t >= +slider.max;
    for (const [part, when] of parts) part.style.display = whole || when.some(([a, b]) => a <= t && t < b) ? "" : "none";
    slider.nextElementSibling.textContent = whole ? "the whole run" : `${t.toFixed(2)} s`;
    document.body.classList.toggle("moving", !whole);
    for (const cursor of all(document, ".cursor")) {
      const span = cursor.ownerSVGElement.querySelector(".span").getBBox();
      cursor.setAttribute("transform", `translate(${span.width * t / +slider.max} 0)`);
    }
  });
}
const point = event => {
  const peer = event.target.closest?.("[data-peer]")?.dataset.peer;
  document.body.classList.toggle("pointed", peer !== undefined);
  for (const part of all(document, "[data-peer]")) part.classList.toggle("own", part.dataset.peer === peer);
};
document.addEventListener("mouseover", point);
"""
