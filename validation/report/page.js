"use strict";
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const layers = D.plan.profile.layers;
  const $ = (id) => document.getElementById(id);

  // ---- words -------------------------------------------------------------------------------
  const clean = (text) => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
  const ms = (x) => (x === null ? "-" : Math.abs(x) >= 1000 ? `${(x / 1000).toPrecision(4)} s` : `${Math.abs(x) < 1 ? Number(x.toPrecision(4)) : x.toFixed(2)} ms`);
  const units = [[1e15, "PB"], [1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
  const bytes = (n) => { for (const [f, u] of units) if (n >= f) return `${Number((n / f).toPrecision(4))} ${u}`; return `${n} B`; };
  const percent = (x) => `${(100 * x).toFixed(1)} %`;
  const fill = (s) => D.palette[s % D.palette.length][0];
  const ink = (s) => D.palette[s % D.palette.length][1];
  const el = (tag, props = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(props)) {
      if (key === "class") node.className = value;
      else if (key === "style") Object.assign(node.style, value);
      else node.setAttribute(key, value);
    }
    for (const child of children) if (child !== null) node.append(child instanceof Node ? child : clean(child));
    return node;
  };
  const svg = (tag, props = {}, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(props)) node.setAttribute(key, value);
    for (const child of children) node.append(child instanceof Node ? child : clean(child));
    return node;
  };
  const chip = (s) => el("span", { class: "chip", style: { background: fill(s), color: ink(s) } }, `${s}`);
  const row = (tag, cells) => el("tr", {}, ...cells.map(([text, kind]) => el(tag, kind ? { class: kind } : {}, ...(Array.isArray(text) ? text : [text]))));
  const small = (text) => el("span", { class: "muted" }, text);

  // ---- the answer --------------------------------------------------------------------------
  $("name").textContent = clean(D.name);
  $("cluster").textContent = clean(D.cluster);
  $("proof").textContent = clean(D.proof);
  const what = D.synchronous ? "batch" : "micro-batch";
  const figure = (value, label) => el("div", { class: "figure" }, el("b", {}, value), el("span", {}, label));
  const ratio = (base, own) => (own > 0 ? `${(base / own).toFixed(2)}\u00d7` : "-");
  // A nested plan has two prices, which can disagree on what it gains: both are given.
  const N = D.nested;
  const lack = (key) => (D[key.replace("_ms", "_fits")] ? "" : " (does not fit)");
  const gain = (key, words) => figure(ratio(D[key], D.objective_ms), lack(key) ? `as fast as ${words}${lack(key)}` : N ? `as fast as ${words} by ${D.cost_model}, ${ratio(N[key], N.objective_ms)} by topology` : `as fast as ${words}`);
  $("figures").append(
    figure(ms(D.objective_ms), `per ${what}, by ${D.cost_model}`),
    ...(N ? [figure(ms(N.objective_ms), `per ${what}, by topology`)] : []),
    gain("one_device_ms", "one GPU"),
    gain("data_parallel_ms", "data parallel"),
    figure(D.simulation.period_ms === null ? "-" : ms(D.simulation.period_ms), `per micro-batch, simulated${D.simulation.exact || D.simulation.period_ms === null ? "" : " (about)"}`),
  );
  D.stages.forEach((x, s) => {
    $("ribbon").append(el("div", { style: { background: fill(s), color: ink(s), flexGrow: x.replicas }, title: `stage ${s}: ranks ${x.ranks}` },
      el("b", {}, `Stage ${s} \u00d7${x.replicas}`), el("span", {}, `${x.replicas === 1 ? "rank" : "ranks"} ${x.ranks}`)));
  });
  // Where a stage is too narrow for its words it shows its number, or nothing.
  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = `650 14px ${getComputedStyle(document.body).fontFamily}`;
  const used = D.stages.reduce((sum, x) => sum + x.replicas, 0);
  new ResizeObserver(() => {
    const width = $("ribbon").clientWidth, each = (width - 2 * (D.stages.length - 1)) / used;
    const few = D.stages.length * 104 <= width; // then even the smallest is given room
    D.stages.forEach((x, s) => {
      const box = $("ribbon").children[s], room = each * x.replicas;
      const fits = (text, pad) => ruler.measureText(text).width + pad <= room;
      const label = `Stage ${s} \u00d7${x.replicas}`, whole = few || fits(label, 22);
      box.className = few ? "roomy" : whole ? "" : "tight";
      box.firstElementChild.textContent = whole ? label : fits(`${s}`, 2) ? `${s}` : "";
    });
  }).observe($("ribbon"));
  $("ribbon").setAttribute("aria-label", D.stages.map((x, s) => `stage ${s} on ranks ${x.ranks}`).join("; "));
  for (const text of D.caveats) $("caveats").append(el("p", { class: "caveat" }, text));
  document.querySelectorAll("main section[id] h2:not(.visually-hidden)").forEach((h) => {
    $("nav").append(el("a", { href: `#${h.parentElement.id}` }, h.textContent));
  });

  // ---- stages ------------------------------------------------------------------------------
  $("stage-table").append(
    el("thead", {}, row("th", [["Stage", "text"], ["Layers", "text"], ["GPUs"], ["Ranks", "text"], ["Servers", "text"], ["Compute"], ["All-reduce"], ["Transfer"], ["In flight"], ["Memory"], ["Waiting"]])),
    el("tbody", {}, ...D.stages.map((x, s) => row("td", [
      [[chip(s)], "text"],
      [[`${x.layers} ${x.layers === 1 ? "layer" : "layers"}${x.indices ? ` (${x.indices})` : ""}`, small(x.first === x.last ? x.first : `${x.first} to ${x.last}`)], "text"],
      [`${x.replicas}`], [x.ranks, "text"], [x.servers, "text"], [ms(x.compute_ms)], [ms(x.sync_ms)], [ms(x.transfer_ms)],
      [`${x.in_flight}`], [[bytes(x.peak_bytes)]], [percent(x.bubble)],
    ]))),
  );

  const heads = [...$("stage-table").querySelectorAll("th")].map((x) => x.textContent);
  $("stage-table").querySelectorAll("tbody tr").forEach((line) => [...line.children].forEach((cell, i) => { cell.dataset.label = heads[i]; }));

  // ---- servers -----------------------------------------------------------------------------
  const per = D.servers.per_server, ranks = D.servers.stage_of_rank;
  const grid = $("server-grid");
  if (ranks.length > 128) grid.classList.add("dense");
  for (let server = 0; server * per < ranks.length; server++) {
    const cells = ranks.slice(server * per, (server + 1) * per).map((s, i) => {
      const rank = server * per + i;
      return s < 0
        ? el("div", { class: "gpu idle", title: `rank ${rank}: idle` }, el("b", {}, "\u2013"), `rank ${rank}`)
        : el("div", { class: "gpu", "data-stage": `${s}`, title: `rank ${rank}: stage ${s}`, style: { background: fill(s), color: ink(s) } }, el("b", {}, `${s}`), `rank ${rank}`);
    });
    const columns = Math.min(per, 8);
    grid.append(el("div", { class: "server" }, el("h3", {}, `Server ${server}`), el("div", { class: "gpus", style: { gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))` } }, ...cells)));
  }
  const dim = (stage) => grid.querySelectorAll(".gpu").forEach((x) => x.classList.toggle("dim", stage !== null && x.dataset.stage !== stage));
  grid.addEventListener("pointerover", (e) => { const g = e.target.closest(".gpu[data-stage]"); dim(g ? g.dataset.stage : null); });
  grid.addEventListener("pointerleave", () => dim(null));

  // ---- bars --------------------------------------------------------------------------------
  const bar = (label, parts, most, value, extra = {}) => {
    const track = el("div", { class: "track" });
    for (const [kind, size, title, colour] of parts) {
      if (size > 0) track.append(el("i", { class: kind, title, style: { width: `${(100 * size) / most}%`, ...(colour ? { background: colour } : {}) } }));
    }
    if (extra.limit) track.append(el("div", { class: "limit", title: `limit ${bytes(extra.limit)}`, style: { left: `calc(${(100 * extra.limit) / most}% - 2px)` } }));
    return el("div", { class: extra.first ? "bar first" : "bar" }, el("div", { class: "label" }, ...(Array.isArray(label) ? label : [label])), track, el("div", { class: "value" }, value));
  };
  for (const x of D.limits) {
    if (D.limits.length > 1) $("bottleneck").append(el("h3", {}, `By ${x.model}: ${ms(x.period_ms)} per micro-batch`));
    for (const text of x.lines) $("bottleneck").append(el("p", { class: "lead" }, text));
  }
  $("levers-note").textContent = `This same plan, ${ms(D.levers_from_ms)} per ${what} now${N ? " by topology" : ""}, priced with one thing changed.`;
  const total = (x) => x.compute_ms + x.sync_ms + x.transfer_ms;
  const mostLoad = Math.max(...D.loads.map(total), 1e-12);
  D.loads.forEach((x, i) => $("loads").append(bar(x.stage < 0 ? x.name : [chip(x.stage), ` ${x.name}`],
    [["compute", x.compute_ms, `compute ${ms(x.compute_ms)}`], ["sync", x.sync_ms, `all-reduce ${ms(x.sync_ms)}`], ["transfer", x.transfer_ms, `transfer ${ms(x.transfer_ms)}`]],
    mostLoad, ms(total(x)), { first: i === 0 })));
  const change = (now, then) => {
    const rel = now > 0 ? then / now - 1 : 0;
    if (Math.abs(rel) < 1e-9) return el("span", { class: "muted" }, "no change");
    const words = el("span", { class: rel < 0 ? "better" : "worse" }, `${rel < 0 ? "\u2212" : "+"}${percent(Math.abs(rel))}`);
    return words;
  };
  $("levers").append(el("tbody", {}, ...D.levers.map((x) => row("td", [[x.text.charAt(0).toUpperCase() + x.text.slice(1), "text"], [ms(x.objective_ms)], [[change(D.levers_from_ms, x.objective_ms)]]]))));
  for (const text of D.why) $("why-list").append(el("li", {}, text));
  const now = D.stages.map((x) => x.replicas);
  const shown = [{ replicas: now, objective_ms: D.objective_ms, fits: true, now: true, limit: "" }, ...D.alternatives].sort((a, b) => a.objective_ms - b.objective_ms);
  if (shown.length === 1) $("alternatives-box").hidden = true;
  $("alternatives").append(
    el("thead", {}, row("th", [["Replicas", "text"], [`Per ${what}`], [""]])),
    el("tbody", {}, ...shown.flatMap((x) => {
      const moved = x.replicas.map((n, s) => [n - now[s], s]).filter(([n]) => n);
      const name = now.length <= 8 ? x.replicas.join("-") : x.now ? "as it is" : moved.map(([n, s]) => `${n > 0 ? "+" : "\u2212"}${Math.abs(n)} stage ${s}`).join(", ");
      const line = row("td", [[name, "text"], [ms(x.objective_ms)], [x.now ? "this plan" : x.fits ? [change(D.objective_ms, x.objective_ms)] : "does not fit"]]);
      if (x.now) line.className = "now";
      if (!x.limit) return [line];
      line.className = "explained";
      return [line, el("tr", {}, el("td", { class: "text muted small", colspan: "3" }, x.limit))];
    })),
  );
  const mostMemory = Math.max(D.memory_bytes || 0, ...D.stages.map((x) => x.peak_bytes), 1) * 1.02;
  D.stages.forEach((x, s) => $("memory-bars").append(bar([chip(s), ` stage ${s}, ${x.in_flight} in flight`],
    [["weights", x.weight_bytes, `weights, gradients, optimizer ${bytes(x.weight_bytes)}`], ["versions", x.version_bytes, `older versions ${bytes(x.version_bytes)}`], ["activations", x.activation_bytes, `activations ${bytes(x.activation_bytes)}`]],
    mostMemory, D.memory_bytes ? `${bytes(x.peak_bytes)} of ${bytes(D.memory_bytes)}` : bytes(x.peak_bytes), { limit: D.memory_bytes })));
  const compare = (own, bound) => {
    const bases = [[`One GPU${lack("one_device_ms")}`, own.one_device_ms, "base"], [`Data parallel on all GPUs${lack("data_parallel_ms")}`, own.data_parallel_ms, "base"], ["This plan", own.objective_ms, "ours"]];
    if (bound !== null) bases.push([`Proven: no ${D.scope} plan is below`, bound, "proven"]);
    const slowest = Math.max(...bases.map((x) => x[1]), 1e-12);
    for (const [label, value, kind] of bases) $("baseline-bars").append(bar(label, [[kind, value, ms(value)]], slowest, ms(value), { first: kind === "ours" }));
  };
  if (N) $("baseline-bars").append(el("h3", {}, `By ${D.cost_model}`));
  compare(D, D.bound_ms);
  if (N) { $("baseline-bars").append(el("h3", {}, "By topology")); compare(N, null); }
  D.simulation.shares.forEach(([f, b, y, w], s) => $("shares").append(bar([chip(s), ` stage ${s}`],
    [["forward", f, `forward ${percent(f)}`, fill(s)], ["backward", b, `backward ${percent(b)}`, `color-mix(in srgb, ${fill(s)} 72%, black)`], ["sync", y, `all-reduce ${percent(y)}`]],
    1, `${percent(w)} waiting`)));
  for (const text of D.simulation.sentences) $("simulation-list").append(el("li", {}, text));

  // ---- a canvas to look around in ------------------------------------------------------------
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  class View {
    constructor(canvas, tip, world, draw, describe, options) {
      Object.assign(this, { canvas, tip, world, draw, describe, flat: !!options.flat, height: options.height, most: options.most });
      this.ctx = canvas.getContext("2d");
      this.pointers = new Map();
      this.queued = false;
      canvas.style.height = `${this.height}px`;
      new ResizeObserver(() => this.resize()).observe(canvas);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
      canvas.addEventListener("wheel", (e) => {
        if (!(e.ctrlKey || e.metaKey)) return;
        e.preventDefault();
        this.zoom(Math.exp(-e.deltaY / 300), e.offsetX, e.offsetY);
      }, { passive: false });
      canvas.addEventListener("dblclick", (e) => this.zoom(2, e.offsetX, e.offsetY));
      canvas.addEventListener("pointerdown", (e) => {
        canvas.setPointerCapture(e.pointerId);
        this.pointers.set(e.pointerId, [e.offsetX, e.offsetY]);
        canvas.classList.add("moving");
      });
      canvas.addEventListener("pointermove", (e) => this.moved(e));
      const up = (e) => { this.pointers.delete(e.pointerId); if (!this.pointers.size) canvas.classList.remove("moving"); };
      canvas.addEventListener("pointerup", up);
      canvas.addEventListener("pointercancel", up);
      canvas.addEventListener("pointerleave", () => this.hint(null));
      canvas.addEventListener("keydown", (e) => this.key(e));
      this.resize();
    }
    resize() {
      const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth;
      if (!width || (width === this.width && ratio === this.ratio)) return;
      this.width = width;
      this.ratio = ratio;
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(this.height * ratio);
      this.fit();
    }
    fit() {
      const { x, y, w, h } = this.world, pad = this.flat ? 0 : 26;
      this.k = this.flat ? this.width / w : Math.min((this.width - 2 * pad) / w, (this.height - 2 * pad) / h, 1.4);
      this.least = this.k;
      this.x = x + w / 2 - this.width / this.k / 2;
      this.y = this.flat ? 0 : y + h / 2 - this.height / this.k / 2;
      this.redraw();
    }
    get ky() { return this.flat ? 1 : this.k; }
    zoom(by, px = this.width / 2, py = this.height / 2) {
      const k = Math.min(Math.max(this.k * by, this.least * (this.flat ? 1 : 0.8)), this.most * (this.flat ? this.least : 1));
      this.x += px / this.k - px / k;
      if (!this.flat) this.y += py / this.k - py / k;
      this.k = k;
      this.redraw();
    }
    pan(dx, dy) { this.x -= dx / this.k; if (!this.flat) this.y -= dy / this.k; this.redraw(); }
    show(wx, wy, k) { this.k = Math.max(this.k, k); this.x = wx - this.width / this.k / 2; this.y = wy - this.height / this.k / 2; this.redraw(); }
    moved(e) {
      const before = this.pointers.get(e.pointerId);
      if (!before) { this.hint([e.offsetX, e.offsetY]); return; }
      const others = [...this.pointers].filter(([id]) => id !== e.pointerId);
      if (others.length) {
        const [ox, oy] = others[0][1];
        const was = Math.hypot(before[0] - ox, before[1] - oy), is = Math.hypot(e.offsetX - ox, e.offsetY - oy);
        if (was > 0) this.zoom(is / was, (ox + e.offsetX) / 2, (oy + e.offsetY) / 2);
      } else this.pan(e.offsetX - before[0], e.offsetY - before[1]);
      this.pointers.set(e.pointerId, [e.offsetX, e.offsetY]);
      this.hint(null);
    }
    key(e) {
      const step = 60;
      const keys = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
      if (keys[e.key] && !(this.flat && keys[e.key][1])) this.pan(...keys[e.key]);
      else if (e.key === "+" || e.key === "=") this.zoom(1.4);
      else if (e.key === "-") this.zoom(1 / 1.4);
      else if (e.key === "0") this.fit();
      else if (this.onKey && this.onKey(e.key)) { /* done */ } else return;
      e.preventDefault();
    }
    hint(at) {
      const lines = at && this.describe(at[0] / this.k + this.x, at[1] / this.ky + this.y);
      this.tip.hidden = !lines;
      if (!lines) return;
      this.tip.replaceChildren(el("b", {}, lines[0]), ...lines.slice(1).map((x) => el("div", {}, x)));
      const w = this.tip.offsetWidth, h = this.tip.offsetHeight;
      this.tip.style.left = `${Math.max(4, Math.min(at[0] + 14, this.width - w - 4))}px`;
      this.tip.style.top = `${at[1] + 18 + h > this.height ? Math.max(4, at[1] - h - 12) : at[1] + 18}px`;
    }
    redraw() {
      if (this.queued || !this.width) return;
      this.queued = true;
      requestAnimationFrame(() => { this.queued = false; this.paint(); });
    }
    paint() {
      const c = this.ctx, r = this.ratio;
      c.setTransform(r, 0, 0, r, 0, 0);
      c.fillStyle = css("--surface");
      c.fillRect(0, 0, this.width, this.height);
      this.draw(c, this);
    }
  }
  const hatch = (c) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const t = tile.getContext("2d");
    t.fillStyle = css("--soft");
    t.fillRect(0, 0, 6, 6);
    t.strokeStyle = css("--sync");
    t.lineWidth = 2;
    t.beginPath();
    for (const d of [-6, 0, 6]) { t.moveTo(d - 1, 7); t.lineTo(d + 7, -1); }
    t.stroke();
    return c.createPattern(tile, "repeat");
  };
  const cut = (c, text, width) => {
    if (c.measureText(text).width <= width) return text;
    let low = 0, high = text.length;
    while (low < high) { const mid = (low + high + 1) >> 1; if (c.measureText(`${text.slice(0, mid)}\u2026`).width <= width) low = mid; else high = mid - 1; }
    return low ? `${text.slice(0, low)}\u2026` : "";
  };

  // ---- layer graph ---------------------------------------------------------------------------
  const narrow = window.innerWidth < 720;
  const G = { edges: D.graph.edges, ...(narrow ? D.graph.narrow : D.graph.wide) }, NW = 118, NH = 42;
  const time = layers.map((x) => x.forward_ms + x.backward_ms);
  const most = Math.max(...time, 1e-12);
  const texts = layers.map((x) => `${x.id} ${x.description || ""}`.toLowerCase());
  let hits = [], hit = -1, chosen = -1;
  const isHit = new Set();
  const drawGraph = (c, v) => {
    const k = v.k, X = (x) => (x - v.x) * k, Y = (y) => (y - v.y) * k;
    const line = css("--muted"), surface = css("--surface"), text = css("--ink"), tint = Number(css("--tint"));
    for (const [s, x, y, w, h] of G.bands) {
      c.globalAlpha = tint;
      c.fillStyle = fill(s);
      c.fillRect(X(x), Y(y - 16), w * k, (h + 32) * k);
      c.globalAlpha = 1;
    }
    const inView = (x, y, w, h) => X(x + w) > 0 && X(x) < v.width && Y(y + h) > 0 && Y(y) < v.height;
    c.lineWidth = Math.max(0.6, Math.min(1.6, k * 1.4));
    for (const [a, b] of G.edges) {
      const [ax, ay, as] = G.nodes[a], [bx, by, bs] = G.nodes[b];
      const left = Math.min(ax, bx) - 80, top = Math.min(ay, by) - 80;
      if (!inView(left, top, Math.abs(ax - bx) + 160, Math.abs(ay - by) + 160)) continue;
      c.strokeStyle = as !== bs ? text : line;
      c.globalAlpha = as !== bs ? 0.9 : 0.55;
      const x1 = ax + NW / 2, x2 = bx - NW / 2;
      c.beginPath();
      c.moveTo(X(x1), Y(ay));
      if (x2 >= x1) {
        const reach = x2 - x1 > 60 && ay === by ? 46 : 0, mid = (x2 - x1) / 2;
        c.bezierCurveTo(X(x1 + mid), Y(ay - reach), X(x2 - mid), Y(by - reach), X(x2), Y(by));
      } else {
        const lane = ay <= by ? (ay + by) / 2 + (by === ay ? 48 : 0) : (ay + by) / 2;
        c.bezierCurveTo(X(x1 + 70), Y(ay), X(x1 + 70), Y(lane), X((x1 + x2) / 2), Y(lane));
        c.bezierCurveTo(X(x2 - 70), Y(lane), X(x2 - 70), Y(by), X(x2), Y(by));
      }
      c.stroke();
    }
    c.globalAlpha = 1;
    c.textBaseline = "middle";
    G.nodes.forEach(([x, y, s], i) => {
      if (!inView(x - NW / 2, y - NH / 2, NW, NH)) return;
      const left = X(x - NW / 2), top = Y(y - NH / 2), w = NW * k, h = NH * k;
      const faint = isHit.size > 0 && !isHit.has(i);
      c.globalAlpha = faint ? 0.3 : 1;
      c.fillStyle = fill(s);
      c.beginPath();
      if (k > 0.35) c.roundRect(left, top, w, h, 6 * k); else c.rect(left, top, w, h);
      c.fill();
      c.fillStyle = ink(s);
      c.globalAlpha = faint ? 0.15 : 0.34;
      if (k > 0.2) c.fillRect(left + 6 * k, top + h - 8 * k, (w - 12 * k) * (time[i] / most), 4 * k);
      c.globalAlpha = faint ? 0.3 : 1;
      if (i === chosen || isHit.has(i)) {
        c.strokeStyle = text;
        c.lineWidth = i === chosen ? 3 : 1.5;
        c.stroke();
      }
      if (k > 0.42) {
        c.fillStyle = ink(s);
        c.font = `600 ${11.5 * k}px system-ui, sans-serif`;
        c.fillText(cut(c, clean(layers[i].id), w - 12 * k), left + 6 * k, top + 11 * k);
        if (k > 0.6 && layers[i].description) {
          c.font = `${10 * k}px system-ui, sans-serif`;
          c.fillText(cut(c, clean(layers[i].description), w - 12 * k), left + 6 * k, top + 24 * k);
        }
      }
      c.globalAlpha = 1;
    });
    const labelled = [];
    for (const [s, x, y, h, size] of G.cuts) {
      if (!inView(x - 4, y - 40, 160, h + 80)) continue;
      c.strokeStyle = text;
      c.lineWidth = 1.6;
      c.setLineDash([6, 4]);
      c.beginPath();
      c.moveTo(X(x), Y(y - 16));
      c.lineTo(X(x), Y(y + h + 16));
      c.stroke();
      c.setLineDash([]);
      if ((h + 74) * k < 40) continue; // rows so close that labels would cover them
      const label = `stage ${s} \u2192 ${s + 1}: ${bytes(size)}`;
      c.font = "600 12px system-ui, sans-serif";
      const w = c.measureText(label).width + 12, px = Math.max(2, Math.min(X(x) - w / 2, v.width - w - 2)), py = Math.max(2, Y(y - 16) - 20);
      // Of labels that would cover each other the first is written: zooming in shows the others.
      if (labelled.some(([ox, oy, ow]) => px < ox + ow + 4 && ox < px + w + 4 && Math.abs(py - oy) < 22)) continue;
      labelled.push([px, py, w]);
      c.fillStyle = text;
      c.beginPath();
      c.roundRect(px, py, w, 19, 5);
      c.fill();
      c.fillStyle = surface;
      c.fillText(label, px + 6, py + 10);
    }
  };
  const facts = (i) => {
    const x = layers[i];
    const kept = x.saved_bytes === undefined ? x.output_bytes : x.saved_bytes;
    return [x.id, ...(x.description ? [x.description.slice(0, 200)] : []), `layer ${i}, stage ${G.nodes[i][2]}`,
      `forward ${ms(x.forward_ms)}, backward ${ms(x.backward_ms)}`, `output ${bytes(x.output_bytes)}, kept ${bytes(kept)}, parameters ${bytes(x.parameter_bytes)}`];
  };
  const nodeAt = (x, y) => G.nodes.findIndex(([nx, ny]) => Math.abs(nx - x) <= NW / 2 && Math.abs(ny - y) <= NH / 2);
  const graphView = new View($("graph-canvas"), $("graph-tip"), { x: 0, y: -30, w: G.width, h: G.height + 50 }, drawGraph,
    (x, y) => { const i = nodeAt(x, y); return i < 0 ? null : facts(i); },
    { height: Math.round(Math.max(220, Math.min(narrow ? 480 : 560, (Math.min(1110, window.innerWidth - 30) * (G.height + 50)) / G.width + 60))), most: 3 });
  const choose = (i) => { chosen = i; graphView.show(G.nodes[i][0], G.nodes[i][1], 1); $("graph-status").textContent = clean(facts(i).join("; ")); };
  graphView.onKey = (key) => {
    if (key === "n") choose((chosen + 1) % layers.length);
    else if (key === "p") choose((chosen + layers.length - 1) % layers.length);
    else return false;
    return true;
  };
  $("search").addEventListener("input", () => {
    const wanted = $("search").value.trim().toLowerCase();
    hits = wanted ? texts.flatMap((t, i) => (t.includes(wanted) ? [i] : [])) : [];
    isHit.clear();
    hits.forEach((i) => isHit.add(i));
    hit = -1;
    chosen = -1;
    $("found").textContent = wanted ? `${hits.length} of ${layers.length} layers${hits.length ? ", Enter shows the next" : ""}` : "";
    graphView.redraw();
  });
  $("search").addEventListener("keydown", (e) => {
    if (e.key === "Enter" && hits.length) { hit = (hit + (e.shiftKey ? hits.length - 1 : 1)) % hits.length; choose(hits[hit]); }
    if (e.key === "Escape") { $("search").value = ""; $("search").dispatchEvent(new Event("input")); graphView.fit(); }
  });
  $("layer-details").addEventListener("toggle", () => {
    if ($("layer-table").children.length) return;
    $("layer-table").append(
      el("thead", {}, row("th", [["#", "text"], ["Stage", "text"], ["Layer", "text"], ["Forward"], ["Backward"], ["Output"], ["Parameters"]])),
      el("tbody", {}, ...layers.map((x, i) => row("td", [[`${i}`, "text"], [[chip(G.nodes[i][2])], "text"], [[x.id, ...(x.description ? [small(x.description.slice(0, 120))] : [])], "text"],
        [ms(x.forward_ms)], [ms(x.backward_ms)], [bytes(x.output_bytes)], [bytes(x.parameter_bytes)]]))),
    );
  });

  // ---- timeline --------------------------------------------------------------------------------
  const S = D.simulation, [t0, t1] = S.window_ms, LEFT = 92, TOP = 26;
  const rowH = Math.max(13, Math.min(24, Math.round(460 / S.ranks.length))), barH = rowH - 3;
  const kinds = ["forward", "backward", "all-reduce"];
  const drawTimeline = (c, v) => {
    const X = (t) => LEFT + (t - v.x) * v.k * ((v.width - LEFT - 8) / v.width);
    const text = css("--ink"), muted = css("--muted"), soft = css("--soft"), line = css("--line"), shade = css("--shade"), sync = hatch(c);
    c.textBaseline = "middle";
    c.font = "12px system-ui, sans-serif";
    S.ranks.forEach(([rank, s], i) => {
      const y = TOP + i * rowH;
      c.fillStyle = soft;
      c.fillRect(LEFT, y, v.width - LEFT - 8, barH);
      c.fillStyle = fill(s);
      c.fillRect(8, y, 22, barH);
      c.font = `600 ${Math.min(12, barH)}px system-ui, sans-serif`;
      c.fillStyle = ink(s);
      c.textAlign = "center";
      c.fillText(`${s}`, 19, y + barH / 2);
      c.textAlign = "left";
      c.fillStyle = text;
      c.font = `${Math.min(12, barH)}px system-ui, sans-serif`;
      c.fillText(`rank ${rank}`, 36, y + barH / 2);
    });
    c.save();
    c.beginPath();
    c.rect(LEFT, 0, v.width - LEFT - 8, v.height);
    c.clip();
    for (const [start, end, i, kind, m] of S.bars) {
      const x = X(start), w = X(end) - x;
      if (x > v.width || x + w < LEFT) continue;
      const y = TOP + i * rowH, s = S.ranks[i][1];
      c.fillStyle = kind === 2 ? sync : fill(s);
      c.fillRect(x, y, Math.max(w - 0.6, 0.4), barH);
      if (kind === 1) { c.fillStyle = shade; c.fillRect(x, y, Math.max(w - 0.6, 0.4), barH); }
      if (w > 20 && kind !== 2 && barH >= 11) { c.font = `${Math.min(11, barH - 1)}px system-ui, sans-serif`; c.fillStyle = kind === 1 ? "#ffffff" : ink(s); c.textAlign = "center"; c.fillText(`${m}`, x + w / 2, y + barH / 2 + 0.5); c.textAlign = "left"; }
    }
    const span = v.width / v.k, raw = span / (narrow ? 3 : 6), mag = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((f) => f * mag).find((f) => f >= raw) || raw;
    c.font = "11.5px system-ui, sans-serif";
    for (let t = Math.ceil(v.x / step) * step; t <= v.x + span; t += step) {
      c.strokeStyle = line;
      c.globalAlpha = 0.7;
      c.beginPath();
      c.moveTo(X(t), TOP - 5);
      c.lineTo(X(t), TOP + S.ranks.length * rowH);
      c.stroke();
      c.globalAlpha = 1;
      c.fillStyle = muted;
      const label = `${Number(t.toPrecision(6))} ms`;
      if (X(t) + 3 + c.measureText(label).width < v.width - 8) c.fillText(label, X(t) + 3, 12);
    }
    c.restore();
  };
  const timelineView = new View($("timeline-canvas"), $("timeline-tip"), { x: t0, y: 0, w: Math.max(t1 - t0, 1e-9), h: 1 }, drawTimeline,
    (wx, wy) => {
      const v = timelineView, px = (wx - v.x) * v.k, t = v.x + ((px - LEFT) / ((v.width - LEFT - 8) / v.width)) / v.k, i = Math.floor((wy - TOP) / rowH);
      const found = S.bars.find(([a, b, r]) => r === i && a <= t && t < b);
      return found && px >= LEFT ? [`${kinds[found[3]]} ${found[4]}`, `rank ${S.ranks[i][0]}, stage ${S.ranks[i][1]}`, `${ms(found[0])} to ${ms(found[1])} (${ms(found[1] - found[0])})`] : null;
    }, { flat: true, height: TOP + S.ranks.length * rowH + 6, most: 200 });
  $("timeline-window").textContent = `${D.synchronous ? "One batch" : "Filling up, and the first rounds"}: ${ms(t0)} to ${ms(t1)}${S.hidden_ranks ? `; ${S.hidden_ranks} more ranks, like those of the same stage` : ""}`;
  const views = { graph: graphView, timeline: timelineView };
  // On paper the page is light, whatever the screen: its drawings too.
  matchMedia("print").addEventListener("change", () => Object.values(views).forEach((v) => v.paint()));
  document.querySelectorAll("[data-zoom]").forEach((b) => b.addEventListener("click", () => {
    const v = views[b.dataset.zoom];
    if (b.dataset.by === "fit") v.fit(); else v.zoom(b.dataset.by === "in" ? 1.5 : 1 / 1.5);
  }));

  // ---- memory over time --------------------------------------------------------------------------
  {
    const W = narrow ? 420 : 1000, H = 42, L = 120, R = 120;
    S.memory.forEach(({ stage, rank, points }) => {
      if (!points.length) return;
      const top = Math.max(D.memory_bytes || 0, ...points.map((p) => p[1])) * 1.05 || 1;
      const X = (t) => L + ((t - t0) / Math.max(t1 - t0, 1e-9)) * (W - L - R), Y = (b) => H - 3 - (b / top) * (H - 8);
      let path = `M${X(t0).toFixed(1)} ${Y(points[0][1]).toFixed(1)}`;
      for (const [t, b] of points) path += `H${X(t).toFixed(1)}V${Y(b).toFixed(1)}`;
      path += `H${(W - R).toFixed(1)}`;
      const peak = Math.max(...points.map((p) => p[1])), held = Math.max(...points.map((p) => p[2]));
      const chart = svg("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Stage ${stage}, rank ${rank}: at most ${bytes(peak)}` },
        svg("text", { x: 0, y: H / 2 + 4 }, `stage ${stage}, rank ${rank}`),
        svg("path", { class: "fill", d: `${path}V${H - 3}H${L}Z`, fill: fill(stage) }),
        svg("path", { class: "edge", d: path, stroke: fill(stage) }),
        svg("text", { x: W - R + 8, y: H / 2 - 2 }, `${bytes(peak)} at most`),
        svg("text", { x: W - R + 8, y: H / 2 + 13 }, `${held} in flight`));
      $("memory-time").append(chart);
    });
  }

  // ---- price against bandwidth ---------------------------------------------------------------------
  {
    const P = D.price_curve;
    const W = narrow ? 420 : 1000, H = narrow ? 280 : 300, L = 74, B = 34, T = 16, R = 14;
    const lx = P.points.map((p) => Math.log(p[0])), ys = P.points.flatMap((p) => [p[1], p[2]]).filter((y) => y > 0);
    const loY = Math.log(Math.min(...ys, D.objective_ms || 1) * 0.9), hiY = Math.log(Math.max(...ys, 1e-9) * 1.1);
    const X = (v) => L + ((Math.log(v) - lx[0]) / (lx[lx.length - 1] - lx[0])) * (W - L - R);
    const Y = (v) => T + (1 - (Math.log(Math.max(v, 1e-9)) - loY) / Math.max(hiY - loY, 1e-9)) * (H - T - B);
    const path = (j) => P.points.map((p, i) => `${i ? "L" : "M"}${X(p[0]).toFixed(1)} ${Y(p[j]).toFixed(1)}`).join("");
    const chart = svg("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Time of this plan and of data parallelism against bandwidth" });
    for (let i = 0; i <= 4; i++) {
      const y = Math.exp(loY + ((hiY - loY) * i) / 4);
      chart.append(svg("line", { class: "grid", x1: L, x2: W - R, y1: Y(y), y2: Y(y) }), svg("text", { x: L - 8, y: Y(y) + 4, "text-anchor": "end" }, ms(y)));
    }
    for (let i = 0; i < P.points.length; i += narrow ? 20 : 5) chart.append(svg("text", { x: X(P.points[i][0]), y: H - 10, "text-anchor": i === 0 ? "start" : i + 1 >= P.points.length ? "end" : "middle" }, `${bytes(P.points[i][0])}/s`));
    chart.append(svg("line", { class: "here", x1: X(P.now), x2: X(P.now), y1: T, y2: H - B }), svg("text", { x: X(P.now) + 6, y: T + 10 }, "this cluster"),
      svg("path", { class: "spread", d: path(2) }), svg("path", { class: "ours", d: path(1) }));
    // Each label stands where the curves are furthest apart, on the outer side of its own.
    const apart = P.points.map((p) => Math.abs(Math.log(Math.max(p[1], 1e-9) / Math.max(p[2], 1e-9))));
    const inner = apart.map((d, i) => (i > 2 && i < apart.length * 0.8 ? d : -1));
    const at = inner.indexOf(Math.max(...inner)), [vx, mine, theirs] = P.points[at];
    const beside = (own, other) => Math.min(Y(own) + (own >= other ? -12 : 24), H - B - 6);
    const place = { x: Math.min(X(vx), W - R), "text-anchor": X(vx) > W - R - 100 ? "end" : "start" };
    chart.append(svg("text", { ...place, y: beside(theirs, mine), class: "spread-name" }, "data parallel"), svg("text", { ...place, y: beside(mine, theirs + 1e-12), class: "ours-name" }, "this plan"));
    $("curve").append(chart);
    $("curve-note").textContent = `Time per ${what} by topology against the bandwidth of level ${P.level}'s ports, the plan left as it is. With another network another plan may be better: pipeplan solve --sweep finds where.`;
  }

  // ---- reproduction ----------------------------------------------------------------------------------
  $("command").textContent = clean(D.command);
  $("cluster-toml").textContent = D.cluster_toml;
  const save = (id, name, text) => $(id).addEventListener("click", () => {
    const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  save("save-profile", "profile.json", `${JSON.stringify(D.plan.profile, null, 1)}\n`);
  save("save-cluster", "cluster.toml", D.cluster_toml);
  save("save-plan", "plan.json", `${JSON.stringify(D.plan, null, 1)}\n`);
  const inputs = [["Question", D.question], ["Profile digest", D.plan.profile_digest], ["Backend", `${D.plan.backend || "none"}, seed ${D.plan.seed}, ${D.plan.workers} ${D.plan.workers === 1 ? "worker" : "workers"}`], ["Status", D.status], ["pipeplan", D.version || "unknown"]];
  for (const [key, value] of Object.entries(D.plan.profile.metadata || {})) {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    inputs.push([`Profile: ${key}`, text.length > 240 ? `${text.slice(0, 240)}\u2026 (in profile.json)` : text]);
  }
  for (const [key, value] of inputs) $("inputs").append(el("dt", {}, key), el("dd", {}, value));
  $("foot").textContent = "Made by pipeplan. Everything on this page is in this one file; nothing is loaded from anywhere.";
  document.querySelectorAll(".scroll").forEach((x) => new ResizeObserver(() => x.classList.toggle("more", x.scrollHeight > x.clientHeight + 2)).observe(x));
  document.documentElement.dataset.ready = "true";
  window.pipeplanViews = views;
})();
