"use strict";

const part = (name) => document.getElementById(name);
const VERDICTS = { y: "right", n: "wrong" };
let rows = [];
let place = 0;
let busy = false;
let loading = false;

async function request(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error ?? `the server answered ${answer.status}`);
  return content;
}

function say(text, wrong = false) {
  part("message").textContent = text;
  part("message").classList.toggle("wrong", wrong);
}

function unread() {
  const next = rows.findIndex((row) => !row.verdict);
  return next < 0 ? rows.length : next;
}

function draw() {
  const read = rows.filter((row) => row.verdict);
  const right = read.filter((row) => row.verdict === "right").length;
  const row = rows[place];
  part("card").hidden = !row;
  say(`${read.length} of ${rows.length} read, ${right} right.${row ? "" : " All are read: `cliptune review --summary` prints the share with its interval."}`);
  if (!row) return;
  part("caption").textContent = row.caption;
  part("written").textContent = row.query;
  part("kind").textContent = row.kind;
  part("asked").textContent = row.question + (row.verdict ? ` Your answer: ${row.verdict}.` : "");
  show(part("shown"), row.picture ? `pictures/${place}.jpg` : "", row.caption);
}

// Until its own picture is there, a query has none and takes no answer: the one before would be judged with it.
function show(image, address, text) {
  image.alt = text;
  if (image.getAttribute("src") === address) return;
  loading = address !== "";
  image.hidden = true;
  const seen = (ok) => () => {
    loading = false;
    image.hidden = !ok;
    if (!ok) say("the picture cannot be shown: judge by its caption", true);
  };
  image.onload = seen(true);
  image.onerror = seen(false);
  if (address) image.src = address;
  else image.removeAttribute("src");
}

async function press(key) {
  if (busy || (loading && key !== "b")) return;
  if (key === "b") {
    place = Math.max(0, place - 1);
    return draw();
  }
  if (!(key in VERDICTS) || !rows[place]) return;
  busy = true;
  try {
    await request("api/reviews", { row: place, verdict: VERDICTS[key] });
    rows[place].verdict = VERDICTS[key];
    place = rows[place + 1] && !rows[place + 1].verdict ? place + 1 : unread();
    draw();
  } catch (error) {
    say(`not stored: ${error.message}`, true);
  } finally {
    busy = false;
  }
}

document.addEventListener("keydown", (event) => {
  if (!event.ctrlKey && !event.metaKey && !event.altKey && !event.repeat) press(event.key.toLowerCase());
});
for (const button of document.querySelectorAll("[data-key]")) button.addEventListener("click", () => press(button.dataset.key));
request("api/queries").then((found) => {
  rows = found;
  place = unread();
  draw();
}).catch((error) => say(error.message, true));
