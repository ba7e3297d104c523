// Keys, the slider of turns and live pages. Every page works without it.
"use strict";
addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const found = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!found) return;
  event.preventDefault();
  found.matches("input") ? found.focus() : found.click();
});
for (const slider of document.querySelectorAll("input[type=range]")) {
  slider.addEventListener("input", () => { slider.nextElementSibling.value = slider.value; });
  slider.addEventListener("change", () => slider.form.requestSubmit());
}
for (const line of document.querySelectorAll("[data-lights]")) {
  const sources = line.dataset.lights.split(" ").map((id) => id && document.getElementById(id)).filter(Boolean);
  const light = (on) => sources.forEach((message) => message.classList.toggle("lit", on));
  for (const [kind, on] of [["mouseenter", true], ["focusin", true], ["mouseleave", false], ["focusout", false]]) {
    line.addEventListener(kind, () => light(on));
  }
}
const live = document.querySelector("[data-live]");
live?.addEventListener("click", () => {
  live.setAttribute("aria-pressed", String(live.getAttribute("aria-pressed") !== "true"));
});
if (live) setInterval(async () => {
  const swap = document.querySelector("[data-swap]");
  const isBusy = document.hidden || swap.contains(document.activeElement);
  if (live.getAttribute("aria-pressed") !== "true" || isBusy) return;
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.querySelector("[data-swap]");
  if (fresh && fresh.outerHTML !== swap.outerHTML) swap.replaceWith(fresh);
}, 3000);
