// Elements are made here, and texts are only ever text.
(function (page) {
  "use strict";

  // attributes: plain ones by name; "on..." are listeners; true is an empty attribute, null and false none.
  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return made;
  }

  function find(id) {
    return document.getElementById(id);
  }

  // A labelled select; options: [[value, text], ...].
  function select(id, label, options, onchange) {
    const box = element("select", { id, onchange: (event) => onchange(event.target.value) });
    fill(box, options);
    return element("label", { class: "field", for: id }, element("span", {}, label), box);
  }

  function fill(box, options) {
    const key = JSON.stringify(options);
    if (box.dataset.options === key) return; // an open list stays open
    box.dataset.options = key;
    box.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  }

  // A table of finished texts; columns: [{text, numeric}], cells: texts or nodes.
  function grid(caption, columns, rows) {
    return element(
      "table",
      { class: "plain" },
      element("caption", {}, caption),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          columns.map((column) =>
            element("th", { scope: "col", class: column.numeric ? "number" : null }, column.text),
          ),
        ),
      ),
      element(
        "tbody",
        {},
        rows.map((row) =>
          element(
            "tr",
            {},
            row.map((cell, at) =>
              element(
                at ? "td" : "th",
                { scope: at ? null : "row", class: columns[at].numeric ? "number" : null },
                cell,
              ),
            ),
          ),
        ),
      ),
    );
  }

  page.elements = { element, find, select, fill, grid };
})((window.harnessPage = window.harnessPage || {}));
