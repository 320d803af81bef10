// Draws the views of the explorer from the numbers in the page; explorer.py says what they are.
"use strict";
(() => {
  const element = (id) => document.getElementById(id);
  const data = JSON.parse(element("explorer-data").textContent);
  const CONFIG = { displayModeBar: false, responsive: true };
  // Chains differ in shape as well as in colour.
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star"];
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const isStill = matchMedia("(prefers-reduced-motion: reduce)");
  const isTouched = matchMedia("(pointer: coarse)");

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const deviation = (values) => Math.sqrt(mean(values.map((value) => (value - mean(values)) ** 2)));
  const quantile = (values, share) => {
    const sorted = [...values].sort((a, b) => a - b);
    const place = share * (sorted.length - 1);
    const below = Math.floor(place);
    const above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
  };
  const range = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const margin = 0.06 * (high - low) || 1;
    return [low - margin, high + margin];
  };
  const short = (value, decimals = 2) => value.toFixed(decimals).replace("-", "−");

  const ofPage = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  // Lighter in the dark, where the colours of the figures would sink into the page.
  const tinted = (colour) => {
    if (!isDark.matches) return colour;
    const parts = [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
    return `rgb(${parts.map((part) => Math.round(part + 0.35 * (255 - part))).join(", ")})`;
  };
  const palette = () => data.palette.map(tinted);

  // One look for all plots, in the colours of the page.
  const themed = ({ xaxis, yaxis, ...rest }) => {
    const rule = ofPage("rule");
    const axis = { gridcolor: rule, zerolinecolor: rule, linecolor: rule, automargin: true };
    return {
      paper_bgcolor: "rgba(0, 0, 0, 0)",
      plot_bgcolor: "rgba(0, 0, 0, 0)",
      font: { family: "system-ui, sans-serif", size: 13, color: ofPage("ink") },
      margin: { l: 55, r: 10, t: 30, b: 45 },
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" },
      // A finger that moves over a plot scrolls the page.
      dragmode: isTouched.matches ? false : "zoom",
      xaxis: { ...axis, ...xaxis },
      yaxis: { ...axis, ...yaxis },
      ...rest,
    };
  };
  const tell = (view, words) => {
    element(`${view}-reading`).textContent = words;
    element(`${view}-plot`).setAttribute("aria-label", words);
  };
  const draw = (view, { traces, layout, words }) => {
    tell(view, words);
    return Plotly.react(`${view}-plot`, traces, themed(layout), CONFIG);
  };
  const fill = (id, names) =>
    element(id).replaceChildren(...names.map((name, index) => new Option(name, String(index))));
  const chosen = (id) => Number(element(id).value);
  const onChange = (id, react) => element(id).addEventListener("change", react);

  // Two weights over the draws.
  const pair = () => {
    const layer = data.layers[chosen("layer")];
    const [x, y] = [chosen("weight-x"), chosen("weight-y")];
    const state = document.querySelector("input[name=state]:checked").value;
    const traces = data.colours.map((colour, chain) => {
      const ofChain = (weight) => layer[state][weight].filter((_, draw) => data.chains[draw] === chain);
      const marker = { color: tinted(colour), symbol: SYMBOLS[chain % SYMBOLS.length], size: 7, opacity: 0.8 };
      return { mode: "markers", name: `chain ${chain}`, x: ofChain(x), y: ofChain(y), marker };
    });
    // Raw and aligned draws are shown on one scale.
    const axis = (weight) => ({
      title: { text: layer.weights[weight] },
      range: range([...layer.raw[weight], ...layer.aligned[weight]]),
    });
    // Not broken at the end of a line.
    const moments = (values) => `${short(mean(values))}\u00a0±\u00a0${short(deviation(values))}`;
    const words = [...new Set([x, y])].map(
      (weight) =>
        `${layer.weights[weight]}: ${moments(layer.raw[weight])} raw, ${moments(layer.aligned[weight])} aligned`
    );
    return {
      traces,
      layout: { xaxis: axis(x), yaxis: axis(y) },
      words: `Shown ${state}. Mean ± standard deviation of ${words.join("; of ")}.`,
    };
  };
  const drawPair = () => draw("weights", pair());
  const movePair = () => {
    if (isStill.matches) return drawPair();
    const { traces, words } = pair();
    tell("weights", words);
    return Plotly.animate(
      "weights-plot",
      { data: traces.map(({ x, y }) => ({ x, y })) },
      { mode: "immediate", transition: { duration: 700, easing: "cubic-in-out" }, frame: { redraw: false } }
    );
  };
  const chooseLayer = () => {
    const { name, weights } = data.layers[chosen("layer")];
    for (const id of ["weight-x", "weight-y"]) fill(id, weights.map((weight) => weight.slice(name.length)));
    element("weight-y").value = "1";
    return drawPair();
  };
  const anotherPair = () => {
    const next = (chosen("weight-y") + 1) % data.layers[chosen("layer")].weights.length;
    element("weight-x").value = element("weight-y").value;
    element("weight-y").value = String(next);
    return drawPair();
  };

  // Predictions for one test input.
  const drawCase = () => {
    const { name, label, probs, image } = data.cases[chosen("case")];
    const [blue, , green] = palette();
    const colour = (index) => (index === label ? green : blue);
    const classes = probs[0].map((_, index) => index);
    const each = classes.map((index) => probs.map((row) => row[index]));
    const means = each.map(mean);
    const [lows, highs] = [0.025, 0.975].map((share) => each.map((values) => quantile(values, share)));
    if (image !== null) Object.assign(element("case-image"), { hidden: false, src: image, alt: name });
    // Multiples of the golden ratio spread evenly, and the same way every time.
    const aside = (draw) => 0.6 * (((draw * 0.618034) % 1) - 0.5);
    const bars = {
      type: "bar",
      x: classes,
      y: means,
      marker: { color: classes.map(colour), opacity: 0.55 },
      error_y: {
        symmetric: false,
        // A mean may lie outside of what most draws say.
        array: classes.map((index) => Math.max(0, highs[index] - means[index])),
        arrayminus: classes.map((index) => Math.max(0, means[index] - lows[index])),
        color: ofPage("ink"),
        thickness: 1.5,
      },
      hovertemplate: "class %{x}: mean %{y:.3f}<extra></extra>",
    };
    const dots = {
      mode: "markers",
      x: each.flatMap((values, index) => values.map((_, draw) => index + aside(draw))),
      y: each.flat(),
      marker: { color: each.flatMap((values, index) => values.map(() => colour(index))), size: 3.5, opacity: 0.5 },
      hoverinfo: "skip",
    };
    const ticktext = classes.map((index) => (index === label ? `<b>${index}<br>true</b>` : String(index)));
    const layout = {
      showlegend: false,
      xaxis: { title: { text: "class" }, tickvals: classes, ticktext, showgrid: false, zeroline: false },
      yaxis: { title: { text: "probability" }, range: [-0.02, 1.04] },
    };
    const best = means.indexOf(Math.max(...means));
    const words =
      `True class ${label}: the draws together give it the probability ${short(means[label])}, single draws ` +
      `(95 % of them) from ${short(lows[label])} to ${short(highs[label])}. ` +
      (best === label ? "It is the most probable." : `The most probable is ${best}, with ${short(means[best])}.`);
    return draw("case", { traces: [bars, dots], layout, words });
  };
  const nextCase = () => {
    element("case").value = String((chosen("case") + 1) % data.cases.length);
    return drawCase();
  };

  // Reliability.
  const listLaws = () =>
    element("laws").replaceChildren(
      ...data.reliability.map(({ name }) => {
        const label = document.createElement("label");
        label.append(Object.assign(document.createElement("input"), { type: "checkbox", checked: true }), ` ${name}`);
        return label;
      })
    );
  const drawReliability = () => {
    const isShown = [...element("laws").querySelectorAll("input")].map((box) => box.checked);
    const traces = data.reliability.map(({ name, confidence, accuracy, low, high, counts }, index) => {
      const color = palette()[index % data.palette.length];
      const array = high.map((value, bin) => value - accuracy[bin]);
      const arrayminus = low.map((value, bin) => accuracy[bin] - value);
      return {
        mode: "lines+markers",
        name,
        visible: isShown[index],
        x: confidence,
        y: accuracy,
        customdata: counts,
        line: { color, width: 2 },
        marker: { color, symbol: SYMBOLS[index % SYMBOLS.length], size: 8 },
        error_y: { symmetric: false, array, arrayminus, color, thickness: 1, width: 2 },
        hovertemplate: "confidence %{x:.3f}, accuracy %{y:.3f}, %{customdata} inputs",
      };
    });
    const line = { dash: "dash", width: 1, color: ofPage("quiet") };
    traces.push({ mode: "lines", name: "calibrated", x: [0, 1], y: [0, 1], line, hoverinfo: "skip" });
    const layout = {
      xaxis: { title: { text: "confidence" }, range: [0, 1.02] },
      yaxis: { title: { text: "accuracy" }, range: [-0.02, 1.04] },
    };
    const errors = data.reliability
      .filter((_, index) => isShown[index])
      .map(({ name, confidence, accuracy, counts }) => {
        const gaps = counts.map((count, bin) => count * Math.abs(accuracy[bin] - confidence[bin]));
        return `${name} ${short(mean(gaps) / mean(counts), 3)}`;
      });
    const words = errors.length ? `Expected calibration error: ${errors.join("; ")}.` : "No posterior is chosen.";
    return draw("reliability", { traces, layout, words });
  };

  // The loss between two networks.
  const drawLine = () => {
    const { weights: along, raw, aligned } = data.lines[chosen("line")];
    const [blue, red] = palette();
    const curve = (name, y, color, dash, symbol) => ({
      mode: "lines+markers",
      name,
      x: along,
      y,
      line: { color, dash, width: 2 },
      marker: { color, symbol, size: 6 },
      hovertemplate: "loss %{y:.3f} at %{x:.2f}",
    });
    const barrier = (loss) =>
      Math.max(...along.map((weight, index) => loss[index] - (1 - weight) * loss[0] - weight * loss.at(-1)));
    return draw("line", {
      traces: [curve("raw", raw, red, "dash", "square"), curve("aligned", aligned, blue, "solid", "circle")],
      layout: {
        xaxis: { title: { text: "weight of the second network" } },
        yaxis: { title: { text: "test loss, nats" }, rangemode: "tozero" },
      },
      words:
        "Barrier, the most by which the loss exceeds the straight line between its ends: " +
        `${short(barrier(raw))} nats raw, ${short(barrier(aligned))} aligned.`,
    });
  };

  fill("layer", data.layers.map(({ name }) => name));
  fill("case", data.cases.map(({ name }) => name));
  fill("line", data.lines.map(({ name }) => name));
  listLaws();
  chooseLayer();
  for (const view of [drawCase, drawReliability, drawLine]) view();

  onChange("layer", chooseLayer);
  onChange("weight-x", drawPair);
  onChange("weight-y", drawPair);
  onChange("case", drawCase);
  onChange("laws", drawReliability);
  onChange("line", drawLine);
  for (const radio of document.getElementsByName("state")) radio.addEventListener("change", movePair);
  element("another-pair").addEventListener("click", anotherPair);
  element("next-case").addEventListener("click", nextCase);
  isDark.addEventListener("change", () => {
    for (const view of [drawPair, drawCase, drawReliability, drawLine]) view();
  });
})();
