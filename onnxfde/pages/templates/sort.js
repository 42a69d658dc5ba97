"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.value;
    if (value === undefined) return cell.textContent.trim().toLowerCase();
    return value === "" ? null : Number(value);
  };
  heads.forEach((head, column) => {
    const rows = [...table.tBodies[0].rows];
    if (rows.some((row) => row.cells[column].classList.contains("spark"))) return;
    const button = document.createElement("button");
    button.className = "sort";
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const known = [...table.tBodies[0].rows];
      known.sort((a, b) => {
        const [x, y] = [key(a, column), key(b, column)];
        if (x === null || y === null) return (x === null) - (y === null);
        const order = x < y ? -1 : x > y ? 1 : 0;
        return down ? -order : order;
      });
      table.tBodies[0].append(...known);
    });
  });
}
