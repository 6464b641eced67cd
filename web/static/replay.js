// Follows a verification: evaluations fill chart and tables, a change of state fetches the page's own parts.
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live?.dataset.events) return;
  const box = document.getElementById("chart");
  const expected = Number(live.dataset.expected) || null;
  const runs = new Map();
  let attempt = null;
  let sequence = -1;
  let waiting = false;

  const quality = (value) => {
    const text = String(Number(value.toFixed(3)));
    if (live.dataset.unit === "percent") return `${text}\u00a0%`;
    return live.dataset.unit === "fraction" ? text : `${text}\u00a0${live.dataset.unit}`;
  };
  const seconds = (value) => (value === null ? "–" : `${value.toFixed(3)}\u00a0s`);

  const fillRun = (index, run) => {
    const row = document.querySelector(`#run-rows tr[data-run="${index}"]`);
    if (!row) return;
    const last = run.points.at(-1);
    const [, , count, time, best, status] = row.cells;
    const bar = row.querySelector("progress");
    if (run.status) bar.max = bar.value = 1;
    else if (expected) [bar.max, bar.value] = [expected, Math.min(run.points.length, expected - 0.5)];
    else bar.removeAttribute("value");
    count.textContent = String(run.points.length);
    time.textContent = seconds(last?.seconds ?? null);
    best.textContent = last ? quality(last.quality) : "–";
    status.textContent = run.status?.replaceAll("_", " ") ?? run.phase ?? "training";
  };

  const fillTable = () => {
    const rows = document.getElementById("evaluation-rows");
    const bands = bandsOf();
    rows.replaceChildren(...[...runs].flatMap(([index, run]) => run.points.map((point, place) => {
      const row = document.createElement("tr");
      const band = bands.get(place + 1);
      const texts = [`Run ${index + 1}`, place + 1, point.epoch ?? "–", seconds(point.seconds),
        quality(point.quality), band ? `${+band[0].toFixed(3)} to ${+band[1].toFixed(3)}` : "–"];
      texts.forEach((text, column) => {
        const cell = row.insertCell();
        cell.textContent = String(text);
        if (column) cell.className = "r num";
      });
      return row;
    })));
  };

  const bandsOf = () => {
    const [lower, upper] = (box?.chart?.figure.data ?? []).filter((t) => t.meta?.paint === "band");
    return new Map((upper?.x ?? []).map((index, at) => [index, [lower.y[at], upper.y[at]]]));
  };

  const fillChart = () => {
    const chart = box?.chart;
    if (!chart) return;
    for (const trace of chart.figure.data) {
      if (trace.meta?.paint !== "series") continue;
      const points = runs.get(trace.meta.run)?.points ?? [];
      trace.x = points.map((point, place) => (trace.meta.view === "seconds" ? point.seconds : place + 1));
      trace.y = points.map((point) => point.quality);
    }
    chart.redraw();
  };

  const fill = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      for (const [index, run] of runs) fillRun(index, run);
      fillTable();
      fillChart();
    });
  };

  const take = (event) => {
    const again = event.attempt !== attempt || event.sequence === 0;
    if (!again && event.sequence <= sequence) return; // Sent twice, after a lost connection.
    if (again) runs.clear();
    ({ attempt, sequence } = event);
    if (!runs.has(event.run)) runs.set(event.run, { points: [], status: null, phase: null });
    const run = runs.get(event.run);
    if (event.kind === "evaluation") run.points.push(event);
    if (event.kind === "phase") run.phase = event.phase;
    if (event.kind === "evaluation") run.phase = "training";
    if (event.kind === "run_finished") run.status = event.status;
    fill();
  };

  // The server's own HTML is the one source of words: its parts replace ours.
  const refresh = async (names) => {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.querySelector(`[data-live="${part.dataset.live}"]`);
      if (fresh && names.includes(part.dataset.live)) part.replaceChildren(...fresh.childNodes);
    }
    document.dispatchEvent(new CustomEvent("partsreplaced"));
  };

  const connection = document.getElementById("connection");
  const say = (words) => {
    connection.textContent = words;
    connection.hidden = !words;
  };

  const source = new EventSource(live.dataset.events);
  source.addEventListener("open", () => say(""));
  source.addEventListener("replay", (message) => take(JSON.parse(message.data)));
  source.addEventListener("state", () => refresh(["badge", "state", "attempts"]).catch(() => {}));
  source.addEventListener("end", () => {
    source.close();
    refresh(["badge", "state", "attempts", "runs", "evaluations", "seal", "duel"])
      .catch(() => say("The verification has ended. Reload the page to read its verdict."));
  });
  source.addEventListener("error", () => {
    if (source.readyState !== EventSource.CLOSED) say("The connection was lost and is being made again …");
    else say("The connection was closed by the server. Reload the page to go on.");
  });
  box?.addEventListener("chartready", fill);
})();
