// Joins the parts: the URL's fragment -> what is chosen -> the view -> table, words, pictures.
const QUIET_MS = 400; // a screen reader hears the order that a drag ends with, not each between
let state = null;
let view = null;
let printing = false;
let speaking = 0;
let writing = 0;

// Every choice comes through here.  dragging: more will follow, and the history gets one entry at the end.
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
  const fragment = `#${format(state)}`;
  if (fragment !== (window.location.hash || "#")) window.history[how](null, "", fragment);
}

function readAddress() {
  window.clearTimeout(writing);
  state = parse(window.location.hash);
  show();
}

function show() {
  view = computeView(state);
  showControls(view);
  showTable(view);
  showBills(view);
  showEvidence(view);
  showPictures(view);
  window.clearTimeout(speaking);
  speaking = window.setTimeout(() => {
    const words = spoken(view);
    if (find("said").textContent !== words) find("said").textContent = words;
  }, QUIET_MS);
}

function paper(on) {
  printing = on;
  document.documentElement.classList.toggle("paper", on);
  showTable(view);
  redrawPictures();
}

load(find("data").textContent);
buildControls();
buildTable();
buildEvidence();
buildPictures();
buildBills();
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment holds the view
  find("leaderboard").focus();
});
// Not popstate too: it comes first, and a table made a second time would lose the focus that a closed dialog gave back.
window.addEventListener("hashchange", readAddress);
window.addEventListener("beforeprint", () => paper(true));
window.addEventListener("afterprint", () => paper(false));
readAddress();
// For tests and for the console.
window.harnessPage = {
  ...{ content, change, parse, format, read, axisValues, rankingOf, exchangeRate, scores, ranksOf, turned },
  ...{ frontStates, regionsOf, winnerRegions, rankSpans, explained, binsOf, billOf, cheapestOf, curveOf, changesOf, billSentence, paidSentence, billsOf, redrawPictures },
  ...{ state: () => state, view: () => view },
};
