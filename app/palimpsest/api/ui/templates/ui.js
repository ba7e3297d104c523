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
// A live page asks again after 3 s, or twenty times what its last answer took, and is told 304 while nothing
// has changed. Of a new version only the regions that differ are put in place.
const live = document.querySelector("[data-live]");
live?.addEventListener("click", () => {
  live.setAttribute("aria-pressed", String(live.getAttribute("aria-pressed") !== "true"));
});
const regions = new Map([...document.querySelectorAll("[data-swap]")].map((one) => [one.dataset.swap, one.outerHTML]));
async function look() {
  const answer = await fetch(location.href, { headers: { "if-none-match": live.dataset.live } }).catch(() => null);
  if (answer?.status !== 404 && !answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok) {
    document.title = page.title;
    document.querySelector("main").replaceWith(page.querySelector("main"));
    return;
  }
  let isWhole = true;
  for (const fresh of page.querySelectorAll("[data-swap]")) {
    const name = fresh.dataset.swap, text = fresh.outerHTML;
    if (text === regions.get(name)) continue;
    const old = document.querySelector(`[data-swap="${name}"]`);
    if (old.contains(document.activeElement)) { isWhole = false; continue; }
    for (const one of old.querySelectorAll("details[id][open]")) fresh.querySelector(`#${CSS.escape(one.id)}`)?.setAttribute("open", "");
    old.replaceWith(fresh);
    regions.set(name, text);
  }
  if (isWhole) live.dataset.live = page.querySelector("[data-live]").dataset.live;
}
async function keep() {
  const began = performance.now();
  if (!document.hidden && live.getAttribute("aria-pressed") === "true") await look();
  if (live.isConnected) setTimeout(keep, Math.max(3000, 20 * (performance.now() - began)));
}
if (live) setTimeout(keep, 3000);
