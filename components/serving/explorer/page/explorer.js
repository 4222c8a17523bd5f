"use strict";

const $ = (selector) => document.querySelector(selector);
const form = $("#query");
const found = $("#found");
const ownStrings = ["q", "p", "k", "words", "metric", "a", "b"];
let info = null;
let asking = 0;

/** An element with attributes, and texts or elements in it; texts are never read as HTML. */
function el(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...inside.filter((one) => one !== null && one !== undefined));
  return made;
}

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const content = await answer.json();
  if (answer.ok) return content;
  const detail = Array.isArray(content.detail) ? content.detail.map((one) => `${one.loc.at(-1)}: ${one.msg}`).join("; ") : content.detail;
  throw new Error(content.error ?? detail ?? `the explorer answered ${answer.status}`);
}

function announce(text, wrong = false) {
  $("#message").textContent = text;
  $("#message").classList.toggle("wrong", wrong);
}

const percent = (value) => (100 * value).toFixed(1);
const signed = (value) => (value < 0 ? "−" : "+") + (100 * Math.abs(value)).toFixed(1);
const source = (row, large) => `${large ? "pictures" : "thumbs"}/${row}.jpg`;

// The request is in the address, so that it can be shared, reloaded and returned to.

const view = () => new URLSearchParams(location.search).get("view") ?? "compare";

function readForm(name) {
  const params = new URLSearchParams({ view: name });
  for (const field of form.elements) {
    const shown = field.closest("[data-for]");
    const here = !shown || shown.dataset.for.split(" ").includes(name);
    if (field.name && here && field.value) params.set(field.name, field.value);
  }
  return params;
}

function writeForm() {
  const params = new URLSearchParams(location.search);
  for (const field of form.elements) {
    if (!field.name) continue;
    if (params.has(field.name)) field.value = params.get(field.name);
    else if (ownStrings.includes(field.name) && field.tagName !== "SELECT") field.value = "";
    else if (field.name.startsWith("is.")) field.value = "";
  }
  const k = form.elements.k;
  if (!params.has("k")) k.value = "10";
  else if (!k.value) k.add(new Option(params.get("k"), params.get("k"), false, true));
}

function go(params) {
  const address = `${location.pathname}?${params}`;
  if (`${location.pathname}${location.search}` !== address) history.pushState(null, "", address);
  return show();
}

