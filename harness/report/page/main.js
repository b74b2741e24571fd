// Joins the parts: the URL's fragment -> what is chosen -> the view -> table, words, pictures.
(function (page) {
  "use strict";

  const { element, find } = page.elements;
  const QUIET_MS = 400; // a screen reader hears of the order that a drag ends with, not of all between
  let state = null;
  let view = null;
  let speaking = 0;
  let writing = 0;

  function current() {
    return state;
  }

  // Every choice comes through here.  dragging: more will follow, and the URL has its entry in the history at the end.
  function change(changes, { dragging = false } = {}) {
    state = { ...state, ...changes };
    show();
    window.clearTimeout(writing);
    if (dragging) writing = window.setTimeout(() => write("replaceState"), QUIET_MS);
    else write("pushState");
  }

  function settle() {
    window.clearTimeout(writing);
    write("replaceState");
  }

  function write(how) {
    const fragment = `#${page.state.format(state)}`;
    if (fragment !== (window.location.hash || "#")) window.history[how](null, "", fragment);
  }

  function read() {
    window.clearTimeout(writing);
    state = page.state.parse(window.location.hash);
    show();
  }

  function show() {
    view = page.view.compute(state);
    page.controls.show(view);
    page.controls.summarise(view);
    page.table.show(view);
    page.evidence.show(view);
    page.charts.show(view);
    window.clearTimeout(speaking);
    speaking = window.setTimeout(() => {
      const said = page.table.spoken(view);
      if (find("said").textContent !== said) find("said").textContent = said;
    }, QUIET_MS);
  }

  function paper(on) {
    page.table.forPrint(on);
    document.documentElement.classList.toggle("paper", on);
    page.table.show(view);
    page.charts.redraw();
  }

  function words() {
    const { content } = page;
    find("about").textContent = content.about.join(" · ");
    find("made").textContent =
      `Made by harness ${content.harness}; nothing is fetched and nothing is sent. A view is its address: send the whole address, and who has this file sees what you see.`;
    const overhead = content.overhead.map((null_) => {
      const item = page.data.figure(null_.mean);
      const mean = item.value === null ? "not measured" : `${page.numbers.number(item.value * 1e6)} µs`;
      return `harness itself on ${page.data.text(null_.profile)} (suite ${page.data.text(null_.suite)}, ${null_.origin === undefined || null_.origin === null ? "" : `of ${page.data.text(null_.origin)}, `}${null_.isolation}, ${null_.validity}): ${mean} a query.`;
    });
    const how = [
      "Dynascore: weight × accuracy in points, minus weight × cost and weight × latency, each divided by its exchange rate: how much of it one point of accuracy is worth among these rows. Mode “reference” takes the mean over neighbours in accuracy, as Dynaboard does; “robust” the median over neighbours whose accuracies can be told apart; “published” is what the paper’s scores were made with.",
      "Only rows of one comparison group are ranked together: same questions, same documents, asked in the same way. Failed and invalid rows are listed, never ranked.",
      "Front: ● no row is at least as good on both axes and better on one; ◆ contested: one is, by its values, but the intervals leave it open; ○ dominated.",
      "— is not measured, never 0; the number beside it stands below the table with the reason.",
      ...overhead,
      ...content.notes,
    ];
    find("notes").append(
      element(
        "ul",
        {},
        how.map((text) => element("li", {}, text)),
      ),
    );
  }

  function start() {
    page.data.load(find("data").textContent);
    words();
    page.controls.build();
    page.table.build();
    page.evidence.build();
    page.charts.build();
    for (const link of document.querySelectorAll("[data-skip]")) {
      link.addEventListener("click", (event) => {
        event.preventDefault(); // the fragment holds the view
        find(link.dataset.skip).focus();
      });
    }
    window.addEventListener("popstate", read);
    window.addEventListener("hashchange", read);
    window.addEventListener("beforeprint", () => paper(true));
    window.addEventListener("afterprint", () => paper(false));
    read();
  }

  page.main = { change, settle, current, view: () => view, paper };
  start();
})((window.harnessPage = window.harnessPage || {}));
