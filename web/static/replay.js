// Follows a verification: evaluations fill chart and tables, a change of state fetches the page's own parts.
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live?.dataset.events) return;
  const box = document.getElementById("chart");
  const expected = Number(live.dataset.expected) || null;
  const PHASES = {
    init: "starting", compile: "compiling", warmup: "warming up", data: "reading the data", train: "training",
    eval: "evaluating", checkpoint: "saving a checkpoint",
  };
  const QUEUE_SECONDS = 5;
  const TABLES_SECONDS = 10; // The server writes the tables: not for every evaluation of each reader.
  const QUIET_SECONDS = 4; // Between two announcements: a reader is not talked over.
  const LONGEST_RETRY_SECONDS = 30;
  const runs = new Map();
  let attempt = null;
  let sequence = -1;
  let state = live.dataset.state;
  let latest = null;
  let waiting = false;
  let tablesAt = -Infinity;

  const trimmed = (value, digits) => String(Number(value.toFixed(digits)));
  const quality = (value) => {
    const text = trimmed(value, 3);
    if (live.dataset.unit === "percent") return `${text}\u00a0%`;
    return live.dataset.unit === "fraction" ? text : `${text}\u00a0${live.dataset.unit}`;
  };
  const seconds = (value) => `${value.toFixed(3)}\u00a0s`;

  const fillChart = () => {
    const chart = box?.chart;
    if (!chart) return;
    const { scale = 1 } = chart.figure.layout.meta;
    for (const trace of chart.figure.data) {
      if (trace.meta?.run === undefined) continue;
      const points = runs.get(trace.meta.run)?.points ?? [];
      trace.x = points.map((point, place) => (trace.meta.view === "seconds" ? point.seconds / scale : place + 1));
      trace.y = points.map((point) => point.quality);
    }
    chart.redraw();
  };

  const fillTables = () => {
    const left = tablesAt + 1000 * TABLES_SECONDS - performance.now();
    if (left <= 0) {
      tablesAt = performance.now();
      refresh(["runs", "steps", "evaluations"]).catch(() => {});
    } else if (!fillTables.later) {
      fillTables.later = setTimeout(() => {
        fillTables.later = null;
        if (state !== "ended") fillTables();
      }, left);
    }
  };

  const fill = () => {
    if (waiting || attempt === null) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      fillChart();
      if (state === "ended") return;
      tellProgress();
      fillTables();
      announce();
    });
  };

  // What is read aloud: the latest evaluation, not too often, and the end of each run.
  const announcer = document.getElementById("announcer");
  let announcedAt = -Infinity;
  const announce = () => {
    const run = runs.get(latest?.run);
    if (!run || (run.status === null && performance.now() - announcedAt < 1000 * QUIET_SECONDS)) return;
    announcedAt = performance.now();
    const end = run.status ? ` The run has ended: ${run.status.replaceAll("_", " ")}.` : "";
    announcer.textContent = `Run ${latest.run + 1}, evaluation ${run.points.length}: ${quality(latest.quality)} after ${seconds(latest.seconds)}.${end}`;
  };

  // The time that is left counts the part of the run under way: it is known during the first one.
  const { title } = document;
  const soFar = document.getElementById("so-far");
  const planned = Number(live.dataset.runs) || 1;
  const started = Date.parse(live.dataset.started) || Date.now();
  const tellProgress = () => {
    if (state !== "running") return;
    const ended = [...runs.values()].filter((run) => run.status !== null);
    const current = [...runs].find(([, run]) => run.status === null);
    const count = current?.[1].points.length ?? 0;
    const share = Math.min((ended.length + (expected ? Math.min(count / expected, 0.95) : 0)) / planned, 1);
    const number = Math.min((current?.[0] ?? ended.length) + 1, planned);
    const doing = [count && `evaluation ${count}, ${quality(latest.quality)}`, current?.[1].phase].filter(Boolean);
    const left = share > 0.02 ? ((Date.now() - started) / 1000) * (1 / share - 1) : 0;
    const words = [
      `run ${number} of ${planned}`, doing.join(", ") || "preparing",
      `${ended.filter((run) => run.status === "reached").length} reached`, `${ended.length} of ${planned} ended`,
      left < 90 ? `${Math.ceil(left)} s` : `${Math.ceil(left / 60)} min`, "at the pace so far",
    ];
    soFar.querySelectorAll("dd").forEach((fact, place) => { fact.textContent = words[place]; });
    soFar.hidden = false;
    soFar.lastElementChild.hidden = !left;
    document.title = `${latest ? `${quality(latest.quality)} · ` : ""}run ${number}/${planned}`;
  };

  const startOver = (number) => {
    [attempt, sequence, latest] = [number, -1, null];
    runs.clear();
    tablesAt = -Infinity;
  };

  const take = (event) => {
    if (attempt !== null && event.attempt < attempt) return; // Of an attempt that was given up.
    if (event.attempt !== attempt) startOver(event.attempt);
    if (event.sequence <= sequence) return; // Sent twice, after a lost connection.
    sequence = event.sequence;
    if (!runs.has(event.run)) runs.set(event.run, { points: [], status: null, phase: null });
    const run = runs.get(event.run);
    if (event.kind === "evaluation") {
      run.points.push(event);
      run.phase = null;
      latest = event;
    }
    if (event.kind === "phase") run.phase = PHASES[event.phase] ?? event.phase;
    if (event.kind === "run_finished") run.status = event.status;
    fill();
  };

  const takeState = (view) => {
    state = live.dataset.state = view.state;
    const newest = view.attempts.at(-1)?.number ?? 1;
    if (attempt !== null && newest > attempt) {
      startOver(newest);
      fill();
    }
    refresh(["badge", "headline", "ratio", "now", "steps", "waiting", "attempts"]).catch(() => {});
  };

  // The server's own HTML is the one source of words: its parts replace ours. Of two answers to
  // what was asked one after the other, the earlier may come last: it replaces nothing.
  let asked = 0;
  const newest = new Map();
  const refresh = async (names) => {
    const number = (asked += 1);
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.querySelector(`[data-live="${part.dataset.live}"]`);
      if (!fresh || !names.includes(part.dataset.live)) continue;
      if (number < (newest.get(part.dataset.live) ?? 0)) continue;
      newest.set(part.dataset.live, number);
      part.replaceChildren(...fresh.childNodes);
    }
    document.dispatchEvent(new CustomEvent("partsreplaced"));
  };

  const connection = document.getElementById("connection");
  let lostAt = null;
  const say = (words, isBack = false) => {
    connection.textContent = words;
    connection.hidden = !words;
    connection.classList.toggle("is-back", isBack);
  };
  const sayLost = () => {
    lostAt ??= new Date();
    say(`The connection was lost at ${lostAt.toLocaleTimeString()}. What is shown is as of then; it goes on by itself once the server is back.`);
  };
  const sayBack = () => {
    if (lostAt === null) return;
    lostAt = null;
    say("The connection is back; nothing was missed.", true);
    setTimeout(() => lostAt === null && say(""), 1000 * QUIET_SECONDS);
  };

  const ALL = ["badge", "headline", "ratio", "now", "reasons", "waiting", "attempts", "runs", "evaluations", "seal", "head_to_head", "backends", "measured", "proof"];
  const finish = (tries = 0) => {
    state = "ended";
    document.title = title;
    for (const part of document.querySelectorAll("#so-far, .next-steps")) part.remove();
    announcer.textContent = "";
    refresh(ALL).catch(() => {
      if (tries >= 5) say("The verification has ended. Reload the page to read its verdict.");
      else setTimeout(() => finish(tries + 1), 1000 * 2 ** tries);
    });
  };

  // A browser connects again by itself and says where it stopped; after an answer that is an error
  // it gives up, so that is tried again here. What comes twice is left out by its number.
  let retrySeconds = 1;
  const follow = () => {
    const source = new EventSource(live.dataset.events);
    source.addEventListener("open", () => {
      retrySeconds = 1;
      sayBack();
    });
    source.addEventListener("replay", (message) => take(JSON.parse(message.data)));
    source.addEventListener("state", (message) => takeState(JSON.parse(message.data)));
    source.addEventListener("end", () => {
      source.close();
      finish();
    });
    source.addEventListener("error", () => {
      sayLost();
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(follow, 1000 * retrySeconds);
      retrySeconds = Math.min(2 * retrySeconds, LONGEST_RETRY_SECONDS);
    });
  };

  follow();
  setInterval(() => {
    if (state === "queued" && lostAt === null && !document.hidden) refresh(["waiting"]).catch(() => {});
  }, 1000 * QUEUE_SECONDS);
  box?.addEventListener("chartready", fill);
})();
