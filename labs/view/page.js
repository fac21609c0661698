"use strict";
const {lesson, trace, plan, verdict, is_outdated} = JSON.parse(document.getElementById("data").textContent);
const world = trace.world, kFloatBytes = 4, kClose = 1e-6;
const at = id => document.querySelector(`[data-testid="${id}"]`);
const number = x => String(Math.round(x * 100) / 100);
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const isInCycles = trace.unit === "cycle";  // an order of work alone: its messages are added later
const unit = isInCycles ? "cycles" : "us";
const time = x => isInCycles ? plural(number(x), "cycle") : `${number(x)} us`;
const range = n => [...Array(n).keys()];
const sum = values => values.reduce((a, b) => a + b, 0);

function make(tag, attributes = {}, ...children) {
  const isSvg = ["svg", "g", "rect", "text", "line", "path", "title", "defs", "marker"].includes(tag);
  const node = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// ---- The run: who computed, which send belongs to which receive -----------------------------------------------------

const ranks = range(world);
const events = trace.events;
for (const [i, event] of events.entries()) {
  // Work without a word of its own is named by the note right before it.
  if (event.kind !== "compute" || event.text) continue;
  const before = events.slice(0, i).reverse().find(e => e.rank === event.rank && e.stream === event.stream);
  if (before?.kind !== "note" || Math.abs(before.end - event.start) > kClose) continue;
  event.text = before.text;
  before.isName = true;
}
const computes = events.filter(e => e.kind === "compute");

/** Joins the k-th of `sent` with the k-th of `asked` between the same two ranks on the same stream. */
function joined(sent, asked) {
  const waiting = new Map();
  const channel = (from, to, stream) => `${from} ${to} ${stream}`;
  for (const recv of asked) {
    const key = channel(recv.peer, recv.rank, recv.stream);
    waiting.set(key, [...waiting.get(key) ?? [], recv]);
  }
  return sent.map(send => ({send, recv: waiting.get(channel(send.rank, send.peer, send.stream))?.shift()}));
}
const messages = joined(events.filter(e => e.kind === "send"),
                        events.filter(e => e.kind === "recv").sort((a, b) => a.start - b.start));
for (const message of messages) {
  const {send, recv} = message;
  message.end = recv ? recv.end : send.end;
  // A message from or to memory that is not watched is about the place at its other end.
  message.place = send.place >= 0 ? send.place : recv ? recv.place : -1;
  send.message = message;
  if (recv) recv.message = message;
}

/** The times at which something ends: the moments that the page goes through. Moment 0 is before all of them. */
const times = [0];
for (const end of [...messages, ...computes].map(e => e.end).sort((a, b) => a - b)) {
  if (end > times.at(-1) + kClose) times.push(end);
}
const momentOf = time => times.findIndex(t => t >= time - kClose);
const isUnderWay = (event, moment) => moment > 0 && (momentOf(event.end) === moment ||
  (event.start < times[moment] - kClose && event.end > times[moment - 1] + kClose));

// ---- The watched buffer: its blocks, and whose values have come to them ---------------------------------------------

const placed = messages.filter(m => m.place >= 0 && m.send.count > 0);
const length = Math.max(0, ...placed.map(m => Math.max(m.place, m.recv?.place ?? 0) + m.send.count));
const cuts = new Set([0, length]);
for (const m of placed) for (const p of [m.place, m.recv?.place ?? -1]) if (p >= 0) cuts.add(p).add(p + m.send.count);
const planSteps = plan?.family === "collective" ? plan.ranks.flat() : [];
if (plan?.count === length) for (const s of planSteps) if (s.begin >= 0) cuts.add(s.begin).add(s.begin + s.elements);
const edges = [...cuts].sort((a, b) => a - b);
const blocks = edges.slice(1).map((end, i) => ({begin: edges[i], end}));
const blocksOf = (place, count) => range(blocks.length).filter(i => blocks[i].begin >= place && blocks[i].end <= place + count);

function chunkName(place, count) {
  const inside = place < 0 ? [] : blocksOf(place, count);
  if (inside.length === 0) return plural(count, "float");
  if (inside.length === 1) return `c${inside[0]}`;
  return inside.length === blocks.length ? "all" : `c${inside[0]}-${inside.at(-1)}`;
}
function chunkColour(place, count) {
  const inside = place < 0 ? [] : blocksOf(place, count);
  return inside.length === 1 ? `k${inside[0] % 8}` : "kx";
}
function workColour(text) {
  const letter = /^\d*([FBIW])\d*\b/.exec(text)?.[1] ?? {forward: "F", backward: "B"}[/^(forward|backward)/i.exec(text)?.[0].toLowerCase()];
  return {F: "k0", B: "k1", I: "k3", W: "k2"}[letter] ?? "kx";
}

/** For each moment: held[rank][block], the set of ranks whose values have come there. What is received into the buffer replaces
    what was there; what is received elsewhere counts as added. */
const held = (() => {
  let now = ranks.map(rank => blocks.map(() => new Set([rank])));
  const moves = placed.filter(m => m.recv).flatMap(m => [{time: m.send.start, first: 1, m}, {time: m.end, first: 0, m}]);
  moves.sort((a, b) => Math.abs(a.time - b.time) > kClose ? a.time - b.time : a.first - b.first);  // arrive, then send on
  const states = [];
  for (const time of times) {
    while (moves.length > 0 && moves[0].time <= time + kClose) {
      const {first, m} = moves.shift();
      const from = blocksOf(m.place, m.send.count);
      if (first) m.carried = from.map(b => now[m.send.rank][b]);
      if (first || !m.carried) continue;
      const isAdded = m.recv.place < 0;
      const into = isAdded ? from : blocksOf(m.recv.place, m.send.count);
      const all = new Set(m.carried.flatMap(set => [...set]));
      now = now.map((row, rank) => rank !== m.recv.rank ? row : row.map((set, b) => {
        if (!into.includes(b)) return set;
        const come = into.length === from.length ? m.carried[into.indexOf(b)] : all;
        return isAdded ? new Set([...set, ...come]) : come;
      }));
    }
    states.push(now);
  }
  return states;
})();

// ---- The timeline ---------------------------------------------------------------------------------------------------

const streams = [...new Set(events.map(e => e.stream))].sort();
const rows = ranks.flatMap(rank => streams.map(stream => ({rank, stream})));
const laneNames = ["compute", "send", "recv"].filter(kind => events.some(e => e.kind === kind));
const lanesOf = stream => laneNames.filter(kind => events.some(e => e.kind === kind && e.stream === stream));
const words = {compute: "work", send: "send", recv: "recv"};
let spans = [], moment = 0, drawn = null;

function describe(event) {
  const when = `${number(event.start)} to ${time(event.end)}`;
  if (event.kind === "compute") return `rank ${event.rank} computes ${event.text}, ${when}`.replace(" ,", ",");
  const place = event.message?.place ?? event.place;
  const what = `${chunkName(place, event.count)} (${event.count * kFloatBytes} bytes)`;
  const never = event.kind === "send" && !event.message.recv ? "; it was never received" : "";
  return event.kind === "send" ? `rank ${event.rank} sends ${what} to rank ${event.peer}, ${when}${never}`
                               : `rank ${event.rank} receives ${what} from rank ${event.peer}, asked and arrived ${when}`;
}

function drawTimeline() {
  const width = Math.max(280, at("timeline").clientWidth), left = width < 600 ? 78 : 92, right = 14, lane = 18, gap = 10;
  const endOfRun = Math.max(trace.time_us, times.at(-1)) || 1;
  const x = time => left + time / endOfRun * (width - left - right);
  const svg = make("svg", {role: "img", "aria-label": `Timeline of ${plural(world, "rank")}, ${time(trace.time_us)}`});
  const marker = make("marker", {id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto"},
                      make("path", {d: "M0 0 8 4 0 8z", fill: "context-stroke"}));
  svg.append(make("defs", {}, marker));
  const laneY = {};
  let y = 4;
  spans = [];
  for (const {rank, stream} of rows) {
    const row = make("g", {"data-testid": "rank-row"});
    row.append(make("text", {x: 0, y: y + 13}, stream === streams[0] ? `rank ${rank}` : "comm."));
    for (const note of events.filter(e => e.kind === "note" && !e.isName && e.rank === rank && e.stream === stream))
      row.append(make("path", {class: "note", d: `M${x(note.start) - 4} ${y - 3}h8l-4 6z`}, make("title", {}, `rank ${rank} at ${time(note.start)}: ${note.text}`)));
    for (const kind of lanesOf(stream)) {
      laneY[`${rank} ${stream} ${kind}`] = y + lane / 2;
      row.append(make("text", {x: left - 6, y: y + 13, "text-anchor": "end", class: "small"}, words[kind]));
      for (const event of events.filter(e => e.rank === rank && e.stream === stream && e.kind === kind)) {
        const place = event.message?.place ?? -1;
        const colour = kind === "compute" ? workColour(event.text) : chunkColour(place, event.count);
        const label = kind === "compute" ? event.text : place >= 0 ? chunkName(place, event.count) : "";
        // A receive that waits is an outline until its message is on the way.
        const begin = kind === "recv" && event.message ? Math.max(event.start, event.message.send.start) : event.start;
        const box = (from, to, extra) => make("rect", {x: x(from), y: y + 1, width: Math.max(2, x(to) - x(from)), height: lane - 3, rx: 2, ...extra});
        const isLost = kind === "send" && !event.message.recv;
        const span = make("g", {class: `span ${colour}${isLost ? " lost" : ""}`}, make("title", {}, describe(event)));
        if (begin > event.start + kClose) span.append(box(event.start, begin, {class: "wait"}));
        span.append(box(begin, event.end, {}));
        if (label.length * 7 + 2 < x(event.end) - x(begin))
          span.append(make("text", {x: (x(begin) + x(event.end)) / 2, y: y + 13, "text-anchor": "middle"}, label));
        span.addEventListener("pointerenter", () => { at("detail").textContent = describe(event); drawArrows(event.message); });
        span.addEventListener("pointerleave", () => show(moment));
        span.addEventListener("click", () => { show(momentOf(event.end)); at("detail").textContent = describe(event); });
        spans.push({event, span});
        row.append(span);
      }
      y += lane;
    }
    y += stream === streams.at(-1) ? gap : 2;
    if (stream === streams.at(-1)) row.append(make("line", {class: "rule", x1: 0, x2: width, y1: y - gap / 2, y2: y - gap / 2}));
    svg.append(row);
  }
  const raw = endOfRun / Math.max(2, (width - left) / 90), power = 10 ** Math.floor(Math.log10(raw));
  const tick = [1, 2, 5, 10].map(f => f * power).find(t => t >= raw - kClose);
  for (let time = 0; time <= endOfRun + kClose; time += tick) {
    svg.append(make("text", {class: "small", x: x(time), y: y + 12, "text-anchor": "middle"}, number(time)));
  }
  svg.append(make("text", {class: "small", x: left - 14, y: y + 12, "text-anchor": "end"}, unit));
  const head = make("line", {class: "head", y1: 0, y2: y, "data-testid": "head"}), arrows = make("g", {"data-testid": "arrows"});
  svg.append(head, arrows);
  svg.setAttribute("viewBox", `0 0 ${width} ${y + 18}`);
  svg.setAttribute("height", y + 18);
  at("timeline").replaceChildren(svg);
  drawn = {x, laneY, head, arrows, width};
}

function drawArrows(...shown) {
  const {x, laneY, arrows} = drawn;
  arrows.replaceChildren(...shown.filter(m => m?.recv).map(({send, recv}) => make("line", {
    class: "arrow", "marker-end": "url(#tip)", x1: x(send.start), y1: laneY[`${send.rank} ${send.stream} send`],
    x2: x(recv.end), y2: laneY[`${recv.rank} ${recv.stream} recv`]})));
}

// ---- This moment, rank by rank --------------------------------------------------------------------------------------

function sources(set) {
  if (set.size === world && world > 1) return "all";
  return set.size <= 3 ? `of ${[...set].sort((a, b) => a - b).join("+")}` : `of ${set.size} ranks`;
}

/** Whether a receive's message is not even on its way. */
const isWaiting = event => event.kind === "recv" && event.message?.send.start > times[moment] - kClose;

function drawNow() {
  const under = events.filter(e => e.kind !== "note" && isUnderWay(e, moment));
  at("now").replaceChildren(...ranks.map(rank => {
    const own = under.filter(e => e.rank === rank), bar = make("div", {class: "blocks", "data-testid": `buffer-${rank}`});
    for (const [b, {begin, end}] of blocks.entries()) {
      const touching = own.filter(e => e.message?.place >= 0 && (e.message.recv || e.kind === "send") &&
        blocksOf(e.kind === "recv" && e.place >= 0 ? e.place : e.message.place, e.count).includes(b));
      const signs = touching.map(e => e.kind === "send" ? `→${e.peer}` : `←${e.peer}${e.place < 0 ? " +" : ""}`);
      const kinds = new Set(touching.map(e => e.kind === "send" ? "out" : "in")), set = held[moment][rank][b];
      bar.append(make("div", {class: `block k${b % 8} ${[...kinds].join(" ")}`, style: `--size:${end - begin};--part:${set.size / world}`,
        title: `floats ${begin} to ${end - 1}: ${sources(set)}`, "data-have": set.size},
        ...blocks.length > 16 ? [] : [make("i", {}, `c${b}`), make("i", {}, sources(set)), make("b", {}, signs.join(" "))]));
    }
    const rest = own.filter(e => e.kind === "compute" || !(e.message?.place >= 0));
    const chips = rest.map(e => make("span", {class: `chip ${e.kind === "compute" ? workColour(e.text) : "kx"}`},
      e.kind === "compute" ? e.text || "computes" : isWaiting(e) ? `waits for rank ${e.peer}` : `${e.kind === "send" ? "→" : "←"}${e.peer} ${plural(e.count, "float")}${e.message?.recv ? "" : ", never received"}`));
    const idle = own.length === 0 && (moment > 0 || blocks.length === 0) ? [make("span", {class: "quiet"}, moment > 0 ? "nothing" : "nothing yet")] : [];
    const line = blocks.length > 0 && chips.length + idle.length === 0 ? [] : [make("p", {}, ...chips, ...idle)];
    return make("div", {class: "rank"}, make("b", {}, `rank ${rank}`), ...blocks.length > 0 ? [bar] : [], ...line);
  }));
}

// ---- The plan, and what of it the run did ---------------------------------------------------------------------------

let planParts = [];  // {node, when}: a step of the plan and the moment at which the run did it, -1 for never

function drawCollective() {
  const all = plan.ranks.flatMap((steps, rank) => steps.map(s => ({...s, rank, stream: 0})));
  const pairs = joined(all.filter(s => s.kind === "send" && s.elements > 0), all.filter(s => s.kind.startsWith("recv") && s.elements > 0));
  const unused = [...messages], doneIn = new Map();
  for (const {send, recv} of pairs) {
    const found = unused.findIndex(m => m.send.rank === send.rank && m.send.peer === send.peer && m.recv &&
      (plan.count === null || (m.send.count === send.elements && (m.place < 0 || send.begin < 0 || m.place === send.begin))));
    const when = found < 0 ? -1 : momentOf(unused.splice(found, 1)[0].end);
    doneIn.set(send, when).set(recv, when);
  }
  const table = make("table", {class: "plan"}, make("tr", {}, make("th", {}, "step"), ...range(plan.world).map(r => make("th", {}, `rank ${r}`))));
  for (const number of [...new Set(all.map(s => s.row))].sort((a, b) => a - b)) {
    const row = make("tr", {"data-testid": "plan-row"}, make("th", {}, String(number)));
    for (const rank of range(plan.world)) {
      row.append(make("td", {"data-testid": "plan-cell"}, ...all.filter(s => s.rank === rank && s.row === number && s.elements !== 0).map(s => {
        const sign = {send: "→", recv: "←", recv_reduce: "←"}[s.kind];
        const chunk = s.slots > 1 ? `c${s.chunk}-${s.chunk + s.slots - 1}` : `c${s.chunk}`;
        const node = make("span", {class: `step ${blocks.length > 0 && s.begin >= 0 ? chunkColour(s.begin, s.elements) : s.slots === 1 ? `k${s.chunk % 8}` : "kx"}`, title: s.text},
                          sign ? `${sign}${s.peer} ${chunk}${s.kind === "recv_reduce" ? " +" : ""}` : s.text);
        if (doneIn.has(s)) planParts.push({node, row, when: doneIn.get(s)});
        return node;
      })));
    }
    table.append(row);
  }
  at("plan").append(table);
  at("plan-match").textContent = `${pairs.length - [...doneIn.values()].filter(w => w < 0).length / 2} of the plan's ` +
    `${plural(pairs.length, "message")} are in your run; ${unused.filter(m => m.send.count > 0).length} of yours are not in the plan.`;
}

function drawPipeline() {
  const isWork = a => ["F", "B", "I", "W"].includes(a.kind);
  const word = a => plan.chunks > 1 ? a.text : a.text.replace(/^\d+/, "");
  const cycle = Math.min(...plan.actions.flat().filter(isWork).map(a => a.end - a.start)), cycles = Math.round(plan.makespan / cycle);
  const table = make("table", {class: "cycles"}, make("tr", {}, make("th", {}, "cycle"), ...range(cycles).map(c => make("th", {}, c % 5 ? "" : String(c)))));
  let total = 0, done = 0, isInOrder = true;
  for (const [rank, actions] of plan.actions.entries()) {
    const row = make("tr", {}, make("th", {}, `rank ${rank}`)), own = computes.filter(e => e.rank === rank).sort((a, b) => a.start - b.start);
    const texts = own.map(e => plan.chunks > 1 ? e.text : e.text.replace(/^\d+/, ""));
    let column = 0, last = -1;
    for (const action of actions.filter(isWork)) {
      const from = Math.round(action.start / cycle), wide = Math.round((action.end - action.start) / cycle), found = texts.indexOf(word(action));
      for (; column < from; ++column) row.append(make("td", {class: "quiet"}, "·"));
      const node = make("td", {colspan: wide, class: `action ${workColour(action.text)}`, "data-testid": "plan-cell"}, word(action));
      planParts.push({node, when: found < 0 ? -1 : momentOf(own[found].end), from: found < 0 ? 0 : own[found].start});
      row.append(node);
      column += wide; ++total; done += found >= 0;
      isInOrder &&= found > last; last = found;
    }
    for (; column < cycles; ++column) row.append(make("td", {class: "quiet"}, "·"));
    table.append(row);
  }
  at("plan").append(table);
  at("plan-match").textContent = `${done} of the plan's ${plural(total, "action")} are in your run; ` +
    (isInOrder ? "every rank runs them in the plan's order." : "not every rank runs them in the plan's order.");
}

function markPlan() {
  for (const {row} of planParts) row?.classList.remove("now");
  for (const {node, row, when, from} of planParts) {
    const isNow = when >= 0 && (when === moment || (from !== undefined && moment > 0 && when > moment && from < times[moment] - kClose));
    node.classList.toggle("now", isNow);
    node.classList.toggle("done", when >= 0 && when < moment);
    node.classList.toggle("never", when < 0 && moment === times.length - 1);
    if (isNow) row?.classList.add("now");
  }
  const now = planParts.find(part => part.node.classList.contains("now"))?.node.offsetLeft;
  if (now !== undefined) at("plan").scrollLeft = now - at("plan").clientWidth / 2;
}

// ---- Numbers --------------------------------------------------------------------------------------------------------

/** How long at least one of `some` and one of `others` were under way at once. */
function together(some, others) {
  const cuts = [...some, ...others].flatMap(e => [e.start, e.end]).sort((a, b) => a - b);
  const covers = (list, a, b) => list.some(e => e.start <= a + kClose && e.end >= b - kClose);
  return sum(cuts.slice(1).map((b, i) => covers(some, cuts[i], b) && covers(others, cuts[i], b) ? b - cuts[i] : 0));
}

function drawTotals() {
  const fact = (name, id, own, planned) => make("div", {}, `${name} `, make("b", {"data-testid": id}, own),
    ...planned === undefined ? [] : [" ", make("span", {class: "quiet"}, "plan: "), make("b", {"data-testid": `plan-${id}`}, planned)]);
  const busy = ranks.map(rank => computes.filter(e => e.rank === rank)), busyUs = busy.map(list => sum(list.map(e => e.end - e.start)));
  const percent = part => `${(part * 100).toFixed(1)}%`;
  at("facts").append(fact("time", "time", time(trace.time_us), plan?.time_us == null ? undefined : time(plan.time_us)));
  if (!isInCycles) at("facts").append(fact("messages", "messages", String(messages.length), plan ? String(sum(plan.sent.map(s => s.messages))) : undefined));
  const hasPlannedBytes = plan?.family === "collective" && plan.count !== null;
  if (hasPlannedBytes) at("facts").append(fact("bytes", "bytes", String(sum(messages.map(m => m.send.count * kFloatBytes))), String(sum(plan.sent.map(s => s.bytes)))));
  if (plan?.family === "pipeline") at("facts").append(fact("bubble", "bubble", percent(1 - Math.max(...busyUs) / trace.time_us), percent(plan.bubble_of_total)));
  const columns = [!isInCycles && ["messages sent", "messages", r => messages.filter(m => m.send.rank === r).length],
    !isInCycles && plan && ["plan", "plan-messages", r => plan.sent[r].messages],
    !isInCycles && ["bytes sent", "bytes", r => sum(messages.filter(m => m.send.rank === r).map(m => m.send.count * kFloatBytes))],
    hasPlannedBytes && ["plan", "plan-bytes", r => plan.sent[r].bytes],
    !isInCycles && ["bytes received", "received", r => sum(messages.filter(m => m.recv?.rank === r).map(m => m.send.count * kFloatBytes))],
    computes.length > 0 && [`computing, ${unit}`, "computing", r => number(busyUs[r])],
    computes.length > 0 && messages.length > 0 && [`overlapped, ${unit}`, "overlap", r => number(together(busy[r],
      messages.flatMap(m => [...m.send.rank === r ? [m.send] : [], ...m.recv?.rank === r ? [{start: m.send.start, end: m.end}] : []])))]].filter(Boolean);
  at("totals").append(make("tr", {}, make("th", {}, "rank"), ...columns.map(([name]) => make("th", {}, name))),
    ...ranks.map(r => make("tr", {}, make("th", {}, String(r)), ...columns.map(([, id, value], i) => {
      const differs = id.startsWith("plan-") && columns[i - 1][2](r) !== value(r);
      return make("td", {"data-testid": `${id}-${r}`, ...differs ? {class: "bad", title: "not as planned"} : {}}, String(value(r)));
    }))));
}

// ---- Moments --------------------------------------------------------------------------------------------------------

function show(wanted) {
  moment = Math.min(Math.max(wanted, 0), times.length - 1);
  const last = times.length - 1, now = messages.filter(m => moment > 0 && momentOf(m.end) === moment);
  at("slider").value = moment;
  at("moment").textContent = moment === 0 ? `before the first of ${plural(last, "moment")}` : `moment ${moment} of ${last}, at ${isInCycles ? `cycle ${number(times[moment])}` : time(times[moment])}`;
  document.body.classList.toggle("start", moment === 0);
  for (const {event, span} of spans) {
    span.classList.toggle("later", moment > 0 && momentOf(event.end) > moment && !isUnderWay(event, moment));
    span.classList.toggle("now", isUnderWay(event, moment));
  }
  drawn.head.setAttribute("x1", drawn.x(times[moment]));
  drawn.head.setAttribute("x2", drawn.x(times[moment]));
  drawArrows(...now);
  at("detail").textContent = "Point at a part of the timeline to read about it.";
  drawNow();
  markPlan();
}

let player = 0;
function play(isOn) {
  clearInterval(player);
  player = isOn ? setInterval(() => moment === times.length - 1 ? play(false) : show(moment + 1), 900) : 0;
  at("play").textContent = isOn ? "⏸ pause" : "▶ play";
}
const actions = {
  first: () => show(0), back: () => show(moment - 1), on: () => show(moment + 1), last: () => show(times.length - 1),
  play: () => { if (!player && moment === times.length - 1) show(0); play(!player); },
};
for (const button of document.querySelectorAll("[data-go]")) button.addEventListener("click", () => actions[button.dataset.go]());
at("slider").addEventListener("input", event => show(Number(event.target.value)));
document.addEventListener("keydown", event => {
  const action = {ArrowLeft: "back", ArrowRight: "on", Home: "first", End: "last", " ": "play"}[event.key];
  if (!action || event.ctrlKey || event.altKey || event.metaKey || (event.key === " " && event.target.tagName === "BUTTON")) return;
  event.preventDefault();
  actions[action]();
});

document.title = `Lockstep lesson ${lesson.number}: ${lesson.title}`;
at("title").textContent = `Lesson ${lesson.number}: ${lesson.title}`;
if (verdict) at("verdict").append(make("b", {class: verdict.passed ? "good" : "bad"}, verdict.passed ? "✓ passed." : `✗ ${verdict.name}.`),
                                  verdict.passed ? "The check accepted the code that ran here." : verdict.what);
at("about").textContent = `Drawn: ${plural(world, "rank")}${length > 0 ? `, a buffer of ${plural(length, "float")}` : ""}, ` +
  (isInCycles ? `${time(trace.time_us)}. The order of the work alone: the messages follow from it.`
    : `${plural(messages.length, "message")}, ${time(trace.time_us)} on the virtual clock.`) +
  (is_outdated ? " Your file has changed since: this is a run of an earlier version." : "");
at("now-title").textContent = blocks.length > 0 ? "Your buffers at this moment" : "Your ranks at this moment";
at("slider").max = times.length - 1;
if (plan) {
  document.querySelector(".two").classList.toggle("beside", plan.family === "collective");
  at("plan-about").textContent = `lockstep plan ${plan.words}`;
  plan.family === "collective" ? drawCollective() : drawPipeline();
} else {
  at("plan-panel").remove();
}
drawTotals();
drawTimeline();
show(0);
new ResizeObserver(() => { if (at("timeline").clientWidth !== drawn.width) { drawTimeline(); show(moment); } }).observe(at("timeline"));
