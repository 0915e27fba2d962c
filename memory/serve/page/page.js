"use strict";

let token = "";
const state = document.getElementById("state");
const access = document.getElementById("access");

function words(value) {
  if (value === null) return "none";
  if (typeof value !== "object") return String(value);
  return Object.entries(value).map(([name, entry]) => `${name || "(none)"}: ${words(entry)}`).join(", ") || "none";
}

function row(name, value) {
  const line = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = name.replaceAll("_", " ");
  const cell = document.createElement("td");
  cell.textContent = words(value);
  line.append(head, cell);
  return line;
}

async function show() {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  try {
    const answer = await fetch("api/stats", { headers });
    const found = await answer.json();
    access.hidden = answer.status !== 401;
    if (!answer.ok) {
      state.textContent = found.error.message;
      return;
    }
    document.getElementById("stats").replaceChildren(...Object.entries(found).map(([n, v]) => row(n, v)));
    state.textContent = `As of ${new Date().toLocaleTimeString()}.`;
  } catch (error) {
    state.textContent = `The service does not answer: ${error.message}`;
  }
}

access.addEventListener("submit", (event) => {
  event.preventDefault();
  token = document.getElementById("token").value;
  show();
});

show();
