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