async function show() {
  writeForm();
  const now = view();
  document.title = `${now} · cliptune explore`;
  for (const button of document.querySelectorAll("nav button")) {
    if (button.dataset.view === now) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(now);
  if (info && !info.writes) $("#write").hidden = true;
  const turn = ++asking;
  announce("…");
  try {
    const shown = await views[now]();
    if (turn !== asking) return;
    found.replaceChildren(...shown.parts);
    announce(shown.message ?? "");
  } catch (error) {
    if (turn !== asking) return;
    found.replaceChildren();
    announce(error.message, true);
  }
}

function filters() {
  const params = new URLSearchParams(location.search);
  const kept = new URLSearchParams();
  for (const [name, value] of params) if (value && (name === "words" || name.startsWith("is."))) kept.set(name, value);
  return kept;
}

// Pictures

function badge(hit) {
  if (hit.new) return el("span", { class: "badge new", title: hit.move === null || hit.move === undefined ? "not among the first encoder's first hundred" : `the first encoder has it ${hit.move} places lower` }, "new");
  if (!hit.move) return null;
  return el("span", { class: "badge", title: "places against the first encoder" }, hit.move > 0 ? `▲${hit.move}` : `▼${-hit.move}`);
}

function picture(hit, place, wording) {
  const parts = [`${place}.`, hit.caption || hit.name];
  if (hit.both) parts.push("(found for both wordings)");
  if (hit.new) parts.push("(new)");
  return el(
    "button",
    { class: `hit${hit.both ? " both" : ""}`, type: "button", "data-row": hit.row, title: hit.caption || hit.name, onclick: () => enlarge(hit) },
    el("img", { src: source(hit.row), alt: `${wording} ${parts.join(" ")}`.trim(), loading: "lazy" }),
    badge(hit),
  );
}

const strip = (hits, wording) => el("div", { class: "strip" }, ...hits.map((hit, place) => picture(hit, place + 1, wording)));

function enlarge(hit) {
  const showSimilar = () => {
    $("#large").close();
    const params = filters();
    params.set("view", "compare");
    params.set("row", hit.row);
    params.set("k", form.elements.k.value);
    go(params);
  };
  $("#large").replaceChildren(
    el("img", { src: source(hit.row, true), alt: hit.caption || hit.name }),
    el("p", {}, hit.caption || "no caption"),
    el("p", { class: "measure" }, `${hit.name || "row"} · row ${hit.row}${hit.score ? ` · cosine ${hit.score.toFixed(3)}` : ""}`),
    el("p", {}, el("button", { type: "button", onclick: showSimilar }, "More like this"), " ", el("button", { type: "button", onclick: () => $("#large").close() }, "Close")),
  );
  $("#large").showModal();
}

// Each view returns the parts to show, and a message.

function sideOf(side, k) {
  const measures = side.ao === null || side.ao === undefined ? "" : el("span", { class: "measure" }, `AO@${k} `, el("b", {}, percent(side.ao)), `  JS@${k} `, el("b", {}, percent(side.js)));
  return el(
    "article",
    { class: "side" },
    el("header", {}, el("h2", {}, side.encoder), measures),
    ...side.parts,
  );
}

function compared(result) {
  const both = result.paraphrase !== "";
  return el("div", { class: "sides" }, ...result.sides.map((side) => {
    const parts = [el("p", { class: "wording" }, el("b", {}, both ? "A " : ""), result.query), strip(side.query, "A")];
    if (both) parts.push(el("p", { class: "wording" }, el("b", {}, "B "), result.paraphrase), strip(side.paraphrase, "B"));
    if (side.lost.length) parts.push(el("div", { class: "lost" }, el("p", { class: "wording" }, `pictures lost for query A: ${side.lost.length}`), strip(side.lost, "lost")));
    return sideOf({ ...side, parts }, result.k);
  }));
}

async function compare() {
  const params = new URLSearchParams(location.search);
  const request = filters();
  request.set("k", params.get("k") ?? "10");
  if (params.get("row")) {
    request.set("row", params.get("row"));
    const result = await ask(`api/similar?${request}`);
    return { parts: [el("div", { class: "sides" }, el("article", { class: "side" }, el("header", {}, el("h2", {}, "Like this picture")), strip([result.of], "chosen picture"), el("p", { class: "wording" }, "The image tower is the same for all encoders, and so is this list."), strip(result.hits, "")))] };
  }
  if (!params.get("q")) return { parts: [], message: "Type a query and a paraphrase of it." };
  request.set("q", params.get("q"));
  if (params.get("p")) request.set("p", params.get("p"));
  const among = [...filters()].map(([name, value]) => `${name.replace(/^is\./, "")}: ${value}`);
  return { parts: [compared(await ask(`api/compare?${request}`))], message: among.length ? `only pictures with ${among.join(", ")}` : "" };
}

async function changed() {
  const params = new URLSearchParams(location.search);
  const request = new URLSearchParams({ a: params.get("a") ?? 0, b: params.get("b") ?? 1, metric: params.get("metric") ?? "ao" });
  const result = await ask(`api/changed?${request}`);
  const gains = el("table", {}, el("thead", {}, el("tr", {}, ...["words", "queries", "difference", "95% interval"].map((text, place) => el("th", { class: place ? "number" : "word" }, text)))), el("tbody", {}, ...result.gains.map((gain) => el("tr", {}, el("td", { class: "word" }, gain.tier), el("td", { class: "number" }, gain.queries), el("td", { class: `number ${gain.low > 0 ? "better" : gain.high < 0 ? "worse" : ""}` }, signed(gain.value)), el("td", { class: "number range" }, gain.low === null ? "too few queries" : `${signed(gain.low)} to ${signed(gain.high)}`)))));
  const tiers = result.gains.length > 1;
  const listed = (title, queries) => el("article", { class: "side" }, el("header", {}, el("h2", {}, title)), el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "query / paraphrase"), tiers ? el("th", { class: "word" }, "words") : null, el("th", { class: "number" }, "before"), el("th", { class: "number" }, "after"))), el("tbody", {}, ...queries.map((one) => el("tr", {}, el("td", {}, el("button", { type: "button", onclick: () => go(new URLSearchParams({ view: "compare", q: one.query, p: one.paraphrase, ...result.opens })) }, `${one.query} / ${one.paraphrase}`)), tiers ? el("td", { class: "word" }, one.tier) : null, el("td", { class: "number" }, percent(one.before)), el("td", { class: "number" }, percent(one.after)))))));
  return { parts: [el("article", { class: "side" }, el("header", {}, el("h2", {}, `${result.metric} over the test pictures: ${result.second} less ${result.first}`)), gains), el("div", { class: "sides" }, listed("Gained most", result.best), listed("Lost most", result.worst))] };
}

