"use strict";
// The page is complete without this script. It adds sorting, filters, toggles and the values under the pointer.
(() => {
  const create = (tag, text, className) => {
    const node = document.createElement(tag);
    if (text) node.textContent = text;
    if (className) node.className = className;
    return node;
  };

  // Tables: a click on a heading sorts by this column; long tables have a filter.
  const keyOf = (row, column) => {
    const cell = row.children[column];
    const key = cell.dataset.key ?? cell.textContent.trim();
    const number = parseFloat(String(key).replaceAll(",", ""));
    return Number.isNaN(number) ? key : number;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a.localeCompare(b);
  };
  for (const table of document.querySelectorAll("table.tools")) {
    const body = table.tBodies[0];
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      if (!heading.textContent.trim()) return;
      const button = create("button", heading.textContent);
      button.type = "button";
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].sort((a, b) => compare(keyOf(a, column), keyOf(b, column)));
        body.append(...(down ? rows.reverse() : rows));
      });
    });
    if (body.rows.length > 8) addFilter(table, [...body.rows], table.caption.textContent);
  }
  for (const list of document.querySelectorAll("ul.filtered")) addFilter(list, [...list.children], list.dataset.name);

  function addFilter(before, rows, name) {
    const label = create("label", "Filter ", "filter");
    const input = create("input");
    input.type = "search";
    input.setAttribute("aria-label", `Filter: ${name}`);
    const count = create("span", "", "muted");
    count.setAttribute("role", "status");
    label.append(input, count);
    before.before(label);
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      let kept = 0;
      for (const row of rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        kept += !row.hidden;
      }
      count.textContent = wanted ? `${kept} of ${rows.length}` : "";
    });
  }

  // Charts: a button per line shows and hides it; the pointer and the arrow keys show the values.
  const tip = create("div", "", "tip");
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);
  for (const svg of document.querySelectorAll(".chart svg")) {
    const names = [...new Set([...svg.querySelectorAll("[data-series]")].map((group) => group.dataset.series))];
    if (names.length > 1) svg.after(toggles(svg, names));
    if (svg.dataset.hover) hover(svg, JSON.parse(svg.dataset.hover));
  }

  function toggles(svg, names) {
    const list = create("div", "", "toggles");
    svg.parentElement.querySelector(".legend")?.remove();
    list.setAttribute("role", "group");
    list.setAttribute("aria-label", "Show and hide");
    for (const name of names) {
      const button = create("button", name);
      button.type = "button";
      const group = [...svg.querySelectorAll("[data-series]")].find((one) => one.dataset.series === name);
      button.className = `swatch ${group.getAttribute("class") ?? ""}`;
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        for (const group of svg.querySelectorAll("[data-series]")) {
          if (group.dataset.series === name) group.classList.toggle("off", !on);
        }
      });
      list.append(button);
    }
    return list;
  }

  function hover(svg, points) {
    if (!points.length) return;
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cursor.setAttribute("class", "cursor");
    let at = points.length - 1;
    const show = (index) => {
      at = Math.max(0, Math.min(points.length - 1, index));
      const [x, lines] = points[at];
      cursor.setAttribute("d", `M${x} 12V256`);
      svg.append(cursor);
      tip.textContent = lines.join("\n");
      tip.hidden = false;
      const box = svg.getBoundingClientRect();
      const left = box.left + (x / svg.viewBox.baseVal.width) * box.width;
      tip.style.left = `${Math.max(4, Math.min(left + 10, innerWidth - tip.offsetWidth - 4))}px`;
      tip.style.top = `${Math.max(4, Math.min(box.top + 8, innerHeight - tip.offsetHeight - 4))}px`;
    };
    const hide = () => {
      tip.hidden = true;
      cursor.remove();
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      let best = 0;
      points.forEach(([position], i) => {
        if (Math.abs(position - x) < Math.abs(points[best][0] - x)) best = i;
      });
      show(best);
    });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) {
        event.preventDefault();
        show(tip.hidden ? at : at + step);
      } else if (event.key === "Escape") hide();
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
  }

  // A button that copies a recipe.
  for (const block of document.querySelectorAll("pre.recipe")) {
    const button = create("button", "Copy", "copy");
    button.type = "button";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(block.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(block); // a page from a file may not write to the clipboard
        button.textContent = "Selected: press Ctrl+C";
      }
    });
    block.before(button);
  }
})();
