// On a phone a table of keys is read row by row, each value behind its heading (site.css).
for (const table of document.querySelectorAll(".md-typeset table:has(th:nth-child(3)):has(td:first-child > code)")) {
  table.dataset.keys = "";
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, place) => { cell.dataset.heading = table.tHead.rows[0].cells[place].textContent; });
  }
}

// What scrolls can be reached by keyboard; what the theme hides from screen readers cannot. The theme changes both when
// it starts and when the window does.
function mend() {
  for (const each of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (each.tabIndex < 0) each.tabIndex = 0;
  }
  for (const each of document.querySelectorAll('input[aria-hidden="true"]')) {
    if (each.tabIndex >= 0) each.tabIndex = -1;
  }
  document.querySelector(".md-search[role=dialog]:not([aria-label])")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((each, place) => {
    each.setAttribute("aria-label", `Code ${place + 1}`);
  });
}
mend();
new MutationObserver(mend).observe(document.body, {
  childList: true, subtree: true, attributes: true, attributeFilter: ["tabindex"],
});
