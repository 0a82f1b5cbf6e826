// The page. All that it knows about other nodes is in door.js.

import { Door } from "./door.js";

const at = (id) => document.getElementById(id);
const door = await Door.open("todo", 42, "changed");

async function show() {
  const rows = await door.rows();
  at("items").replaceChildren(...rows.map(item));
}

// Once for all that happens in a moment.
let waiting = 0;
function showSoon() {
  waiting ||= setTimeout(() => {
    waiting = 0;
    show();
  }, 20);
}

function item(row) {
  const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: row.done === "1" });
  box.addEventListener("change", () => door.update(row.id, { done: box.checked ? "1" : "0" }));
  const title = Object.assign(document.createElement("span"), { textContent: row.title });
  const label = document.createElement("label");
  label.append(box, " ", title);
  const remove = Object.assign(document.createElement("button"), { type: "button", textContent: "Remove" });
  remove.setAttribute("aria-label", `Remove ${row.title}`);
  remove.addEventListener("click", () => door.remove(row.id));
  const line = Object.assign(document.createElement("li"), { className: row.done === "1" ? "done" : "" });
  line.dataset.id = row.id;
  line.append(label, remove);
  return line;
}

door.addEventListener("rows", showSoon);
door.addEventListener("state", ({ detail }) => {
  at("state").textContent = detail;
});
door.addEventListener("refused", ({ detail }) => {
  at("refused").append(Object.assign(document.createElement("li"), { textContent: detail }));
});

at("add").addEventListener("submit", async (event) => {
  event.preventDefault();
  const title = at("title").value;
  at("title").value = ""; // at once: the next one may be typed already while this one is kept
  await door.insert({ title, done: "0" });
});
at("connect").addEventListener("submit", async (event) => {
  event.preventDefault();
  await door.connect(at("url").value, at("enrol").value);
  at("enrol").value = "";
});
at("away").addEventListener("change", () => (at("away").checked ? door.leave() : door.resume()));

await show();
at("url").value = await door.resume();
at("server").open = at("url").value === "";
if ("serviceWorker" in navigator) await navigator.serviceWorker.register("offline.js");
