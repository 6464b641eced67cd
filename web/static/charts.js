// Draws a chart once it comes into view, in the colours of the page, and again when they change.
"use strict";
(() => {
  const { plotly, plotlyStyles } = document.currentScript.dataset;
  const narrow = matchMedia("(max-width: 640px)");
  const NARROW_NAME = 46;
  let loading = null;

  // The page's policy forbids style elements. Plotly looks for its own by id and writes its rules
  // into their `sheet`, so it finds stand-ins, with a sheet that a script may adopt.
  const standInForStyles = () => {
    const sheet = new CSSStyleSheet();
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    for (const id of plotlyStyles.split(" ")) {
      const standIn = document.createElement("template");
      standIn.id = id;
      standIn.sheet = sheet;
      document.head.append(standIn);
    }
  };

  const loadPlotly = () => {
    loading ??= new Promise((resolve, reject) => {
      standInForStyles();
      const script = document.createElement("script");
      script.src = plotly;
      script.onload = () => resolve(window.Plotly);
      script.onerror = () => reject(new Error("the chart library did not arrive"));
      document.head.append(script);
    });
    return loading;
  };

  // A property may hold two colours, of which an element in the page shows the one that counts.
  const probe = document.createElement("span");
  probe.hidden = true;
  const theme = () => {
    document.body.append(probe);
    return (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
  };

  const shadeOf = ({ paint, series } = {}, colour) => {
    if (paint === "series") return colour(`series-${series % 8}`);
    if (paint === "target") return colour("target");
    if (paint?.startsWith("vendor-")) return colour(paint);
    if (paint?.startsWith("status-")) return colour(paint.slice("status-".length));
    return colour("soft");
  };

  const paintTrace = (trace, colour) => {
    const shade = shadeOf(trace.meta, colour);
    if (trace.meta?.paint === "band") return { ...trace, fillcolor: colour("band"), line: { ...trace.line, width: 0 } };
    const marker = trace.marker && {
      ...trace.marker, color: shade, line: { ...trace.marker.line, color: shade },
    };
    const bars = trace.error_y && { error_y: { ...trace.error_y, color: shade } };
    // Names beside points need room that a phone has not.
    const mode = narrow.matches ? trace.mode?.replace("+text", "") : trace.mode;
    const textfont = { color: colour("ink"), size: 14 };
    return { ...trace, ...bars, mode, textfont, line: { ...trace.line, color: shade }, ...(marker && { marker }) };
  };

  // The end of a name often tells it apart.
  const short = (text) => text.length > NARROW_NAME ? `${text.slice(0, NARROW_NAME - 19)}…${text.slice(-18)}` : text;

  // On a narrow page the names of rows are lines of text above them.
  const hasNames = (layout) => narrow.matches && layout.yaxis?.ticktext?.some((text) => text.includes(". "));
  const namesOf = ({ ticktext, tickvals }, colour) => ticktext.map((text, at) => ({
    text: short(text.replaceAll("<br>", " ")), showarrow: false, xref: "paper", x: 0, y: tickvals[at],
    xanchor: "left", yshift: 22, font: { color: colour("soft"), size: 14 },
  }));

  const paintAxis = (axis, colour) => ({
    zeroline: false, ...axis, gridcolor: colour("grid"), zerolinecolor: colour("line"), linecolor: colour("edge"),
    tickcolor: colour("edge"), tickfont: { color: colour("soft") },
    title: { ...axis?.title, font: { color: colour("soft"), size: 14 } },
  });

  // On a narrow page the legend has up to a line for every name; the plot keeps its height.
  const heightOf = (layout, data) => {
    const named = data.filter((trace) => trace.visible !== false && trace.showlegend !== false);
    const names = named.reduce((lines, { name = "" }) => lines + name.split("<br>").length, 0);
    const room = hasNames(layout) ? 14 * layout.yaxis.ticktext.length : 0;
    return layout.height + room + (narrow.matches ? 19 * Math.max(names - 2, 0) : 0);
  };

  // A target is the finish line: two rows of squares.
  const finishLine = (shape, colour) => [["3px,3px", 1.5], ["0px,3px,3px,0px", -1.5]].map(([dash, at]) => ({
    ...shape, ysizemode: "pixel", yanchor: shape.y0, y0: at, y1: at,
    line: { width: 3, dash, color: colour("ink") }, label: undefined,
  }));

  // Its value stands at the line's end, outside of the plot.
  const valueOf = (shape, colour) => ({
    text: shape.label.text, showarrow: false, xref: "paper", x: 1, y: shape.y0,
    xanchor: "left", xshift: 4, font: { color: colour("ink"), size: 14, weight: 600 },
  });

  // The name of the vertical axis is a line of text above it.
  const nameOf = (axis, colour) => ({
    text: axis?.title?.text ?? "", showarrow: false, xref: "paper", yref: "paper", x: 0, y: 1,
    xanchor: "left", yanchor: "bottom", yshift: 8, font: { color: colour("soft"), size: 14 },
  });

  const paintLayout = (layout, data, colour) => ({
    ...layout,
    height: heightOf(layout, data),
    margin: { ...layout.margin, ...(layout.shapes?.length && { r: 56 }), ...(hasNames(layout) && { l: 8 }) },
    font: { family: getComputedStyle(document.body).fontFamily, size: 14, color: colour("ink") },
    xaxis: { showgrid: false, showline: true, ticks: "outside", ...paintAxis(layout.xaxis, colour) },
    yaxis: { ...paintAxis(layout.yaxis, colour), title: { text: "" }, nticks: 6, ...(hasNames(layout) && { showticklabels: false }) },
    annotations: [
      ...(hasNames(layout) ? namesOf(layout.yaxis, colour) : []), ...(layout.annotations ?? []), nameOf(layout.yaxis, colour),
      ...(layout.shapes ?? []).filter((shape) => shape.label).map((shape) => valueOf(shape, colour)),
    ],
    shapes: (layout.shapes ?? []).flatMap((shape) => finishLine(shape, colour)),
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
    if (!group) return;
    group.hidden = chart.views.length < 2;
    if (group.hidden) return;
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
  };

  // The page does not move when the chart is drawn.
  const keepRoom = (box) => {
    const group = box.querySelector(".views");
    if (group && "views" in box.dataset) group.hidden = false;
    if (box.dataset.height) box.querySelector(".plot").style.minHeight = `${box.dataset.height}px`;
  };

  const openEntry = (event) => {
    const address = event.points?.[0]?.customdata;
    if (typeof address === "string" && address.startsWith("/submissions/")) location.assign(address);
  };

  const say = (plot, sentence) => {
    const words = document.createElement("p");
    words.className = "soft";
    words.textContent = sentence;
    plot.classList.add("in-words");
    plot.style.minHeight = "";
    const group = plot.parentElement.querySelector(".views");
    if (group) group.hidden = true;
    plot.replaceChildren(words);
  };

  const addNote = (box, note) => {
    const place = box.querySelector(".note");
    if (note && place) place.textContent = ` ${note}`;
  };

  const onThemeChange = (redraw) => {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    matchMedia("print").addEventListener("change", redraw);  // A page is printed in the light colours.
    narrow.addEventListener("change", redraw);
    new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  };

  const figureOf = async ({ figure, chart }) => {
    if (figure) return JSON.parse(figure);
    const answer = await fetch(chart);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return answer.json();
  };

  const draw = async (box) => {
    const plot = box.querySelector(".plot");
    plot.setAttribute("aria-busy", "true");
    const [Plotly, figure] = await Promise.all([loadPlotly(), figureOf(box.dataset)]);
    const { views = [], note, empty } = figure.layout.meta ?? {};
    figure.layout.height = Number(box.dataset.height) || figure.layout.height;
    if ("small" in box.dataset) figure.layout.showlegend = false;
    plot.removeAttribute("aria-busy");
    addNote(box, note);
    if (empty) return say(plot, empty);
    const chart = { figure, views, view: views[0], revision: 0 };
    chart.redraw = () => {
      const colour = theme();
      const shown = oneView(chart.figure, chart.view);
      const layout = paintLayout({ ...shown.layout, datarevision: ++chart.revision }, shown.data, colour);
      return Plotly.react(plot, shown.data.map((t) => paintTrace(t, colour)), layout, {
        responsive: true, displayModeBar: false,
      });
    };
    plot.replaceChildren();
    await chart.redraw();
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", box.dataset.label);
    plot.on("plotly_click", openEntry);
    drawViews(box, chart);
    onThemeChange(() => chart.redraw());
    box.chart = chart;
    box.dispatchEvent(new CustomEvent("chartready"));
  };

  const drawOrSay = (box) => draw(box).catch((error) => {
    const plot = box.querySelector(".plot");
    plot.removeAttribute("aria-busy");
    say(plot, `The chart could not be drawn (${error.message}); the same figures are in the table.`);
  });

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      drawOrSay(entry.target);
    }
  }, { rootMargin: "200px" });
  const watch = () => {
    for (const box of document.querySelectorAll(":is([data-chart], [data-figure]):not([data-watched])")) {
      box.dataset.watched = "";
      keepRoom(box);
      watcher.observe(box);
    }
  };
  document.addEventListener("partsreplaced", watch); // A part of the page may bring a chart of its own.
  watch();

  // A link to something that is folded away opens it first.
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = target?.closest("details");
    if (fold) fold.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
})();
