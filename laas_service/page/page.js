// SPDX-License-Identifier: Apache-2.0
"use strict";
(() => {
  const FREE = 1, OTHERS = 2, WITHHELD = 3, FIRST = 4;
  const STATES = ["no cable", "up", "drained", "failed"];
  const UNKNOWN_LOAD = 255, GAP = 3, MOST_ROWS = 200;
  const SHARES = { load: "reserved", promised: "promised to sharers", measured: "measured" };
  const TITLES = { hosts: "Hosts", leaf: "Leaf links", spine: "Spine links" };
  const given = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const canvas = at("cells"), pen = canvas.getContext("2d", { alpha: false });
  let map, panels, view, chosen = null, focusTenant = null, queued = false, colours = {};

  // -- the map ----------------------------------------------------------------

  function load(document_) {
    const same = map && JSON.stringify(map.tree) === JSON.stringify(document_.tree);
    const kept = same && { view, below: map.podsBelow, question: map.question,
      chosen: chosen && [chosen.panel.name, chosen.cell],
      tenant: focusTenant === null ? null : map.tenants[focusTenant].id };
    map = document_;
    const hosts = matrix("hosts"), leaf = matrix("leaf"), spine = matrix("spine");
    const [down, up] = map.tree.cables, width1 = map.tree.w[1], width2 = map.tree.w[2];
    leaf.band = hosts.band = map.tree.m[1];
    spine.band = Math.max(1, Math.floor(width1 / down));
    hosts.x = 0;
    leaf.x = hosts.columns + GAP;
    spine.x = leaf.x + leaf.columns + (leaf.columns ? GAP : 0);
    panels = [hosts, leaf, spine].filter((panel) => panel.rows && panel.columns);
    map.hostOfCell = new Map();
    map.hosts.forEach((host, number) => host[1].forEach((c) => map.hostOfCell.set(c, number)));
    map.pods = map.tree.m[2];
    map.podWidth = Math.max(...panels.map((panel) => panel.x + panel.columns)) + 2 * GAP;
    map.podHeight = Math.max(...panels.map((panel) => panel.band)) + 1;
    map.l2PerPod = Math.max(1, Math.floor(width1 / down));
    map.spinesPerGroup = Math.max(1, Math.floor(width2 / up));
    map.tenantOf = new Map(map.tenants.map((tenant, number) => [tenant.id, number]));
    chosen = null;
    focusTenant = null;
    document.title = `${map.fabric} - fabric map`;
    at("name").textContent = map.fabric;
    if (same) restore(kept);
    else whole();
    paintPanels();
    const focus = focusedButton();
    texts();
    if (same) find(at("search").value, false);
    focus();
  }
  // Tables are made anew; the button that had the focus has it again afterwards.
  function focusedButton() {
    const table_ = document.activeElement.closest("table");
    const all = () => [...table_.querySelectorAll("button")];
    const place_ = table_ ? all().indexOf(document.activeElement) : -1;
    return () => place_ >= 0 && all()[place_] && all()[place_].focus();
  }
  // What the person looks at stays where it is, while all that is shown becomes new.
  function restore(kept) {
    view = kept.view;
    map.podsBelow = kept.below;
    map.question = map.question || kept.question;
    focusTenant = kept.tenant === null ? null : map.tenantOf.get(kept.tenant) ?? null;
    const panel = kept.chosen && panels.find((one) => one.name === kept.chosen[0]);
    if (panel) choose(panel, kept.chosen[1], false);
  }
  function matrix(name) {
    const raw = map.matrices[name];
    const load = bytes(raw.load), promises = new Map(Object.entries((map.promises || {})[name] || {})
      .map(([cell, both]) => [Number(cell), both]));
    const part = (field) => {
      const made = new Uint8Array(load.length);
      for (const [cell, both] of promises) made[cell] = Math.min(UNKNOWN_LOAD - 1,
        Math.ceil(Math.max(...both.map((one) => 100 * (one[field] || 0) / one.bandwidth))));
      return made;
    };
    return {
      name, rows: raw.rows, columns: raw.columns, owner: words(raw.owner), state: bytes(raw.state),
      load, promised: part("promised"), measured: part("measured"), promises,
      lower: raw.lower ? words(raw.lower) : null,
      upper: raw.upper ? words(raw.upper) : null, image: document.createElement("canvas"),
    };
  }

  // -- colours ----------------------------------------------------------------

  const known = {}; // by theme: numbers of colours by tenant, as long as the page is open
  function tenantColours(states) {
    const theme_ = document.documentElement.dataset.theme, list = paletteBeside(states);
    known[theme_] = known[theme_] || new Map();
    const hosts = panels.find((panel) => panel.name === "hosts");
    const places = map.tenants.map(() => new Set());
    if (hosts) hosts.owner.forEach((owner, cell) => owner >= FIRST &&
      places[owner - FIRST].add(Math.floor(cell / hosts.columns / hosts.band)));
    const ids = map.tenants.map((tenant) => tenant.id);
    return numbersOfColours(ids, places, known[theme_], list.length).map((number) => list[number]);
  }
  function loadColour(percent) {
    const dark = document.documentElement.dataset.theme === "dark";
    return hsl(215 - 1.9 * Math.min(percent, 110), 65, dark ? 30 + percent / 4 : 82 - percent / 2.4);
  }
  function paintPanels() {
    colours = {
      paper: rgb(style("--paper")), free: rgb(style("--free")), others: rgb(style("--others")),
      withheld: rgb(style("--withheld")), failed: rgb(style("--failed")),
      drained: rgb(style("--drained")), up: rgb(style("--up")), ink: rgb(style("--ink")),
      accent: style("--accent"), line: style("--line"), dim: style("--dim"),
    };
    colours.tenants = tenantColours(["paper", "free", "others", "withheld", "failed", "drained", "up"]
      .map((name) => colours[name]));
    for (const panel of panels) paintPanel(panel);
    legend();
    redraw();
  }
  function paintPanel(panel) {
    const mode = at("colour").value, image = panel.image;
    image.width = panel.columns;
    image.height = panel.rows;
    const inside = image.getContext("2d"), pixels = inside.createImageData(panel.columns, panel.rows);
    const packed = new Uint32Array(pixels.data.buffer), cache = new Map();
    const parts = panel[mode] || panel.load;
    for (let cell = 0; cell < packed.length; cell++) {
      const owner = panel.owner[cell], state = panel.state[cell], part = parts[cell];
      const key = owner * 65536 + state * 256 + part;
      let colour = cache.get(key);
      if (colour === undefined) {
        const [r, g, b] = cellColour(mode, owner, state, part);
        colour = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
        cache.set(key, colour);
      }
      packed[cell] = colour;
    }
    inside.putImageData(pixels, 0, 0);
  }
  function cellColour(mode, owner, state, part) {
    if (state === 0) return colours.paper;
    if (SHARES[mode]) {
      if (owner === OTHERS && !map.everything) return colours.others;
      return part ? loadColour(part) : colours.free;
    }
    if (state === 3) return colours.failed;
    if (mode === "state") {
      if (owner === OTHERS && !map.everything) return colours.others;
      return state === 2 ? colours.drained : colours.up;
    }
    if (owner >= FIRST) {
      const own = colours.tenants[owner - FIRST];
      if (focusTenant === null || focusTenant === owner - FIRST) return own;
      return own.map((value, i) => Math.round(0.25 * value + 0.75 * colours.free[i]));
    }
    if (owner === OTHERS) return colours.others;
    if (owner === WITHHELD) return colours.withheld;
    return state === 2 ? colours.drained : colours.free;
  }
  function legend() {
    const mode = at("colour").value, entries = [];
    if (mode === "owner") {
      if (map.everything) entries.push(["free", colours.free], ["common plane", colours.withheld],
        ["drained and free", colours.drained]);
      else entries.push(["not yours", colours.others]);
      entries.push(["failed", colours.failed]);
      map.tenants.slice(0, 12).forEach((t, i) => entries.push([label(t), colours.tenants[i]]));
      if (map.tenants.length > 12) entries.push([`and ${map.tenants.length - 12} more tenants`, null]);
    } else if (mode === "state") {
      entries.push(["up", colours.up], ["drained", colours.drained], ["failed", colours.failed]);
      if (!map.everything) entries.push(["not yours", colours.others]);
    } else {
      const what = SHARES[mode];
      for (const part of [25, 50, 75, 100]) entries.push([`${part} % ${what}`, loadColour(part)]);
      entries.push([`nothing ${what}`, colours.free]);
      if (!map.everything) entries.push(["not yours", colours.others]);
    }
    at("legend").replaceChildren(...entries.map(([text, colour]) => element("li", {},
      colour ? drawn("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" },
        drawn("rect", { width: 1, height: 1, fill: css(colour) })) : "", text)));
  }

  // -- drawing of a frame -----------------------------------------------------

  function size() {
    const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    const width = Math.max(1, Math.round(box.width * ratio));
    const height = Math.max(1, Math.round(box.height * ratio));
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    return ratio;
  }
  function whole() {
    // pods stand below each other, in as many columns as lets the cells be largest
    const ratio = size(), wide = canvas.width, high = canvas.height - 40 * ratio;
    let best = 0;
    for (let rows = 1; rows <= map.pods; rows++) {
      const columns = Math.ceil(map.pods / rows);
      const scale = Math.min(wide / (columns * map.podWidth), high / (rows * map.podHeight));
      if (scale > best * 1.02) [best, map.podsBelow] = [scale, rows];
    }
    const scale = Math.max(2 * ratio, Math.min(best, 26 * ratio));
    view = { scale, x: scale, y: 30 * ratio };
    redraw();
  }
  function origin(panel, pod) {
    return [panel.x + Math.floor(pod / map.podsBelow) * map.podWidth,
      (pod % map.podsBelow) * map.podHeight];
  }
  function corner(panel, cell) {
    const { column, pod, low } = placeOf(panel, cell), [x, y] = origin(panel, pod);
    return [view.x + (x + column) * view.scale, view.y + (y + low) * view.scale];
  }
  function redraw() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      frame();
    });
  }
  function frame() {
    if (!map) return;
    const ratio = size(), { scale, x, y } = view;
    pen.fillStyle = css(colours.paper);
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.imageSmoothingEnabled = false;
    for (const panel of panels) {
      for (let pod = 0; pod < map.pods; pod++) drawPod(panel, pod, ratio);
      mark(panel);
    }
    pen.fillStyle = css(colours.ink);
    pen.font = `${12 * ratio}px system-ui, sans-serif`;
    for (const panel of panels) {
      for (let pod = 0; pod < map.pods; pod += map.podsBelow) {
        const px = x + origin(panel, pod)[0] * scale, wide = (panel.columns + GAP - 0.5) * scale;
        if (wide > 45 * ratio || pod === 0) pen.fillText(TITLES[panel.name], px,
          Math.max(14 * ratio, y - 8 * ratio), Math.max(wide, 20 * ratio));
      }
    }
    const [first] = panels, room = (map.podHeight - first.band) * scale;
    pen.fillStyle = colours.dim;
    for (let pod = 0; pod < map.pods && room > 14 * ratio; pod++) {
      const [px, py] = origin(first, pod);
      pen.fillText(`Pod ${pod}`, x + px * scale, y + (py + first.band) * scale + 13 * ratio);
    }
  }
  function drawPod(panel, pod, ratio) {
    const { scale, x, y } = view, [ox, oy] = origin(panel, pod);
    // only the visible part is scaled: the work of a frame does not grow with the fabric
    const left = Math.max(0, Math.floor(-x / scale - ox));
    const right = Math.min(panel.columns, Math.ceil((canvas.width - x) / scale - ox));
    const top = Math.max(0, Math.floor(-y / scale - oy));
    const bottom = Math.min(panel.band, Math.ceil((canvas.height - y) / scale - oy));
    if (right <= left || bottom <= top) return;
    const px = x + (ox + left) * scale, py = y + (oy + top) * scale;
    pen.drawImage(panel.image, left, pod * panel.band + top, right - left, bottom - top,
      px, py, (right - left) * scale, (bottom - top) * scale);
    if (scale < 7 * ratio) return;
    pen.strokeStyle = css(colours.paper);
    pen.lineWidth = 1;
    pen.beginPath();
    for (let column = left; column <= right; column++) {
      pen.moveTo(px + (column - left) * scale, py);
      pen.lineTo(px + (column - left) * scale, py + (bottom - top) * scale);
    }
    for (let row = top; row <= bottom; row++) {
      pen.moveTo(px, py + (row - top) * scale);
      pen.lineTo(px + (right - left) * scale, py + (row - top) * scale);
    }
    pen.stroke();
  }
  function mark(panel) {
    const { scale } = view, ratio = window.devicePixelRatio || 1;
    const would = map.question && map.question.cells ? map.question.cells[panel.name] : null;
    if (would) {
      pen.strokeStyle = css(colours.ink);
      pen.lineWidth = Math.max(1, Math.min(3 * ratio, scale / 5));
      const inset = pen.lineWidth / 2;
      pen.beginPath();
      for (const cell of would) {
        const [px, py] = corner(panel, cell);
        if (px < -scale || py < -scale || px > canvas.width || py > canvas.height) continue;
        pen.rect(px + inset, py + inset, scale - 2 * inset, scale - 2 * inset);
      }
      pen.stroke();
    }
    if (chosen && chosen.panel === panel) {
      const [px, py] = corner(panel, chosen.cell);
      pen.strokeStyle = colours.accent;
      pen.lineWidth = 3 * ratio;
      pen.strokeRect(px - 2 * ratio, py - 2 * ratio, scale + 4 * ratio, scale + 4 * ratio);
    }
  }

  // -- a cell in words --------------------------------------------------------

  function placeOf(panel, cell) {
    const row = Math.floor(cell / panel.columns), column = cell % panel.columns;
    return { row, column, pod: Math.floor(row / panel.band), low: row % panel.band };
  }
  function switchName(level, row) {
    const [name, guid] = map.switches[level][row] || ["", ""];
    return { name, guid };
  }
  function describe(panel, cell) {
    const { row, column, pod, low } = placeOf(panel, cell), facts = [];
    const owner = panel.owner[cell], hidden = owner === OTHERS && !map.everything;
    const lowLevel = panel.name === "spine" ? "l2" : "leaf";
    const lower = switchName(lowLevel, row);
    const kind = panel.name === "spine" ? "L2 switch" : "leaf";
    if (panel.name === "hosts") {
      const number = map.hostOfCell.get(cell);
      facts.push(["Host", number === undefined ? `slot ${column}` : map.hosts[number][0]]);
      if (number !== undefined && map.hosts[number][2].length)
        facts.push(["Port GUIDs", map.hosts[number][2].join(" ")]);
    } else {
      facts.push(["Cable", `${panel.name}-${pod}-${low}-${column}`]);
    }
    facts.push(["Lower switch", [lower.name, `${kind} ${low} of pod ${pod}`].filter(Boolean).join(", ")]);
    if (lower.guid) facts.push(["Port", portName(lower, panel.lower && panel.lower[cell])]);
    if (panel.name !== "hosts") {
      const [level, upRow, text] = panel.name === "leaf"
        ? ["l2", pod * map.l2PerPod + Math.floor(column / map.tree.cables[0]), "L2 switch"]
        : ["spine", low * map.spinesPerGroup + Math.floor(column / map.tree.cables[1]), "spine"];
      const upper = switchName(level, upRow);
      const index = panel.name === "leaf" ? upRow % map.l2PerPod : upRow % map.spinesPerGroup;
      facts.push(["Upper switch", [upper.name, `${text} ${index}`].filter(Boolean).join(", ")]);
      if (upper.guid) facts.push(["Port", portName(upper, panel.upper && panel.upper[cell])]);
    }
    facts.push(["Owner", ownerName(owner)]);
    const several = map.shared[panel.name] && map.shared[panel.name][cell];
    if (several) facts.push(["Shared by", several.map((t) => (map.tenants[t] ? label(map.tenants[t]) : "another")).join(", ")]);
    if (!hidden) {
      facts.push(["State", STATES[panel.state[cell]]]);
      if (panel.load[cell] !== UNKNOWN_LOAD && panel.name !== "hosts")
        facts.push(["Reserved", `${panel.load[cell]} % of the bandwidth`]);
    }
    for (const one of panel.promises.get(cell) || [])
      facts.push([`Promised ${one.direction}`, `${promisedText(one)}; measured ${measuredText(one)}; ` +
        `probability of an outage at most ${one.outage}`]);
    return facts;
  }
  function ownerName(owner) {
    if (owner >= FIRST) return label(map.tenants[owner - FIRST]);
    return { [FREE]: "free", [OTHERS]: map.everything ? "another allocation" : "not yours",
      [WITHHELD]: "withheld for shared traffic" }[owner] || "none";
  }
  function choose(panel, cell, move = true) {
    chosen = { panel, cell };
    const facts = describe(panel, cell), owner = panel.owner[cell];
    const list = element("dl", {}, ...facts.flatMap(([name, text]) => [
      element("dt", {}, name), element("dd", {}, String(text))]));
    at("cell").replaceChildren(list);
    if (owner >= FIRST) at("cell").append(element("p", {}, element("button", {
      type: "button", id: "show-owner", click: () => showTenant(owner - FIRST) },
    `Show ${label(map.tenants[owner - FIRST])}`)));
    if (move) intoView(panel, cell);
    redraw();
  }
  function intoView(panel, cell) {
    const { scale } = view, [px, py] = corner(panel, cell);
    if (px < 0) view.x -= px - scale;
    if (px > canvas.width - scale) view.x -= px - canvas.width + 2 * scale;
    if (py < 20) view.y -= py - 40;
    if (py > canvas.height - scale) view.y -= py - canvas.height + 3 * scale;
  }

  // -- tables and texts -------------------------------------------------------

  function table(id, columns, rows, none) {
    const head = element("thead", {}, element("tr", {},
      ...columns.map((column) => element("th", { scope: "col" }, column))));
    const body = rows.length ? rows.map((row) => element("tr", {},
      ...row.map((value) => element("td", {}, value instanceof Node ? value : String(value ?? "-")))))
      : [element("tr", {}, element("td", { colspan: columns.length }, none))];
    at(id).replaceChildren(head, element("tbody", {}, ...body));
  }
  function texts() {
    const { m, w, rails } = map.tree, counts = map.counts, tenants = map.tenants.length;
    const parts = [`XGFT(3; ${m.join(",")}; ${w.join(",")})${rails > 1 ? `, ${rails} rails` : ""}`];
    if (map.generation) parts.push(`generation ${map.generation}`);
    if (counts && counts.hosts) parts.push(`${counts.hosts.total} hosts: ${counts.hosts.allocated} with an owner, ` +
      `${counts.hosts.free} free, ${counts.hosts.failed} failed, ${counts.hosts.drained} drained`);
    parts.push(map.everything ? counted(tenants, "tenant", "tenants")
      : `${counted(tenants, "allocation", "allocations")} of your project; all else is grey`);
    if (map.at) parts.push(`as of ${moment(map.at)}`);
    at("summary").textContent = parts.join(" - ");
    canvas.setAttribute("aria-label", `Cables by level of ${map.fabric}: ` +
      panels.map((p) => `${TITLES[p.name]}, ${p.rows} by ${p.columns}`).join("; "));
    tenantTable(map.tenants.map((_, number) => number));
    hostTable(map.hosts.map((_, number) => number));
    promiseTable();
    queueTable();
    table("faults", ["What", "State", "Said by", "Since", "Evidence"],
      (map.faults || []).slice(0, MOST_ROWS).map((fault) => [place(fault), fault.state, fault.source,
        moment(fault.since), fault.evidence]), "Nothing is failed, drained or being repaired.");
    question();
    utilization();
    attention();
    if (focusTenant === null) at("tree-section").hidden = true;
  }
  function attention() {
    const entries = needsAPerson(map, Date.now());
    at("attention").hidden = !entries.length;
    table("needs", ["What", "State", "Since", "Why", "Next step"], entries.slice(0, MOST_ROWS).map((one) => [
      one.tenant === undefined || one.tenant < 0 ? place(one.fault || { kind: "", name: one.what })
        : element("button", { type: "button", click: () => showTenant(one.tenant) }, one.what),
      element("span", { class: one.level === "waiting" ? "warn" : "bad" }, one.level),
      moment(one.since), one.why, one.next]), "");
    at("needs-title").textContent = `Needs a person: ${entries.length}`;
  }
  function place(fault) {
    const text = `${fault.kind} ${fault.name}`.trim();
    return element("button", { type: "button", click: () => find(fault.name) }, text);
  }
  function tenantTable(numbers) {
    table("tenants", ["Name", "State", "Hosts", "Links", "Shape"],
      numbers.slice(0, MOST_ROWS).map((number) => {
        const tenant = map.tenants[number];
        return [element("button", { type: "button", click: () => showTenant(number) }, label(tenant)),
          stateText(tenant), tenant.hosts, tenant.leaf_links + tenant.spine_links, tenant.shape];
      }), "No tenant.");
    at("more-tenants").textContent = numbers.length > MOST_ROWS
      ? `The first ${MOST_ROWS} of ${numbers.length}; search for others.` : "";
  }
  function stateText(tenant) {
    const crossed = tenant.crossed_by
      ? `, crossed by ${counted(tenant.crossed_by, "pair", "pairs")} of others` : "";
    return (tenant.state || "-") + crossed;
  }
  function promiseTable() {
    const rows = panels.flatMap((panel) => [...panel.promises].flatMap(([cell, both]) =>
      both.map((one) => ({ panel, cell, one }))));
    rows.sort((a, b) => b.one.promised / b.one.bandwidth - a.one.promised / a.one.bandwidth);
    at("promises-section").hidden = !rows.length;
    table("promises", ["Link", "Direction", "Promised", "Measured", "Outage at most"],
      rows.slice(0, MOST_ROWS).map(({ panel, cell, one }) => [
        element("button", { type: "button", click: () => choose(panel, cell) },
          describe(panel, cell)[0].join(" ")),
        one.direction, promisedText(one), measuredText(one), one.outage]), "No link promises anything.");
    at("more-promises").textContent = rows.length > MOST_ROWS
      ? `The ${MOST_ROWS} with the highest share of ${rows.length}.` : "";
  }
  function hostTable(numbers) {
    const hosts = panels.find((panel) => panel.name === "hosts");
    table("hosts", ["Host", "State", "Owner", "Leaf"], numbers.slice(0, MOST_ROWS).map((number) => {
      const [name, cells] = map.hosts[number], cell = cells[0];
      const row = Math.floor(cell / hosts.columns), leaf = switchName("leaf", row).name;
      return [element("button", { type: "button", click: () => choose(hosts, cell) }, name),
        STATES[hosts.state[cell]], ownerName(hosts.owner[cell]),
        leaf || `${row % hosts.band} of pod ${Math.floor(row / hosts.band)}`];
    }), map.everything ? "No host." : "No host of yours.");
    at("more-hosts").textContent = numbers.length > MOST_ROWS
      ? `The first ${MOST_ROWS} of ${numbers.length}; search for others.` : "";
  }
  function showTenant(number) {
    focusTenant = focusTenant === number ? null : number;
    const tenant = map.tenants[number];
    const svg = new DOMParser().parseFromString(tenant.drawing, "image/svg+xml").documentElement;
    at("tree").replaceChildren(document.importNode(svg, true));
    at("tree-title").textContent = `Tree of ${label(tenant)}`;
    at("save-tree").onclick = () => save(`${label(tenant)}.svg`, tenant.drawing);
    at("tree-section").hidden = false;
    at("found").textContent = focusTenant === null ? "All tenants are shown." :
      `${label(tenant)}: ${tenant.hosts} hosts, ${tenant.leaf_links} leaf links, ` +
      `${tenant.spine_links} spine links.`;
    for (const panel of panels) paintPanel(panel);
    if (focusTenant !== null) {
      const hosts = panels.find((panel) => panel.name === "hosts");
      const cell = hosts ? hosts.owner.indexOf(number + FIRST) : -1;
      if (cell >= 0) intoView(hosts, cell);
    }
    redraw();
  }
  // -- queue, question, utilization -------------------------------------------

  function queueTable() {
    const queue = map.queue || [];
    table("queue", ["Place", "Name", "Hosts", "Expected start", "What it waits for"],
      queue.map((entry) => [entry.position, entry.name || entry.id, entry.requested,
        moment(entry.expected_start), entry.detail || "about to be admitted"]), "Nobody waits.");
    const ending = map.tenants.filter((tenant) => tenant.ends_at && tenant.created_at);
    const rows = [
      ...ending.map((t) => ["running", label(t), Date.parse(t.created_at), Date.parse(t.ends_at)]),
      ...queue.filter((q) => q.expected_start).map((q) => ["reserved", q.name || q.id,
        Date.parse(q.expected_start), Date.parse(q.expected_start) + 1000 * (q.duration || 3600)]),
    ].slice(0, 40);
    if (!rows.length) return at("timeline").replaceChildren();
    const from = Math.min(...rows.map((row) => row[2])), to = Math.max(...rows.map((row) => row[3]));
    const x = (time) => 130 + 460 * (time - from) / Math.max(1, to - from);
    const chart = drawn("svg", { class: "chart", viewBox: `0 0 600 ${rows.length * 18 + 24}`,
      role: "img", "aria-label": `Reservations over time: ${rows.map((row) =>
        `${row[1]} ${row[0]} from ${moment(row[2])} to ${moment(row[3])}`).join("; ")}` });
    rows.forEach(([kind, name, start, end], number) => chart.append(
      drawn("rect", { class: kind, x: x(start), y: number * 18 + 4, height: 11,
        width: Math.max(2, x(end) - x(start)) }),
      drawn("text", { x: 0, y: number * 18 + 13 }, name.slice(0, 20))));
    const low = rows.length * 18 + 18;
    chart.append(drawn("text", { x: 130, y: low }, moment(from)),
      drawn("text", { x: 590, y: low, "text-anchor": "end" }, moment(to)));
    at("timeline").replaceChildren(chart);
  }
  function question() {
    const asked = map.question, box = at("question");
    at("ask").hidden = at("ask-slots").hidden = !given.source;
    if (!asked) {
      box.replaceChildren(element("p", {}, given.source
        ? "Ask whether a number of hosts, or of slots of shared hosts, fits, where it would lie, " +
          "and what is in the way."
        : "Nothing was asked when this page was made."));
      return;
    }
    const size = asked.slots ? `${asked.slots} slots` : `${asked.hosts} hosts`;
    const lines = [element("p", { class: asked.fits ? null : "bad", id: "verdict" }, asked.fits
      ? `${size} fit now${asked.shape ? ` as ${asked.shape}` : ""}.`
      : `${size} are refused: ${asked.detail} (${asked.reason}).`)];
    lines.push(element("p", {}, `The largest size that fits now is ${asked.largest_fit}.`));
    if (asked.crossed_more > 0) lines.push(element("p", {}, "Packets of " +
      `${counted(asked.crossed_more, "further pair", "further pairs")} of ports would cross owned links.`));
    if (asked.cells) lines.push(element("p", {}, asked.fits
      ? "It would lie in the outlined cells."
      : "With the changes below it would lie in the outlined cells."));
    if (asked.risks && asked.risks.length) lines.push(
      element("h3", {}, "Further tenants with these slots, by the risk of links"),
      element("ul", { id: "risks-answer" }, ...asked.risks.map((at_) => element("li", {},
        `risk ${at_.risk}: ${counted(at_.tenants, "tenant", "tenants")}${at_.more ? " or more" : ""}`))));
    const named = (ids) => ids.map((id) => {
      const number = map.tenantOf.get(id);
      return number === undefined ? element("li", {}, id) : element("li", {}, element("button",
        { type: "button", click: () => showTenant(number) }, label(map.tenants[number])));
    });
    if (asked.releases && asked.releases.length) lines.push(
      element("h3", {}, "In the way: release these"), element("ul", { id: "in-the-way" }, ...named(asked.releases)));
    if (asked.undrain && asked.undrain.length) lines.push(
      element("h3", {}, "Or use these drained hosts again"), element("p", {}, asked.undrain.join(" ")));
    if (asked.moves && asked.moves.length) lines.push(
      element("h3", {}, `Or move these (${counted(asked.moved_hosts, "host", "hosts")} to new places)`),
      element("ul", { id: "to-move" }, ...named(asked.moves)));
    box.replaceChildren(...lines);
    redraw();
  }
  function utilization() {
    const points = map.series || [], counts = map.counts;
    const box = at("use"), lines = [];
    for (const [name, key] of [["Hosts", "hosts"], ["Leaf links", "leaf_links"], ["Spine links", "spine_links"]]) {
      const use = counts && counts[key];
      if (use) lines.push(element("p", {}, `${name}: ${use.allocated} of ${use.total} with an owner, ` +
        `${use.free} free, ${use.failed} failed.`));
    }
    if (points.length > 1) {
      const most = Math.max(...points.map((p) => p[1]));
      const total = Math.max(1, counts && counts.hosts ? counts.hosts.total : most);
      const from = Date.parse(points[0][0]) || points[0][0];
      const end = points[points.length - 1][0], to = Date.parse(end) || end;
      const x = (t) => 40 + 550 * ((Date.parse(t) || t) - from) / Math.max(1, to - from);
      const y = (n) => 120 - 110 * n / total;
      let path = `M40 ${y(0)}`, last = 0;
      for (const [time, used] of points) {
        path += `L${x(time).toFixed(1)} ${y(last).toFixed(1)}L${x(time).toFixed(1)} ${y(used).toFixed(1)}`;
        last = used;
      }
      path += `L590 ${y(last).toFixed(1)}L590 ${y(0)}Z`;
      const what = map.everything ? "Hosts of all allocations" : "Hosts of your allocations";
      lines.push(element("h3", {}, `${what} over time, as requested`));
      lines.push(drawn("svg", { class: "chart", viewBox: "0 0 600 142", role: "img",
        "aria-label": `${what} over time, of ${total}: ${spoken(points)}` },
      drawn("path", { class: "used", d: path }),
      drawn("path", { class: "axis", d: "M40 10V120H590", fill: "none" }),
      drawn("text", { x: 0, y: 16 }, String(total)), drawn("text", { x: 0, y: 122 }, "0"),
      drawn("text", { x: 40, y: 136 }, moment(points[0][0])),
      drawn("text", { x: 590, y: 136, "text-anchor": "end" }, moment(end))));
    } else lines.push(element("p", {}, "No course over time was recorded."));
    box.replaceChildren(...lines);
  }

  // -- search -----------------------------------------------------------------

  function find(text, move = true) {
    const wanted = text.trim().toLowerCase(), status = at("found");
    if (!wanted) {
      tenantTable(map.tenants.map((_, number) => number));
      hostTable(map.hosts.map((_, number) => number));
      if (move) status.textContent = "";
      return;
    }
    const has = (...values) => values.some((value) => String(value || "").toLowerCase().includes(wanted));
    const tenants = [], hosts = [];
    map.tenants.forEach((t, number) => has(t.id, t.name, t.project) && tenants.push(number));
    map.hosts.forEach((host, number) => has(host[0], ...host[2]) && hosts.push(number));
    tenantTable(tenants);
    hostTable(hosts);
    if (!move) return;
    const link = /^(leaf|spine)-(\d+)-(\d+)-(\d+)$/.exec(wanted);
    const hit = (link && cable(link)) || port(wanted) || exact(wanted, hosts) || switchRow(wanted);
    if (hit) choose(hit[0], hit[1]);
    else if (tenants.length === 1 && !hosts.length && focusTenant !== tenants[0]) showTenant(tenants[0]);
    else if (hosts.length) choose(panels[0], map.hosts[hosts[0]][1][0]);
    const kinds = [counted(tenants.length, "tenant", "tenants"), counted(hosts.length, "host", "hosts")];
    if (hit) kinds.push(describe(hit[0], hit[1]).slice(0, 2).map((fact) => fact.join(" ")).join(", "));
    status.textContent = tenants.length || hosts.length || hit ? `Found: ${kinds.join(", ")}.`
      : "Nothing of that name here.";
  }
  function cable([, kind, pod, low, up]) {
    const panel = panels.find((one) => one.name === kind);
    if (!panel) return null;
    const row = Number(pod) * panel.band + Number(low);
    return row < panel.rows && Number(low) < panel.band && Number(up) < panel.columns
      ? [panel, row * panel.columns + Number(up)] : null;
  }
  function exact(wanted, hosts) {
    const number = hosts.find((one) => map.hosts[one][0].toLowerCase() === wanted
      || map.hosts[one][2].includes(wanted));
    return number === undefined ? null : [panels[0], map.hosts[number][1][0]];
  }
  function switchRow(wanted) {
    for (const [level, name] of [["leaf", "hosts"], ["l2", "spine"], ["l2", "leaf"]]) {
      const row = map.switches[level].findIndex((one) => one[0].toLowerCase() === wanted || one[1] === wanted);
      const panel = panels.find((one) => one.name === name);
      if (row >= 0 && panel && row < panel.rows && (level !== "l2" || name === "spine"))
        return [panel, row * panel.columns];
    }
    return null;
  }
  function port(wanted) {
    const [, named, number] = /^(.+)\/(\d+)$/.exec(wanted) || [];
    if (!named) return null;
    for (const panel of panels.filter((one) => one.lower)) {
      for (let cell = 0; cell < panel.lower.length; cell++) {
        const facts = panel.lower[cell] === Number(number) || panel.upper[cell] === Number(number);
        if (facts && describe(panel, cell).some(([name, text]) => name === "Port" &&
          (text.startsWith(`${named}/${number} `) || text.toLowerCase().includes(`(${named}/${number})`))))
          return [panel, cell];
      }
    }
    return null;
  }

  // -- what people do ---------------------------------------------------------

  function zoom(factor, x = canvas.width / 2, y = canvas.height / 2) {
    const scale = Math.min(80, Math.max(0.5, view.scale * factor)), grown = scale / view.scale;
    view = { scale, x: x - (x - view.x) * grown, y: y - (y - view.y) * grown };
    redraw();
  }
  function under(event) {
    const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
    const x = ((event.clientX - box.left) * ratio - view.x) / view.scale;
    const y = ((event.clientY - box.top) * ratio - view.y) / view.scale;
    const fold = Math.floor(x / map.podWidth), step = Math.floor(y / map.podHeight);
    const pod = fold * map.podsBelow + step, low = Math.floor(y - step * map.podHeight);
    if (fold < 0 || step < 0 || step >= map.podsBelow || pod >= map.pods) return null;
    for (const panel of panels) {
      const column = Math.floor(x - fold * map.podWidth - panel.x);
      if (column >= 0 && column < panel.columns && low < panel.band)
        return [panel, (pod * panel.band + low) * panel.columns + column];
    }
    return null;
  }
  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = fingers.get(event.pointerId);
    if (!last || !map) return;
    const ratio = window.devicePixelRatio || 1, dx = event.clientX - last[0], dy = event.clientY - last[1];
    if (fingers.size === 2) {
      const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, place_]) => place_);
      const before = Math.hypot(last[0] - other[0], last[1] - other[1]);
      const now = Math.hypot(event.clientX - other[0], event.clientY - other[1]);
      if (before > 0) zoom(now / before);
      moved = 99;
    } else {
      view.x += dx * ratio;
      view.y += dy * ratio;
      moved += Math.abs(dx) + Math.abs(dy);
    }
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    redraw();
  });
  canvas.addEventListener("pointerup", (event) => {
    fingers.delete(event.pointerId);
    const hit = map && moved < 5 ? under(event) : null;
    if (hit) choose(hit[0], hit[1], false);
  });
  canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("wheel", (event) => {
    if (!map) return;
    event.preventDefault();
    const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
    if (event.ctrlKey) {
      zoom(Math.exp(-event.deltaY / 300), (event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio);
      return;
    }
    view.x -= event.deltaX * ratio;
    view.y -= event.deltaY * ratio;
    redraw();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (!map || event.ctrlKey || event.altKey || event.metaKey) return;
    const { panel, cell } = chosen || { panel: panels[0], cell: -1 };
    const row = Math.floor(cell / panel.columns), column = cell % panel.columns;
    const to = (r, c) => choose(panel, Math.min(panel.rows - 1, Math.max(0, r)) * panel.columns
      + Math.min(panel.columns - 1, Math.max(0, c)));
    const other = (step) => choose(panels[(panels.indexOf(panel) + step + panels.length) % panels.length], 0);
    const acts = {
      ArrowUp: () => to(row - 1, column), ArrowDown: () => to(row + 1, column),
      ArrowLeft: () => to(row, column - 1), ArrowRight: () => to(row, column + 1),
      Home: () => to(row, 0), End: () => to(row, panel.columns - 1),
      PageDown: () => other(1), PageUp: () => other(-1), "+": () => zoom(1.3), "-": () => zoom(1 / 1.3),
      Enter: () => chosen && panel.owner[cell] >= FIRST && showTenant(panel.owner[cell] - FIRST),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    if (cell < 0 && event.key.startsWith("Arrow")) choose(panel, 0);
    else acts[event.key]();
  });
  at("larger").addEventListener("click", () => zoom(1.4));
  at("smaller").addEventListener("click", () => zoom(1 / 1.4));
  at("fit").addEventListener("click", whole);
  at("colour").addEventListener("change", paintPanels);
  at("search").addEventListener("change", () => find(at("search").value));
  at("tools").addEventListener("submit", (event) => {
    event.preventDefault();
    find(at("search").value);
  });
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    fetchMap({ hosts: at("ask-hosts").value });
  });
  at("ask-slots").addEventListener("submit", (event) => {
    event.preventDefault();
    const names = ["slots", "bandwidth", "deviation", "risks"];
    fetchMap(Object.fromEntries(names.map((name) => [name, at(name).value]).filter(([, text]) => text)));
  });
  function theme(name) {
    document.documentElement.dataset.theme = name;
    if (map) paintPanels();
  }
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  at("theme").addEventListener("click", () => theme(
    document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  new ResizeObserver(redraw).observe(canvas);

  async function fetchMap(query) {
    at("found").textContent = "The map is being fetched.";
    try {
      const asked = new URLSearchParams(query).toString();
      const answer = await login.ask(asked ? `${given.source}?${asked}` : given.source);
      if (!answer.ok) throw new Error(await login.refusal(answer));
      load(await answer.json());
      at("found").textContent = "";
      if (!asked) live.follow(given.source, answer, load);
    } catch (error) {
      at("found").textContent = `No map: ${error.message}`;
    }
    document.documentElement.dataset.ready = "yes";
  }

  // where there are logins the page does not know of any fabric before
  async function fabrics() {
    try {
      const answer = await login.ask("v1/fabrics");
      if (!answer.ok) throw new Error(await login.refusal(answer));
      const ids = (await answer.json()).fabrics.map((fabric) => fabric.id);
      if (!ids.length) throw new Error("the service manages no fabric yet");
      const asked = new URLSearchParams(location.search).get("fabric");
      at("fabric").replaceChildren(...ids.map((id) => element("option", {}, id)));
      at("fabric").value = ids.includes(asked) ? asked : ids[0];
      at("several").hidden = ids.length < 2;
      await show();
    } catch (error) {
      at("found").textContent = `No map: ${error.message}`;
      document.documentElement.dataset.ready = "yes";
    }
  }
  async function show() {
    given.source = `v1/fabrics/${encodeURIComponent(at("fabric").value)}/map`;
    await fetchMap({});
  }
  at("fabric").addEventListener("change", () => {
    history.replaceState(null, "", `?fabric=${encodeURIComponent(at("fabric").value)}`);
    show();
  });

  theme(dark.matches ? "dark" : "light");
  if (given.map) {
    load(given.map);
    document.documentElement.dataset.ready = "yes";
  } else if (given.source) fetchMap({});
  else login.start(fabrics);
})();
