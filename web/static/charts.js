// Draws a chart once it comes into view, in the colours of the page, and again when they change.
"use strict";
(() => {
  const bundle = document.currentScript.dataset.plotly;
  let loading = null;

  const loadPlotly = () => {
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = bundle;
      script.onload = () => resolve(window.Plotly);
      script.onerror = () => reject(new Error("the chart library did not arrive"));
      document.head.append(script);
    });
    return loading;
  };

  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue(`--${name}`).trim();
  };

  const paintTrace = (trace, colour) => {
    const { paint, series } = trace.meta ?? {};
    if (paint === "band") return { ...trace, fillcolor: colour("band"), line: { ...trace.line, width: 0 } };
    let shade = colour("soft");
    if (paint === "series") shade = colour(`series-${series % 8}`);
    if (paint === "target") shade = colour("target");
    if (paint?.startsWith("status-")) shade = colour(paint.slice("status-".length));
    const marker = trace.marker && {
      ...trace.marker, color: shade, line: { ...trace.marker.line, color: shade },
    };
    return { ...trace, line: { ...trace.line, color: shade }, ...(marker && { marker }) };
  };

  const paintAxis = (axis, colour) => ({
    ...axis, gridcolor: colour("grid"), zerolinecolor: colour("line"), linecolor: colour("line"),
    tickfont: { color: colour("soft") }, title: { ...axis?.title, font: { color: colour("soft"), size: 13 } },
  });

  const paintLayout = (layout, colour) => ({
    ...layout,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") },
    xaxis: paintAxis(layout.xaxis, colour),
    yaxis: paintAxis(layout.yaxis, colour),
    shapes: (layout.shapes ?? []).map((shape) => ({
      ...shape,
      line: { ...shape.line, color: colour("target") },
      label: { ...shape.label, font: { color: colour("target"), size: 12 } },
    })),
    hoverlabel: { bgcolor: colour("surface"), bordercolor: colour("soft"), font: { color: colour("ink") }, align: "left" },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
  });

  const oneView = (figure, view) => {
    if (!view) return figure;
    const data = figure.data.map((t) => ({ ...t, visible: !t.meta?.view || t.meta.view === view.name }));
    const xaxis = { ...figure.layout.xaxis, title: { text: view.title } };
    return { data, layout: { ...figure.layout, xaxis } };
  };

  const drawViews = (box, chart) => {
    const group = box.querySelector(".views");
    if (!group || chart.views.length < 2) return;
    for (const view of chart.views) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = view.label;
      button.setAttribute("aria-pressed", String(view === chart.view));
      button.addEventListener("click", () => {
        chart.view = view;
        for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
        chart.redraw();
      });
      group.append(button);
    }
    group.hidden = false;
  };

  const openEntry = (event) => {
    const address = event.points?.[0]?.customdata;
    if (typeof address === "string" && address.startsWith("/submissions/")) location.assign(address);
  };

  const draw = async (box) => {
    const plot = box.querySelector(".plot");
    const [Plotly, answer] = await Promise.all([loadPlotly(), fetch(box.dataset.chart)]);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const figure = await answer.json();
    const views = figure.layout.meta?.views ?? [];
    const chart = { figure, views, view: views[0], revision: 0 };
    chart.redraw = () => {
      const colour = theme();
      const shown = oneView(chart.figure, chart.view);
      const layout = paintLayout({ ...shown.layout, datarevision: ++chart.revision }, colour);
      return Plotly.react(plot, shown.data.map((t) => paintTrace(t, colour)), layout,
        { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] });
    };
    plot.replaceChildren();
    await chart.redraw();
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", box.dataset.label);
    plot.on("plotly_click", openEntry);
    drawViews(box, chart);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.redraw());
    box.chart = chart;
    box.dispatchEvent(new CustomEvent("chartready"));
  };

  const drawOrSay = (box) => draw(box).catch((error) => {
    const words = document.createElement("p");
    words.className = "soft";
    words.textContent = `The chart could not be drawn (${error.message}); the same figures are in the table.`;
    box.querySelector(".plot").replaceChildren(words);
  });

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      drawOrSay(entry.target);
    }
  }, { rootMargin: "200px" });
  const watch = () => {
    for (const box of document.querySelectorAll("[data-chart]:not([data-watched])")) {
      box.dataset.watched = "";
      watcher.observe(box);
    }
  };
  document.addEventListener("partsreplaced", watch); // A part of the page may bring a chart of its own.
  watch();

  // A link to a table that is folded away opens it first.
  const unfold = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) target.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
})();
