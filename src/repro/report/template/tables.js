"use strict";
// Tables sort by their heads and filter by words. Without this script they are the same tables, in their first order.
document.addEventListener("DOMContentLoaded", () => {
  const SORTED = 4, SIEVED = 10; // rows from which on a table can be sorted, and filtered
  const NUMBER = /^[≥≤<>≈~±]?\s*([+\-−]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[+\-]?\d+)?)/i;
  const words = new Intl.Collator("en", { numeric: true });

  const made = (name, properties, ...inside) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...inside);
    return element;
  };
  const text = cell => cell ? cell.textContent.trim() : "";
  const number = cell => {
    const found = NUMBER.exec(text(cell));
    return found ? Number(found[1].replaceAll(",", "").replace("−", "-")) : NaN;
  };
  const isKnown = cell => !["", "–", "—", "nan", "NaN", "None"].includes(text(cell));

  // Of each column the lowest head that has words and stands over it alone.
  const headsOf = table => {
    const taken = [], heads = [];
    [...table.tHead.rows].forEach((row, y) => {
      let x = 0;
      for (const cell of row.cells) {
        while (taken[y]?.[x]) x++;
        for (let dy = 0; dy < cell.rowSpan; dy++)
          for (let dx = 0; dx < cell.colSpan; dx++) (taken[y + dy] ??= [])[x + dx] = true;
        if (cell.colSpan === 1 && text(cell)) heads[x] = cell;
        x += cell.colSpan;
      }
    });
    return heads;
  };

  // A cell that stands for several rows is repeated in each, since they part.
  const unspan = body => [...body.rows].forEach((row, y) => {
    for (const cell of [...row.cells]) {
      const more = cell.rowSpan - 1, place = cell.cellIndex;
      cell.rowSpan = 1;
      for (let dy = 1; dy <= more; dy++) {
        const below = body.rows[y + dy];
        below?.insertBefore(cell.cloneNode(true), below.cells[place] ?? null);
      }
    }
  });

  for (const box of document.querySelectorAll("main .table")) {
    const table = box.querySelector("table"), body = table?.tBodies[0];
    if (!table?.tHead || table.tBodies.length !== 1 || body.rows.length < SORTED) continue;
    if ([...body.rows].some(row => [...row.cells].some(cell => cell.colSpan > 1))) continue;
    const declared = [...body.rows], heads = headsOf(table);

    heads.forEach((head, x) => {
      const button = made("button", { type: "button", className: "sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        unspan(body);
        const known = declared.map(row => row.cells[x]).filter(isKnown);
        const numeric = known.filter(cell => !isNaN(number(cell))).length > known.length / 2;
        const turns = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
        const turn = turns[turns.indexOf(head.getAttribute("aria-sort")) + 1]; // then as declared
        heads.forEach(other => other.removeAttribute("aria-sort"));
        if (turn) head.setAttribute("aria-sort", turn);
        const sign = turn === "descending" ? -1 : 1;
        const isLast = cell => !isKnown(cell) || (numeric && isNaN(number(cell)));
        const compare = (a, b) => numeric ? number(a) - number(b) : words.compare(text(a), text(b));
        const sorted = !turn ? declared : [...declared].sort(({ cells: a }, { cells: b }) =>
          isLast(a[x]) - isLast(b[x]) || (isLast(a[x]) ? 0 : sign * compare(a[x], b[x])));
        body.append(...sorted);
      });
    });

    if (declared.length < SIEVED) continue;
    const input = made("input", { type: "search" }), count = made("output", {});
    box.before(made("div", { className: "sieve" }, made("label", {}, "Filter rows ", input), count));
    const all = box.closest(".part-of-table")?.querySelector("[type=checkbox]");
    input.addEventListener("input", () => {
      unspan(body);
      if (all) all.checked = true;
      const wanted = input.value.toLowerCase().split(/\s+/);
      for (const row of declared) row.hidden = !wanted.every(word => row.textContent.toLowerCase().includes(word));
      const shown = declared.filter(row => !row.hidden).length;
      count.value = input.value.trim() ? `${shown} of ${declared.length}` : "";
    });
  }
});
