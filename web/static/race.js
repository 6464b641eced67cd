// Replays a race lane by lane; while it is run, fetches the server's own lanes again.
"use strict";
(() => {
  const race = document.getElementById("race");
  if (!race) return;
  const SECONDS_OF_REPLAY = 10;
  const LIVE_SECONDS = 2;
  const seconds = Number(race.dataset.seconds);
  const controls = race.querySelector(".playing");
  const lanes = () => [...race.querySelectorAll(".lane")].map((lane) => {
    const bar = lane.querySelector("rect");
    const words = lane.querySelector("b");
    words.dataset.end ??= words.textContent;
    return { bar, words, end: Number(bar.dataset.percent) };
  });

  const show = (share) => {
    for (const { bar, words, end } of lanes()) {
      bar.setAttribute("width", `${Math.min(100 * share, end)}%`);
      words.textContent = 100 * share >= end ? words.dataset.end : "…";
    }
    controls.querySelector("input").value = String(1000 * share);
    controls.querySelector("output").textContent = `${(seconds * share).toPrecision(3)}\u00a0s`;
  };

  const play = () => {
    const start = performance.now();
    const frame = (now) => {
      const share = Math.min((now - start) / (1000 * SECONDS_OF_REPLAY), 1);
      show(share);
      if (share < 1) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  };

  if (controls && !race.dataset.live) {
    controls.hidden = false;
    controls.querySelector("button").addEventListener("click", play);
    controls.querySelector("input").addEventListener("input", (event) => show(event.target.value / 1000));
  }

  const refresh = async () => {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("race");
    if (!fresh.dataset.live) return location.reload();
    race.replaceChildren(...fresh.childNodes);
  };
  if (race.dataset.live) {
    setInterval(() => document.hidden || refresh().catch(() => {}), 1000 * LIVE_SECONDS);
  }
})();
