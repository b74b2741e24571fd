// BM25 in plain JavaScript.  Speaks the JSON lines of docs/reference/container-contract.md: one request a line on standard input,
// one reply a line on standard output.
//
// The index is one file of JSON lines: {ids, lengths}, then [term, [document, frequency, document, frequency, ...]].
"use strict";

const fs = require("fs");
const path = require("path");

const FILE = "bm25.jsonl";
const CHUNK = 1 << 16;
const WORDS = /[\p{L}\p{N}]+/gu;

const words = (text) => text.toLowerCase().match(WORDS) || [];

// The lines of a file or pipe.  Reads block: nothing else has to be done meanwhile, and no event loop stands between
// a request and its answer.
function* lines(descriptor) {
  const chunk = Buffer.alloc(CHUNK);
  let parts = [];
  for (;;) {
    const size = fs.readSync(descriptor, chunk, 0, CHUNK, null);
    if (size === 0) return;
    let start = 0;
    for (let end; (end = chunk.indexOf(10, start)) >= 0 && end < size; start = end + 1) {
      parts.push(Buffer.from(chunk.subarray(start, end)));
      yield Buffer.concat(parts).toString("utf8");
      parts = [];
    }
    if (start < size) parts.push(Buffer.from(chunk.subarray(start, size)));
  }
}

// A pipe may take less than all of it at once.
function write(descriptor, text) {
  const bytes = Buffer.from(text + "\n");
  for (let sent = 0; sent < bytes.length; ) sent += fs.writeSync(descriptor, bytes, sent);
}

const reply = (value) => write(1, JSON.stringify(value));

function build({ corpus, index }) {
  const ids = [];
  const lengths = [];
  const postings = new Map();
  const file = fs.openSync(corpus, "r");
  for (const line of lines(file)) {
    const { _id, title, text } = JSON.parse(line);
    const counts = new Map();
    const found = words(`${title || ""} ${text}`);
    for (const word of found) counts.set(word, (counts.get(word) || 0) + 1);
    for (const [word, count] of counts) {
      if (!postings.has(word)) postings.set(word, []);
      postings.get(word).push(ids.length, count);
    }
    ids.push(_id);
    lengths.push(found.length);
    if (ids.length % 10000 === 0) reply({ progress: ids.length });
  }
  fs.closeSync(file);
  const out = fs.openSync(path.join(index, FILE), "w");
  write(out, JSON.stringify({ ids, lengths }));
  for (const entry of postings) write(out, JSON.stringify(entry));
  fs.closeSync(out);
}

class Searcher {
  constructor({ index, params }) {
    const file = fs.openSync(path.join(index, FILE), "r");
    const all = lines(file);
    const { ids, lengths } = JSON.parse(all.next().value);
    this.ids = ids;
    this.postings = new Map();
    for (const line of all) {
      const [word, pairs] = JSON.parse(line);
      this.postings.set(word, Int32Array.from(pairs));
    }
    fs.closeSync(file);
    const mean = lengths.reduce((sum, length) => sum + length, 0) / lengths.length || 1;
    this.k1 = params.k1;
    // What a document's length adds below the line; the same for each of its words.
    this.norms = Float64Array.from(lengths, (length) => params.k1 * (1 - params.b + (params.b * length) / mean));
    this.scores = new Float64Array(ids.length);
  }

  search(query, k) {
    const touched = [];
    for (const word of words(query)) {
      const pairs = this.postings.get(word);
      if (!pairs) continue;
      const matching = pairs.length / 2;
      const idf = Math.log(1 + (this.ids.length - matching + 0.5) / (matching + 0.5));
      for (let at = 0; at < pairs.length; at += 2) {
        const doc = pairs[at];
        const tf = pairs[at + 1];
        if (this.scores[doc] === 0) touched.push(doc);
        this.scores[doc] += (idf * tf * (this.k1 + 1)) / (tf + this.norms[doc]);
      }
    }
    const hits = this.best(touched, k).map((doc) => [this.ids[doc], this.scores[doc]]);
    for (const doc of touched) this.scores[doc] = 0;
    return hits;
  }

  // The k best documents, best first; of equal ones the one that came first in the corpus.
  best(touched, k) {
    const before = (a, b) => this.scores[b] - this.scores[a] || a - b;
    if (touched.length <= k) return touched.sort(before);
    const floor = Float64Array.from(touched, (doc) => this.scores[doc]).sort()[touched.length - k];
    return touched.filter((doc) => this.scores[doc] >= floor).sort(before).slice(0, k);
  }
}

let searcher = null;
const libraries = { node: process.versions.node, v8: process.versions.v8 };
const verbs = {
  build: (request) => (build(request), { libraries }),
  load: (request) => ((searcher = new Searcher(request)), { search_batch: true }),
  search: ({ query, k }) => {
    const start = process.hrtime.bigint();
    const hits = searcher.search(query, k);
    return { hits, stages_s: { retrieve: Number(process.hrtime.bigint() - start) / 1e9 } };
  },
  search_batch: ({ queries, k }) => ({ answers: queries.map((query) => searcher.search(query, k)) }),
  // JavaScript runs on one thread; V8's helpers were given their number on the command line.
  threads: () => ({ threads: { javascript: 1, v8_pool: Number(process.argv[2]) } }),
  libraries: () => ({ libraries }),
  close: () => ({}),
};

for (const line of lines(0)) {
  const request = JSON.parse(line);
  try {
    reply(verbs[request.verb](request));
  } catch (error) {
    reply({ error: String(error) });
  }
}
