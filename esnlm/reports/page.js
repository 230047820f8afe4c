// Lets a reader sort and filter tables, and opens what a link points into. Without it the page says the same.
"use strict";

for (const table of document.querySelectorAll("table[data-rows]")) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  if (rows.length > 2) {
    Array.from(table.tHead.rows[0].cells).forEach((cell, column) => makeSortable(table, body, cell, column));
  }
  if (rows.length > 10) {
    addFilter(table, rows);
  }
}

function makeSortable(table, body, cell, column) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...cell.childNodes);
  cell.append(button);
  button.addEventListener("click", () => {
    // Figures begin with the largest, names with the first of the alphabet.
    const first = cell.classList.contains("num") ? "descending" : "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    const direction = cell.getAttribute("aria-sort") === first ? second : first;
    for (const other of table.tHead.rows[0].cells) {
      other.removeAttribute("aria-sort");
    }
    cell.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const sorted = Array.from(body.rows).sort((a, b) => sign * order(key(a.cells[column]), key(b.cells[column])));
    body.append(...sorted);
  });
}

// Figures are sorted by the number that they begin with, such as 62.5 in "62.5 ± 0.3".
function key(cell) {
  const text = cell.textContent.trim().toLowerCase();
  const number = cell.classList.contains("num") ? Number.parseFloat(text.replaceAll(",", "")) : NaN;
  return Number.isNaN(number) ? text : number;
}

function order(a, b) {
  if (typeof a === "number" && typeof b === "number") {
    return a - b;
  }
  return String(a).localeCompare(String(b));
}

function addFilter(table, rows) {
  const box = document.createElement("p");
  box.className = "filter";
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = `Filter ${table.dataset.rows}`;
  input.setAttribute("aria-label", input.placeholder);
  const count = document.createElement("output");
  box.append(input, count);
  table.parentElement.before(box);
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = shown === rows.length ? `${rows.length} ${table.dataset.rows}` : `${shown} of ${rows.length}`;
  };
  input.addEventListener("input", show);
  show();
}

// What a link points to may stand in a part that is closed.
function follow() {
  const target = document.querySelector(":target");
  for (let part = target; part; part = part.parentElement) {
    if (part.tagName === "DETAILS") {
      part.open = true;
    }
  }
  target?.scrollIntoView();
}

window.addEventListener("hashchange", follow);
follow();

// On paper nothing can be opened.
window.addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.open = true;
    part.dataset.closed = "";
  }
});
window.addEventListener("afterprint", () => {
  for (const part of document.querySelectorAll("details[data-closed]")) {
    part.open = false;
    delete part.dataset.closed;
  }
});