const views = { compare, changed };

async function write() {
  const text = form.elements.q.value.trim();
  if (!text) return announce("Type a query for the model to rewrite.", true);
  announce("The model is writing …");
  try {
    [form.elements.p.value] = await ask("api/paraphrases", { text, count: 1 });
    await go(readForm(view()));
  } catch (error) {
    announce(error.message, true);
  }
}

// Keys

function move(from, key) {
  const hits = [...document.querySelectorAll("#found .hit")];
  const here = hits.indexOf(from);
  if (key === "ArrowRight" || key === "ArrowLeft") return hits[here + (key === "ArrowRight" ? 1 : -1)]?.focus();
  const box = from.getBoundingClientRect();
  const sign = key === "ArrowDown" ? 1 : -1;
  const onward = hits.filter((hit) => sign * (hit.getBoundingClientRect().top - box.top) > 5);
  const far = (hit) => Math.abs(hit.getBoundingClientRect().top - box.top) * 10 + Math.abs(hit.getBoundingClientRect().left - box.left);
  onward.sort((a, b) => far(a) - far(b))[0]?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("#large").open) return;
  const typing = ["INPUT", "TEXTAREA", "SELECT"].includes(event.target.tagName);
  if (event.target.classList?.contains("hit") && event.key.startsWith("Arrow")) {
    event.preventDefault();
    return move(event.target, event.key);
  }
  if (typing || !info) return;
  const views_ = [...document.querySelectorAll("nav button")];
  if (event.key === "/") {
    event.preventDefault();
    form.elements.q.focus();
  } else if (/^[12]$/.test(event.key)) views_[Number(event.key) - 1]?.click();
});

// Start

function fill(select, options) {
  select.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
}

async function start() {
  info = await ask("api/info");
  $("#about").textContent = `${info.encoders.join(" against ")} · ${info.rows.toLocaleString("en")} pictures`;
  fill(form.elements.metric, [["ao", "AO@k"], ["js", "JS@k"], ["recall", "recall@k of the paraphrase"]]);
  for (const name of ["a", "b"]) fill(form.elements[name], info.encoders.map((encoder, place) => [place, encoder]));
  form.elements.b.value = Math.min(1, info.encoders.length - 1);
  for (const [column, values] of Object.entries(info.filters)) {
    const select = el("select", { name: `is.${column}` });
    fill(select, [["", "any"], ...values.map((value) => [value, value])]);
    $("#filters").append(el("label", {}, column, select));
  }
  // `show` writes the form from the address: what was typed before would be lost.
  $("nav").hidden = form.hidden = false;
  return show();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  go(readForm(view()));
});
form.addEventListener("change", (event) => {
  if (event.target.tagName === "SELECT") go(readForm(view()));
});
$("#write").addEventListener("click", write);
for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => go(readForm(button.dataset.view)));
addEventListener("popstate", show);
start().catch((error) => announce(error.message, true));
