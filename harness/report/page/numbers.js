// How numbers are written: three significant digits, "—" for what is missing; as harness/report/document.py does.
(function (page) {
  "use strict";

  const MISSING = "—";

  function decimalsOf(value) {
    if (value === 0 || Math.abs(value) >= 100) return 0;
    const exponent = Number(value.toExponential(2).split("e")[1]);
    return Math.min(2 - exponent, 12);
  }

  // 0.0116, 1.63, 12.3, 1,024
  function number(value, decimals) {
    if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
    const text = value.toFixed(decimals === undefined ? decimalsOf(value) : decimals);
    const [whole, rest] = text.split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
    return rest === undefined ? grouped : `${grouped}.${rest}`;
  }

  // "1.56–1.72", in the decimals of the value; "" where there is no interval.
  function interval(value, low, high) {
    const known = [low, high].map((end) => end !== null && end !== undefined && Number.isFinite(end));
    if (!known[0] && !known[1]) return "";
    const decimals = decimalsOf(Number.isFinite(value) ? value : known[0] ? low : high);
    return [low, high].map((end, at) => (known[at] ? number(end, decimals) : "?")).join("–");
  }

  // Powers of two, as memory limits are written.
  function bytes(value) {
    if (value === null || value === undefined) return MISSING;
    const gib = value / 2 ** 30;
    return gib >= 1 ? `${number(gib, Number.isInteger(gib) ? 0 : undefined)} GiB` : `${number(value / 2 ** 20)} MiB`;
  }

  // At most so many significant digits, neither grouped nor with an exponent: figures of a formula.
  function plain(value, digits) {
    const exponent = Number(value.toExponential(digits - 1).split("e")[1]);
    const text = value.toFixed(Math.min(100, Math.max(0, digits - 1 - exponent)));
    return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  }

  function count(many, one, several) {
    return `${number(many, 0)} ${many === 1 ? one : several || `${one}s`}`;
  }

  page.numbers = { MISSING, number, interval, bytes, count, plain, decimalsOf };
})((window.harnessPage = window.harnessPage || {}));
