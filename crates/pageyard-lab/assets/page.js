"use strict";
// What needs a hand: the choice of a list, the slider of maps, values under the pointer. All
// numbers come from the one block of data.
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const SVG = "http://www.w3.org/2000/svg";
  const data = JSON.parse($("#data").textContent);
  document.documentElement.classList.add("scripted");

  /** What stands at a JSON pointer; `*` stands for every element. */
  const at = (pointer, from = data) => {
    if (!pointer) return undefined;
    let here = from;
    const names = pointer.split("/").slice(1);
    for (let i = 0; i < names.length; i++) {
      if (here === undefined || here === null) return undefined;
      if (names[i] === "*") return here.map((e) => at("/" + names.slice(i + 1).join("/"), e));
      here = here[names[i].replaceAll("~1", "/").replaceAll("~0", "~")];
    }
    return here;
  };

  const digits = (x) => x.toLocaleString("en", { maximumSignificantDigits: 7 }).replaceAll(",", "\u202f");
  const time = (ns) => {
    const [unit, per] = ns < 1e3 ? ["ns", 1] : ns < 1e6 ? ["µs", 1e3] : ns < 1e9 ? ["ms", 1e6] : ["s", 1e9];
    return `${digits(Number((ns / per).toPrecision(5)))} ${unit}`;
  };
  const shown = (x, unit) => (unit === "ns" ? time(x) : unit ? `${digits(x)} ${unit}` : digits(x));

  /** An axis as the SVG element says it: from values to coordinates. */
  const scale = (svg, axis) => {
    const [log, low, high, from, to] = svg.getAttribute(`data-${axis}-scale`).split(" ").map(Number);
    return (v) => {
      const part = log
        ? (Math.log(Math.max(v, low)) - Math.log(low)) / (Math.log(high) - Math.log(low))
        : (v - low) / (high - low);
      return from + Math.min(Math.max(part, 0), 1) * (to - from);
    };
  };
  const c = (x) => String(Math.round(x * 100) / 100);

  const path = (shape, xs, ys, px, py) => {
    let d = "";
    for (let i = 0; i < xs.length; i++) {
      const x = c(px(xs[i])), y = c(py(ys[i]));
      if (i === 0) d += `M${x} ${y}`;
      else if (shape === "steps") d += `H${x}V${y}`;
      else if (shape === "since") d += `V${y}H${x}`;
      else d += `L${x} ${y}`;
    }
    return d;
  };

  // Which list is shown.
  const name = (l) => `CPU ${l.cpu}, node ${l.node} ${l.zone}`;
  /** Ticks at whole numbers from 0 to a round one that is no less than `most`. */
  const rescale = (svg, most) => {
    const [, , , bottom, top] = svg.getAttribute("data-y-scale").split(" ").map(Number);
    const least = Math.max(most, 1) / 6, power = 10 ** Math.floor(Math.log10(least));
    const step = Math.max(1, [1, 2, 5, 10].find((m) => m * power >= least * (1 - 1e-9)) * power);
    const count = Math.ceil(Math.max(most, 1) / step - 1e-9);
    svg.setAttribute("data-y-scale", `0 0 ${count * step} ${bottom} ${top}`);
    const py = scale(svg, "y"), group = $(".axes .y", svg);
    const [, , , left, right] = svg.getAttribute("data-x-scale").split(" ").map(Number);
    group.replaceChildren();
    for (let i = 0; i <= count; i++) {
      const y = py(i * step), line = document.createElementNS(SVG, "path"), text = document.createElementNS(SVG, "text");
      line.setAttribute("class", "grid");
      line.setAttribute("d", `M${left} ${c(y)}H${right}`);
      text.setAttribute("x", left - 6);
      text.setAttribute("y", c(y + 4));
      text.setAttribute("text-anchor", "end");
      text.textContent = i * step < 1e4 ? i * step : `${(i * step) / 1e3}k`;
      group.append(line, text);
    }
  };
  const choose = (figure, wanted) => {
    const fields = new Set(all(".series[data-field]", figure).map((s) => s.dataset.field));
    let most = 0;
    for (const svg of all("svg[data-lists]", figure)) {
      const list = at(svg.dataset.lists).find((l) => name(l) === wanted) || {};
      for (const field of fields) most = Math.max(most, ...(list[field] || []));
    }
    for (const svg of all("svg[data-lists]", figure)) rescale(svg, most);
    for (const svg of all("svg[data-lists]", figure)) {
      const place = svg.dataset.lists;
      const index = at(place).findIndex((l) => name(l) === wanted);
      for (const series of all(".series", svg)) {
        // A field may not be recorded.
        const there = index >= 0 && at(place)[index][series.dataset.field].length > 0;
        series.dataset.xAt = there ? place.replace(/lists$/, "times_ns") : "";
        series.dataset.yAt = there ? `${place}/${index}/${series.dataset.field}` : "";
        const [xs, ys] = there ? [at(series.dataset.xAt), at(series.dataset.yAt)] : [[], []];
        $("path", series).setAttribute("d", path(series.dataset.shape, xs, ys, scale(svg, "x"), scale(svg, "y")));
      }
    }
  };
  for (const select of all("select.choose-list")) {
    select.addEventListener("change", () => {
      // The same list in both figures of a point.
      const inside = select.closest("details, section");
      for (const other of all("select.choose-list", inside)) {
        other.selectedIndex = select.selectedIndex;
        choose(other.closest("figure"), select.value);
      }
    });
  }

  // Legends hide and show.
  for (const button of all("button.toggle")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", on);
      for (const series of all(".panels .series", button.closest("figure"))) {
        if (series.dataset.name === button.dataset.name) series.classList.toggle("off", !on);
      }
    });
  }

  // Maps.
  const TYPES = ["unmovable", "movable", "reclaimable", "highatomic", "CMA", "isolated"];
  const last = (times, t) => {
    let i = times.length - 1;
    while (i > 0 && times[i] > t) i--;
    return i;
  };
  const draw = (svg, t) => {
    const heap = at(svg.dataset.heap);
    const frame = last(heap.times_ns, t);
    if (Number(svg.dataset.frame) === frame) return;
    svg.dataset.frame = frame;
    const cells = heap.frames[frame], columns = Number(svg.dataset.columns);
    const size = svg.viewBox.baseVal.width / columns, side = c(size * 0.9);
    const paths = new Map();
    for (let i = 0; i < cells.length / 2; i++) {
      const key = cells.substr(2 * i, 2);
      const square = `M${c((i % columns) * size)} ${c(Math.floor(i / columns) * size)}h${side}v${side}h-${side}z`;
      paths.set(key, (paths.get(key) || "") + square);
    }
    const group = $(".cells", svg);
    group.replaceChildren();
    for (const key of [...paths.keys()].sort()) {
      const p = document.createElementNS(SVG, "path");
      p.setAttribute("class", `t${parseInt(key[0], 16)} f${parseInt(key[1], 16)}`);
      p.setAttribute("d", paths.get(key));
      group.append(p);
    }
    $(".words", svg.parentNode).textContent = `${time(heap.times_ns[frame])}: ${digits(heap.in_use[frame])} pages in use`;
  };
  for (const slider of all("input.time")) {
    const figure = slider.closest("figure"), button = $("button.play", figure);
    const move = () => {
      const t = (Number(slider.dataset.end) * slider.value) / slider.max;
      $("output", figure).textContent = time(t);
      slider.setAttribute("aria-valuetext", time(t));
      for (const svg of all("svg.map", figure)) draw(svg, t);
    };
    slider.addEventListener("input", move);
    move();
    let timer = 0;
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      button.textContent = "▶";
      button.setAttribute("aria-label", "Play");
    };
    button.addEventListener("click", () => {
      if (timer) return stop();
      if (slider.value === slider.max) slider.value = 0;
      button.textContent = "⏸";
      button.setAttribute("aria-label", "Pause");
      move();
      timer = setInterval(() => {
        slider.value = Number(slider.value) + 1;
        move();
        if (slider.value === slider.max) stop();
      }, 120);
    });
  }

  // Values under the pointer, or under a line that the arrow keys move.
  const tip = $("#tip");
  const hide = () => {
    tip.hidden = true;
    for (const cross of all(".cross")) cross.remove();
  };
  const tell = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const right = scrollX + document.documentElement.clientWidth;
    tip.style.left = `${Math.max(scrollX + 4, Math.min(x + 14, right - width - 8))}px`;
    tip.style.top = `${y - height - 12 < scrollY ? y + 18 : y - height - 12}px`;
  };
  const point = (svg, event) => {
    const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
    return [((event.clientX - box.left) * view.width) / box.width, ((event.clientY - box.top) * view.height) / box.height];
  };
  const visible = (svg) => all(".series:not(.off)", svg);

  /** What there is to say of a panel: places along x, each with its lines of text. */
  const places = (svg) => {
    const px = scale(svg, "x"), py = scale(svg, "y"), { xUnit, yUnit } = svg.dataset;
    const found = [];
    for (const series of visible(svg)) {
      const who = series.dataset.name;
      const ys = at(series.dataset.yAt);
      if (ys) {
        const xs = at(series.dataset.xAt) || ys.map((_, i) => i);
        ys.forEach((y, i) => found.push({ x: px(xs[i]), y: py(y), at: xs[i], who, text: shown(y, yUnit) }));
      }
      for (const mark of all(".mark", series)) {
        const { x, y } = mark.dataset, row = yUnit === "row";
        const text = row ? shown(Number(x), xUnit) : shown(Number(y), yUnit);
        found.push({ x: px(Number(x)), y: py(Number(y)), at: row ? undefined : Number(x), who, text });
      }
    }
    return found.sort((a, b) => a.x - b.x);
  };
  const show = (svg, x, y) => {
    const found = places(svg);
    if (!found.length) return;
    const distance = (p) => Math.abs(p.x - x) + (svg.dataset.yUnit === "row" && y !== undefined ? 9 * Math.abs(p.y - y) : 0);
    const near = found.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    const lines = new Map();
    for (const p of found) {
      const best = lines.get(p.who);
      if (!best || distance(p) < distance(best)) lines.set(p.who, p);
    }
    let cross = $(".cross", svg);
    if (!cross) {
      hide();
      cross = document.createElementNS(SVG, "path");
      cross.setAttribute("class", "cross");
      svg.append(cross);
    }
    const { height } = svg.viewBox.baseVal;
    cross.setAttribute("d", `M${c(near.x)} 10V${height - 44}`);
    const head = near.at === undefined ? [] : [shown(near.at, svg.dataset.xUnit)];
    const rest = near.at === undefined ? [near] : [...lines.values()];
    const box = svg.getBoundingClientRect(), k = box.width / svg.viewBox.baseVal.width;
    tell([...head, ...rest.map((p) => `${p.who}: ${p.text}`)].join("\n"), box.left + scrollX + near.x * k, box.top + scrollY + near.y * k);
  };
  for (const svg of all("svg.plot[tabindex]")) {
    svg.addEventListener("pointermove", (e) => show(svg, ...point(svg, e)));
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    let place = -1;
    svg.addEventListener("keydown", (e) => {
      if (e.key === "Escape") return hide();
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[e.key];
      if (!step) return;
      e.preventDefault();
      const xs = [...new Set(places(svg).map((p) => p.x))];
      if (!xs.length) return;
      place = Math.max(0, Math.min(xs.length - 1, place + step));
      show(svg, xs[place]);
    });
  }
  for (const svg of all("svg.map")) {
    svg.addEventListener("pointermove", (e) => {
      const heap = at(svg.dataset.heap), columns = Number(svg.dataset.columns);
      const size = svg.viewBox.baseVal.width / columns, [x, y] = point(svg, e);
      const i = Math.floor(y / size) * columns + Math.floor(x / size);
      const cell = heap.frames[svg.dataset.frame].substr(2 * i, 2);
      if (cell.length < 2) return hide();
      const full = parseInt(cell[1], 16);
      const words = full === 0 ? "free" : full === 15 ? "full" : `about ${Math.round((full / 15) * 100)} % in use`;
      const n = heap.blocks_per_cell, first = i * n, end = Math.min(first + n, heap.pageblocks) - 1;
      const which = n === 1 ? `pageblock ${digits(first)}` : `pageblocks ${digits(first)} to ${digits(end)}`;
      tell(`${which}\n${TYPES[parseInt(cell[0], 16)]}, ${words}`, e.pageX, e.pageY);
    });
    svg.addEventListener("pointerleave", hide);
  }
  document.addEventListener("keydown", (e) => e.key === "Escape" && hide());

  // On paper all points are open.
  addEventListener("beforeprint", () => all("details").forEach((d) => (d.open = true)));
})();
