// What a board's form is like with JavaScript: an address without empty fields, and a target that
// can be slid. Without it the same form works with its button.
"use strict";

const PAUSE_MS = 500;
const SLID = "finishline-target-slid";

for (const form of document.querySelectorAll(".more form")) {
  form.addEventListener("formdata", (event) => {
    const empty = [...event.formData].filter(([, value]) => value === "").map(([name]) => name);
    empty.forEach((name) => event.formData.delete(name));
  });
  const slider = form.querySelector("input[type=range]");
  if (slider) slideTarget(form, slider);
}

// How long submissions are still taken; without JavaScript the moment alone stands there.
for (const moment of document.querySelectorAll(".closes time")) {
  const minutes = Math.floor((new Date(moment.dateTime) - Date.now()) / 60_000);
  const [days, hours] = [Math.floor(minutes / 1440), Math.floor((minutes % 1440) / 60)];
  const left = days > 0 ? `${days} d ${hours} h` : `${hours} h ${minutes % 60} min`;
  moment.after(minutes >= 0 ? `, in ${left}` : ", closed");
}

function slideTarget(form, slider) {
  const number = form.elements.namedItem("target");
  const official = Number(slider.dataset.official);
  let waiting = 0;
  slider.hidden = false;
  number.addEventListener("input", () => {
    slider.value = number.value === "" ? official : number.value;
  });
  slider.addEventListener("input", () => {
    const isOfficial = Math.abs(Number(slider.value) - official) < Number(slider.step) / 2;
    number.value = isOfficial ? "" : slider.value;
    slider.setAttribute("aria-valuetext", isOfficial ? `${official}, official` : slider.value);
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      sessionStorage.setItem(SLID, location.pathname);
      form.requestSubmit();
    }, PAUSE_MS);
  });
  // Whoever slides with the keyboard goes on from where they were; going to a place in the page,
  // as the address asks, would take the focus away again.
  if (sessionStorage.getItem(SLID) === location.pathname) {
    slider.closest("details").open = true;
    addEventListener("load", () => slider.focus({ preventScroll: true }));
  }
  sessionStorage.removeItem(SLID);
}
