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

// A table as CSV: into a file, or onto the clipboard.
function csvOf(table) {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.column ?? cell.textContent.trim());
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.dataset.value ?? cell.textContent.trim()));
  return [heads, ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
}
for (const region of document.querySelectorAll(".scroll")) {
  const table = region.querySelector("table");
  const bar = document.createElement("p");
  bar.className = "tools";
  const offer = (text, act) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-label", `${text}: ${region.getAttribute("aria-label")}`);
    button.addEventListener("click", () => act(button));
    bar.append(button);
  };
  offer("CSV", () => {
    const link = document.createElement("a");
    link.download = `${table.dataset.table || "table"}.csv`;
    link.href = URL.createObjectURL(new Blob([csvOf(table)], { type: "text/csv" }));
    link.click();
    URL.revokeObjectURL(link.href);
  });
  if (navigator.clipboard) {
    offer("copy", (button) => {
      navigator.clipboard.writeText(csvOf(table)).then(
        () => { button.textContent = "copied"; },
        () => { button.textContent = "the browser refuses"; });
    });
  }
  region.after(bar);
}

// The slider shows a row of the table of its stops for each way of setting clocks, and where it lies.
const front = document.getElementById("frontier");
if (front) {
  const table = document.querySelector("table[data-table=stops]");
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.column);
  const rows = [...table.tBodies[0].rows].map((row) => Object.fromEntries(names.map((name, at) => [name, row.cells[at].dataset.value])));
  const limits = front.dataset.limits.split("|");
  const bar = front.querySelector(".slider"), input = bar.querySelector("input");
  const say = () => {
    const at = Number(input.value), limit = limits[at];
    bar.querySelector("output").value = limit;
    input.setAttribute("aria-valuetext", limit);
    for (const card of front.querySelectorAll(".way")) {
      const row = rows.find((each) => each.way === card.dataset.way && each.limit === limit);
      for (const node of card.querySelectorAll("[data-cell]")) node.textContent = row ? row[node.dataset.cell] : node.dataset.cell === "note" ? "none here" : "";
      card.querySelector("p").hidden = !row;
      card.querySelector("pre").hidden = !row?.command;
    }
    for (const ring of document.querySelectorAll("[data-places]")) {
      const [x, y] = ring.dataset.places.split("|")[at].split(",");
      ring.setAttribute("visibility", x ? "visible" : "hidden");
      if (x) { ring.setAttribute("cx", x); ring.setAttribute("cy", y); }
    }
    for (const node of document.querySelectorAll("[data-said]")) node.textContent = node.dataset.said.split("|")[at];
  };
  bar.hidden = false;
  input.addEventListener("input", say);
  say(); // a browser may have kept where it stood
}

// What a change of energy is for a fleet of one's own.
const fleet = document.getElementById("fleet");
if (fleet) {
  const signed = (value) => `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 1 : 0 })}`;
  const say = () => {
    const given = (name) => Number(fleet.elements[name]?.value);
    const kwh = given("gpus") * given("hours") * fleet.dataset.powerW / 1000 * fleet.dataset.changePercent / 100;
    fleet.elements.kwh.value = signed(kwh);
    if (fleet.elements.money) fleet.elements.money.value = signed(kwh * given("usd"));
    if (fleet.elements.kg) fleet.elements.kg.value = signed(kwh * given("co2") / 1000);
  };
  fleet.addEventListener("input", say);
  fleet.addEventListener("submit", (event) => event.preventDefault());
  say();
}

// What is folded is opened by a link into it, and for paper.
const unfold = (node) => { for (let each = node; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true; };
const arrive = () => unfold(location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1))));
addEventListener("hashchange", arrive);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
arrive();
