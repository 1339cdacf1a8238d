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
