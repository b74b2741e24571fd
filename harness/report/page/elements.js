// Elements are created here, and a text is only ever text.
const SVG = "http://www.w3.org/2000/svg";

function find(id) {
  return document.getElementById(id);
}

// `attributes`: a class, or values by name; an attribute of null or false is left out, and so is such a child.
function element(tag, attributes, ...children) {
  const drawn = tag === "svg" || tag === "path";
  const node = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  const present = (value) => value !== null && value !== undefined && value !== false;
  const named = typeof attributes === "string" ? { class: attributes } : attributes || {};
  for (const [name, value] of Object.entries(named)) if (present(value)) node.setAttribute(name, value);
  node.append(...children.flat(Infinity).filter(present));
  return node;
}

// A list of texts; null for none.
function list(tag, texts) {
  const items = texts.map((text) => element("li", null, text));
  return items.length ? element(tag, null, items) : null;
}

// Fill a select with options, [value, text] or the text alone, and choose one.
function fill(id, options, value) {
  const box = find(id);
  const key = JSON.stringify(options);
  // An open list stays open while its options are the same.
  if (box.dataset.options !== key) {
    box.dataset.options = key;
    const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
    box.replaceChildren(...pairs.map(([name, text]) => element("option", { value: name }, text)));
  }
  box.value = value;
  box.disabled = options.length < 2;
}

// A table of texts; columns: [text, class].
function grid(caption, columns, rows) {
  const cell = (text, at) => element(at ? "td" : "th", { scope: at ? null : "row", class: columns[at][1] }, text);
  const headers = columns.map(([text, kind]) => element("th", { scope: "col", class: kind }, text));
  const lines = rows.map((row) => element("tr", null, row.map(cell)));
  const parts = [element("thead", null, element("tr", null, headers)), element("tbody", null, lines)];
  return element("table", "plain", element("caption", null, caption), parts);
}
