// How numbers are written: three significant digits, "—" for a missing one; as harness/report/document.py does.
const MISSING = "—";

function decimalsOf(value) {
  if (value === 0 || Math.abs(value) >= 100) return 0;
  const exponent = Number(value.toExponential(2).split("e")[1]);
  return Math.min(2 - exponent, 12);
}

// 0.0116, 1.63, 12.3, 1,024
function number(value, decimals) {
  if (!Number.isFinite(value)) return MISSING;
  const [whole, rest] = value.toFixed(decimals === undefined ? decimalsOf(value) : decimals).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return rest === undefined ? grouped : `${grouped}.${rest}`;
}

// "1.56–1.72", in the decimals of the value; "" without an interval.
function interval(value, low, high) {
  const known = [low, high].filter(Number.isFinite);
  if (!known.length) return "";
  const decimals = decimalsOf(Number.isFinite(value) ? value : known[0]);
  return [low, high].map((end) => (Number.isFinite(end) ? number(end, decimals) : "?")).join("–");
}

// Powers of two, as memory limits are written.
function bytes(value) {
  const gib = value / 2 ** 30;
  return gib >= 1 ? `${number(gib, Number.isInteger(gib) ? 0 : undefined)} GiB` : `${number(value / 2 ** 20)} MiB`;
}

// A number of a formula: at most so many significant digits, neither grouped nor with an exponent.
function plain(value, digits) {
  const exponent = Number(value.toExponential(digits - 1).split("e")[1]);
  const text = value.toFixed(Math.min(100, Math.max(0, digits - 1 - exponent)));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function count(many, one, several = `${one}s`) {
  return `${number(many, 0)} ${many === 1 ? one : several}`;
}
