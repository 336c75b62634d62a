// Tables sort by a click on a heading; without this they are read as they stand.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const numeric = head.classList.contains("number");
      const value = (row) => row.cells[place].dataset.value;
      const rows = [...body.rows].sort((one, other) => {
        const a = value(one), b = value(other);
        // nothing comes last, words such as auto after numbers
        if (a === "" || b === "") return (a === "") - (b === "");
        const x = numeric ? Number(a) : NaN, y = numeric ? Number(b) : NaN;
        if (isNaN(x) !== isNaN(y)) return isNaN(x) - isNaN(y);
        const order = isNaN(x) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
        return down ? -order : order;
      });
      body.append(...rows);
    });
  });
}
