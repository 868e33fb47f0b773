"use strict";
// Code and tables that are wider than the page can be scrolled with the keyboard. The theme adds their boxes after this script has run.
const makeScrollable = () => {
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
};
new MutationObserver(makeScrollable).observe(document.body, { childList: true, subtree: true });
for (const event of ["load", "resize"]) addEventListener(event, makeScrollable);
makeScrollable();
