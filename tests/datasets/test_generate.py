"""Generated collections: geometry, places of relevant passages, equal bytes, licences, refusals."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from harness import datasets, filesystem
from harness.datasets.generate import kinds as generate
from harness.datasets.generate import wordpieces
from harness.datasets.generate.kinds import KINDS
from harness.datasets.generate.passages import body, sentence_spans
from harness.datasets.passage_positions import POSITIONS, RelevantPosition, read_positions
from harness.errors import UsageError
from tests.support.command_line import call

SHIPPED = Path(__file__).resolve().parents[2] / "datasets"
# One token each.
WORDS = ("river", "stone", "bridge", "garden", "winter", "summer", "market", "castle", "forest", "island", "window")
SENTENCES: dict[str, Any] = {"passage_tokens": (3, 20)}
SMALL: dict[str, dict[str, Any]] = {
    "far-relevant": {"queries": 20, "min_tokens": 80, "max_tokens": 231, **SENTENCES, "candidates": 10},
    "placed": {"queries": 12, "lengths": (80, 231), "depths": (0.0, 0.5, 1.0), **SENTENCES, "candidates": 4},
    "needle": {"queries": 4, "documents": 6, "lengths": (64, 128), "passage_tokens": (3, 40), "candidates": 5},
    "passkey": {"queries": 4, "documents": 6, "lengths": (128, 256), "candidates": 5},
    "shuffled": {"max_tokens": 60},
    "uniform": {"queries": 40, "min_tokens": 80, "max_tokens": 231, **SENTENCES, "candidates": 10},
}


def write_source(folder: Path, queries: int, fillers: int, shortest: int, longest: int) -> Path:
    """Passages of ``shortest`` to ``longest`` tokens that end in their only full stop; one is relevant for a query."""
    folder.mkdir()
    rng = random.Random(0)
    with (folder / "corpus.jsonl").open("w") as corpus:
        for number in range(queries + fillers):
            words = rng.choices(WORDS, k=rng.randint(shortest, longest) - 1)
            kind = f"r{number}" if number < queries else f"f{number}"
            print(json.dumps({"_id": kind, "title": "", "text": " ".join(words) + " ."}), file=corpus)
    with (folder / "queries.jsonl").open("w") as asked, (folder / "qrels.trec").open("w") as qrels:
        for number in range(queries):
            print(json.dumps({"_id": f"q{number}", "text": f"which is number {number}"}), file=asked)
            print(f"q{number} 0 r{number} 1\nq{number} 0 f{queries} 0", file=qrels)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 queries, of which two ask for one text; 400 fillers, 200 copies of those, and copies of judged texts."""
    folder = write_source(tmp_path_factory.mktemp("sources") / "tiny", 40, 400, 4, 20)
    lines = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    lines[1]["text"] = lines[0]["text"]
    lines += [{**line, "_id": f"copy-{line['_id']}", "text": line["text"].upper()} for line in lines[:240]]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def texts(folder: Path) -> dict[str, str]:
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {document["_id"]: document["text"] for document in map(json.loads, lines)}


def at_their_places(folder: Path) -> Iterator[tuple[RelevantPosition, str]]:
    """Yield each position with its text, once its tokens are counted again."""
    documents = texts(folder)
    for each in read_positions(folder / POSITIONS):
        text = documents[each.doc]
        passage = text[each.start_char : each.end_char]
        before, inside, whole = wordpieces.count_tokens([text[: each.start_char], passage, text])
        assert (each.start_token, each.end_token, each.length) == (before, before + inside, whole)
        yield each, passage


@pytest.mark.slow
def test_counts_of_passages_add_up_over_blanks() -> None:
    hostile = ["don't", "[SEP] x", "naïve café", "a" * 120, "你好,世界", "\u0301 accent", "3.14e-5", "\u200bzero", "…"]
    with gzip.open(SHIPPED / "scifact" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        passages = [*hostile, *(body(json.loads(line)) for line, _ in zip(lines, range(200), strict=False))]
    assert sum(wordpieces.count_tokens(passages)) == wordpieces.count_tokens([" ".join(passages)])[0]
    whole = passages[-1]
    for most in (0, 1, 10, 50):
        cut = wordpieces.cut_at_word(whole, most)
        after = whole[len(cut) :].split()[0]
        assert whole.startswith(cut) and wordpieces.count_tokens([cut])[0] <= most
        assert wordpieces.count_tokens([f"{cut} {after}"])[0] > most


@pytest.mark.slow
def test_far_relevant_has_the_geometry_of_the_study(tmp_path: Path, cache: Path) -> None:
    source = write_source(tmp_path / "source", 1000, 3000, 15, 135)
    generate.generate("far-relevant", source, tmp_path / "out", cache, 7)
    with (source / "corpus.jsonl").open() as lines:
        known = {document["text"]: document["_id"] for document in map(json.loads, lines)}
    tokens = dict(zip(known, wordpieces.count_tokens(list(known)), strict=True))
    documents, lengths = texts(tmp_path / "out"), []
    for each in read_positions(tmp_path / "out" / POSITIONS):
        text = documents.pop(each.doc)
        passages = [f"{part.strip()} ." for part in text.split(".") if part.strip()]
        assert " ".join(passages) == text and len(set(passages)) == len(passages), "none is repeated"
        ends = list(accumulate(tokens[passage] for passage in passages))
        relevant = ends.index(each.end_token)
        assert text[each.start_char : each.end_char] == passages[relevant]
        assert known[passages[relevant]] == f"r{each.query[1:]}"
        assert [known[passage][0] for passage in passages].count("r") == 1, "no filler is judged relevant"
        first = next(number for number, end in enumerate(ends) if end > 512)
        assert first < relevant and each.start_token == ends[relevant - 1] > 512, "the first part ends before it"
        assert each.length == ends[-1] <= 1431
        lengths.append(each.length)
    assert not documents and len(lengths) == 1000
    assert 940 <= statistics.fmean(lengths) <= 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in ("joined", "larger", "filtered")]
)  # no passage is drawn
def test_equal_seeds_give_equal_bytes_and_positions_point_at_passages(
    tmp_path: Path, cache: Path, tiny: Path, kind: str
) -> None:
    def content(name: str, seed: int) -> dict[str, bytes]:
        generate.generate(kind, tiny, tmp_path / name, cache, seed, SMALL[kind])
        return {
            str(path.relative_to(tmp_path / name)): path.read_bytes() for path in sorted((tmp_path / name).rglob("*.*"))
        }

    one, other = content("one", 1), content("two", 1)
    assert one == other and content("three", 2) != one
    judged = {
        json.loads(line)["_id"]: json.loads(line)["text"] for line in (tiny / "corpus.jsonl").read_text().splitlines()
    }
    for folder in [tmp_path / "one"] if kind != "shuffled" else [tmp_path / "one" / "train", tmp_path / "one" / "test"]:
        dataset = datasets.load(folder, cache)
        assert dataset.faults == () and dataset.queries
        found = list(at_their_places(folder))
        assert {each.query for each, _ in found} == {query.query_id for query in dataset.queries}
        if kind in ("needle", "passkey"):
            assert len({each.start_token for each, _ in found}) > len(found) // 2
        if kind == "passkey":
            names = {query.query_id: query.text.split("for ")[1].rstrip("?") for query in dataset.queries}
            assert all(each[1].startswith(names[each[0].query]) for each in found)
        elif kind != "shuffled":
            passages = [passage for _, passage in found]
            assert passages == [judged[f"r{each.query[1:]}"] for each, _ in found]
            assert len(set(passages)) == len(passages), "no two queries ask for one text"
            for text in texts(folder).values():
                own = [passage for passage in passages if passage in text]
                parts = [f"{part.strip()} ." for part in text.lower().split(".") if part]
                assert kind == "needle" or len(parts) == len(set(parts)), "no passage is repeated"
                others = set(parts) - {*own}
                assert not others & {judged[f"r{number}"] for number in range(40)}, "also no copies of them"
        if "candidates" in SMALL[kind]:
            _check_candidates(folder, dataset.qrels.decode(), SMALL[kind]["candidates"])


def _candidates(folder: Path) -> dict[str, list[str]]:
    by_query: dict[str, list[str]] = {}
    for line in (folder / "candidates.trec").read_text().splitlines():
        query, _, doc, rank, _, _ = line.split()
        by_query.setdefault(query, []).append(doc)
        assert int(rank) == len(by_query[query])
    return by_query


def _check_candidates(folder: Path, qrels: str, number: int) -> None:
    relevant = {line.split()[0]: line.split()[2] for line in qrels.splitlines()}
    found = _candidates(folder)
    assert set(found) == set(relevant)
    for query, docs in found.items():
        assert len(docs) == len(set(docs)) == number and relevant[query] in docs


@pytest.mark.slow
def test_placed_passages_take_all_depths_and_lengths(tmp_path: Path, cache: Path, tiny: Path) -> None:
    generate.generate("placed", tiny, tmp_path / "out", cache, 3, SMALL["placed"])
    found = list(read_positions(tmp_path / "out" / POSITIONS))
    assert {(each.target_length, each.depth) for each in found} == {(t, d) for t in (80, 231) for d in (0.0, 0.5, 1.0)}
    for each in found:
        assert each.target_length is not None and each.target_length - 20 <= each.length <= each.target_length
        rest = each.length - (each.end_token - each.start_token)
        assert abs(each.start_token - (each.depth or 0) * rest) <= 10, "half a filler, at most"
    given = {**SMALL["placed"], "passage_tokens": (4, 20), "lengths": (80, 150, 231)}
    generate.generate("placed", tiny, tmp_path / "three", cache, 3, given)
    missing = {(each.target_length or 0) - each.length for each in read_positions(tmp_path / "three" / POSITIONS)}
    assert missing <= {0, 1, 2, 3}, "less than the shortest filler"


@pytest.mark.slow
@pytest.mark.parametrize(("source", "kind"), [("xquad-zh", "needle"), ("scifact", "passkey")])
def test_hiding_documents_miss_their_length_by_less_than_a_word_and_depth_counts_tokens(
    tmp_path: Path, cache: Path, source: str, kind: str
) -> None:
    given = {"lengths": (256, 512), "queries": 10, "documents": 12}
    generate.generate(kind, SHIPPED / source, tmp_path / "out", cache, 1, given)
    documents, depths = texts(tmp_path / "out"), set[float]()
    for doc_id, tokens in zip(documents, wordpieces.count_tokens(list(documents.values())), strict=True):
        target = int(doc_id[1:].split("-")[0])
        assert target - 5 < tokens <= target, "the longest word of these texts has five pieces"
    for each, _ in at_their_places(tmp_path / "out"):
        around = each.length - (each.end_token - each.start_token)
        assert each.depth == round(each.start_token / around, 4)
        depths.add(each.depth)
    assert len(depths) > 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "lengths", [("--lengths", "128", "--lengths", "64"), ("--lengths", "64,128"), ("--lengths", "64 128")]
)
def test_lengths_are_repeated_or_listed(tmp_path: Path, cache: Path, tiny: Path, lengths: tuple[str, ...]) -> None:
    command = ["generate", "passkey", "--from", str(tiny), "--out", str(tmp_path / "out"), "--cache", str(cache)]
    done = call(*command, "--queries", "2", "--documents", "3", *lengths)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "out" / "generator.json").read_text())
    assert record["parameters"]["lengths"] == [64, 128]
    assert {each.target_length for each in read_positions(tmp_path / "out" / POSITIONS)} == {64, 128}


@pytest.mark.slow
def test_shuffled_documents_hold_the_same_words_and_one_segment_is_the_original(
    tmp_path: Path, cache: Path, tiny: Path
) -> None:
    generate.generate("far-relevant", tiny, tmp_path / "far", cache, 1, SMALL["far-relevant"])
    generate.generate("shuffled", tmp_path / "far", tmp_path / "cut", cache, 1)
    generate.generate("shuffled", tmp_path / "far", tmp_path / "same", cache, 1, {"segments": (1, 1)})
    original = texts(tmp_path / "far")
    whole = {each.query: passage for each, passage in at_their_places(tmp_path / "far")}
    queries: list[str] = []
    for name in ("train", "test"):
        assert texts(tmp_path / "same" / name) == original
        cut = texts(tmp_path / "cut" / name)
        assert all(sorted(cut[doc].split()) == sorted(original[doc].split()) for doc in original)
        pieces: dict[str, list[str]] = {}
        for each, piece in at_their_places(tmp_path / "cut" / name):
            pieces.setdefault(each.query, []).append(piece)
        for query, found in pieces.items():
            assert sorted(" ".join(found).split()) == sorted(whole[query].split())
        queries += pieces
    assert texts(tmp_path / "cut" / "train") != texts(tmp_path / "cut" / "test")
    assert sorted(queries) == sorted(whole), "each query is in one of the two copies"


@pytest.mark.slow
def test_sources_judged_everywhere_hold_queries_out(tmp_path: Path, cache: Path) -> None:
    made = generate.generate("uniform", SHIPPED / "xquad-en", tmp_path / "out", cache, 1, {"passages": "sentences"})
    dataset = datasets.load(SHIPPED / "xquad-en", cache)
    relevant = {fields[0]: fields[2] for fields in map(str.split, dataset.qrels.decode().splitlines())}
    by_id = {document["_id"]: body(document) for document in dataset.corpus}
    asked = [json.loads(line)["_id"] for line in (tmp_path / "out" / "queries.jsonl").read_text().splitlines()]
    judged = {by_id[relevant[query]] for query in asked}
    sentences = {text[a:b] for text in judged for a, b in sentence_spans(text) if b - a > 80}
    documents = texts(tmp_path / "out")
    passages = {each.doc: passage for each, passage in at_their_places(tmp_path / "out")}
    assert len(documents) == len(asked) > 200
    for doc_id, text in documents.items():
        fillers = text.replace(passages[doc_id], " ")
        assert not any(sentence in fillers for sentence in sentences)
    of_paragraph = {each.doc: relevant[each.query] for each in read_positions(tmp_path / "out" / POSITIONS)}
    ranks = []
    for query, docs in _candidates(tmp_path / "out").items():
        (own,) = (rank for rank, doc in enumerate(docs, 1) if of_paragraph[doc] == relevant[query])
        ranks.append(own)  # no candidate holds another sentence of the judged paragraph
    assert abs(statistics.fmean(1 / rank for rank in ranks) - 0.0519) < 3 * 0.1169 / len(ranks) ** 0.5, "chance"
    assert "BY-SA 4.0" in str(made.facts.licence) and "Artetxe" in (tmp_path / "out" / "README.md").read_text()
    record = json.loads((tmp_path / "out" / "generator.json").read_text())
    assert record["source"]["corpus_sha256"] == dataset.corpus.sha256 and "BY-SA 4.0" in record["source"]["licence"]
    assert datasets.load(tmp_path / "out", cache).language == "en"
    assert datasets.licence(tmp_path / "out") == made.facts, "what is generated from it carries the licence on"


@pytest.mark.slow
def test_joined_parts_share_grades_and_untitled_documents_stay_alone(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    parts = [("a", "One", "ice"), ("b", "One", " "), ("c", "One", "rock ash"), ("d", "", "river"), ("e", "", "river")]
    documents = [json.dumps({"_id": name, "title": title, "text": text}) for name, title, text in parts]
    (folder / "corpus.jsonl").write_text("".join(f"{line}\n" for line in documents))
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "rock"}\n')
    (folder / "qrels.trec").write_text("q 0 a 0\nq 0 c 2\nq 0 e 1\nq 0 b 1\n")
    made = generate.generate("joined", folder, tmp_path / "out", cache)
    assert texts(tmp_path / "out") == {"a": "ice rock ash", "d": "river", "e": "river"}
    assert (tmp_path / "out" / "qrels.trec").read_text() == "q 0 a 2\nq 0 e 1\n"
    assert list(read_positions(tmp_path / "out" / POSITIONS)) == [
        RelevantPosition("q", "a", 1, 3, 4, 12, 3),
        RelevantPosition("q", "e", 0, 1, 0, 5, 1),
    ]
    (notes,) = (written.notes for written in made.folders.values())
    assert list(notes.values()) == [1], "the judgement of the empty part"


def _every_tenth_unjudged(source: Path, folder: Path) -> Path:
    """Write a copy with all judged documents and a tenth of the others."""
    shutil.copytree(source, folder)
    judged = {line.split()[2] for line in (folder / "qrels.trec").read_text().splitlines()}
    lines = gzip.decompress((folder / "corpus.jsonl.gz").read_bytes()).splitlines(keepends=True)
    kept = [line for number, line in enumerate(lines) if number % 10 == 0 or json.loads(line)["_id"] in judged]
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(b"".join(kept)))
    return folder


@pytest.mark.slow
def test_larger_is_the_source_among_distractors_of_unjudged_sentences(tmp_path: Path, cache: Path) -> None:
    given = _every_tenth_unjudged(SHIPPED / "scifact", tmp_path / "given")
    source = datasets.load(given, cache)
    made = generate.generate("larger", given, tmp_path / "out", cache, 3, {"documents": 8_000, "max_tokens": 200})
    dataset = datasets.load(tmp_path / "out", cache)
    assert dataset.qrels == source.qrels and dataset.queries == source.queries and dataset.faults == ()
    distractors, kept, places = list[str](), list[dict[str, str]](), list[int]()
    for place, document in enumerate(dataset.corpus):  # an id that comes twice is refused by the load
        if document["_id"].startswith("distractor-"):
            distractors.append(document["text"])
        else:
            kept.append(document)
            places.append(place)
    assert len(distractors) + len(kept) == 8_000 and kept == list(source.corpus)
    assert len(set(distractors)) == len(distractors)
    assert abs(statistics.fmean(places) - 4_000) < 3 * 8_000 / (12 * len(places)) ** 0.5, "anywhere among them"
    judged = {line.split()[2] for line in source.qrels.decode().splitlines()}
    allowed, forbidden, lengths = set[str](), set[str](), list[int]()
    for document in source.corpus:
        text = body(document)
        sentences = {text[start:end] for start, end in sentence_spans(text)}
        (forbidden if document["_id"] in judged else allowed).update(sentences)
        lengths += [] if document["_id"] in judged else wordpieces.count_tokens([text])
    counts = wordpieces.count_tokens(distractors[:3000])
    assert max(counts) <= 200
    wanted = statistics.fmean(min(length, 200) for length in lengths)
    assert wanted - 36 < statistics.fmean(counts) <= wanted, "as long as the source's, less than a sentence apart"
    _check_sentences(distractors[::4], allowed, forbidden)
    record = json.loads((tmp_path / "out" / "generator.json").read_text())
    assert (record["documents"], record["queries"]) == (8_000, 300)
    assert "ODC-By" in str(made.facts.licence) and "David Wadden" in (tmp_path / "out" / "README.md").read_text()
    assert not (tmp_path / "out" / "positions.jsonl").exists()
    with pytest.raises(UsageError, match="out: has distractors already; name the dataset that it was made from"):
        generate.generate("larger", tmp_path / "out", tmp_path / "more", cache, 0, {"documents": 8_001})


def _check_sentences(distractors: list[str], allowed: set[str], forbidden: set[str]) -> None:
    """Every distractor is a row of at least two different sentences that are allowed, none of them forbidden."""
    usable = allowed - forbidden
    longest = max(len(sentence.split()) for sentence in usable)
    used = set[str]()
    for text in distractors:
        words, found, start = text.split(" "), list[str](), 0
        while start < len(words):
            ends = range(min(len(words), start + longest), start, -1)
            end = next((end for end in ends if " ".join(words[start:end]) in usable), None)
            assert end is not None, f"no sentence of an unjudged document: {' '.join(words[start:])[:200]}"
            found.append(" ".join(words[start:end]))
            start = end
        assert len(found) == len(set(found)) >= 2
        used.update(found)
    assert len(used) > 0.3 * len(usable), "sentences of all documents are used"


@pytest.mark.slow
def test_equal_seeds_give_equal_bytes_in_any_process(tmp_path: Path, cache: Path, tiny: Path) -> None:
    def content(name: str, seed: str) -> dict[str, bytes]:
        command = ["generate", "larger", "--from", str(tiny), "--out", str(tmp_path / name), "--cache", str(cache)]
        command += ["--passage-tokens", "3-20", "--seed", seed, "--documents", "1000", "--max-tokens", "60"]
        environment = {**os.environ, "PYTHONHASHSEED": name[-1]}
        subprocess.run([sys.executable, "-m", "harness", *command], check=True, capture_output=True, env=environment)
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    one, other = content("one1", "1"), content("three3", "2")
    assert one == content("two2", "1")
    differing = {name for name in one if one[name] != other[name]}
    assert differing == {"README.md", "corpus.jsonl.gz", "generator.json"}


@pytest.mark.slow
def test_unknown_and_restricted_licences_are_named(tmp_path: Path, cache: Path, tiny: Path) -> None:
    generate.generate("uniform", tiny, tmp_path / "mine", cache, 0, SMALL["uniform"])
    assert "must not be passed on" in (tmp_path / "mine" / "README.md").read_text()
    (tiny / "dataset.toml").write_text('licence = "CC0"\n')
    assert datasets.licence(tiny).licence == "CC0"
    (tiny / "dataset.toml").unlink()
    (tmp_path / "marco").mkdir()
    for name in ("collection.tsv", "queries.dev.tsv", "qrels.dev.tsv"):
        (tmp_path / "marco" / name).write_text("1\tx\n")
    assert "non-commercial" in str(datasets.licence(tmp_path / "marco#dev").licence)
    (tmp_path / "marco" / "dataset.toml").write_text('licence = "CC0"\n')
    assert datasets.licence(tmp_path / "marco#dev").licence == "CC0", "its own word counts, in any format"
    assert "non-commercial" in str(datasets.licence(datasets.IrDataset("msmarco-passage/dev/small")).licence)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("passkey", {"depths": (0.0,)}, "--depths belongs to placed, not to passkey; remove it"),
        ("uniform", {"min_tokens": 600, "max_tokens": 600}, "--min-tokens 600 is not below --max-tokens 600; lower it"),
        ("uniform", {"passage_tokens": (20, 4)}, "--passage-tokens 20-4: write the lower of two numbers above 0 first"),
        ("far-relevant", {"passage_tokens": (4, 500)}, "1431 tokens hold no passages of up to 500: 1512 are needed"),
        ("placed", {"lengths": (9000,), "passage_tokens": (4, 20)}, "fillers, documents of 9,000 take 18,000"),
        ("uniform", {"passage_tokens": (21, 30)}, "tiny: no unjudged passage has 21-30 tokens"),
        ("larger", {"documents": 640}, "tiny: has 680 documents, --documents asks for 640; name more"),
        ("larger", {"max_tokens": 150}, "--max-tokens 150 is below 2 sentences of 100; raise it, or lower"),
        ("larger", {"documents": 90_000}, "unjudged sentences are too few for 89,320 distractors; lower --documents"),
        ("joined", {}, "tiny: no two neighbouring documents share a title; name a dataset of parts"),
        ("needle", {"lengths": (9000,)}, "the longest document takes 9,000"),
        ("needle", {"queries": 7, "documents": 6}, "7 queries need as many documents of each length, not 6"),
        ("passkey", {"documents": 400, "lengths": tuple(range(256, 264))}, "3,200 documents need as many names"),
    ],
)
def test_refusals_name_the_fault_and_leave_no_folder(
    tmp_path: Path, cache: Path, tiny: Path, kind: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        generate.generate(kind, tiny, tmp_path / "out", cache, 0, given)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_first_command_of_the_page_writes_a_collection(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = SHIPPED.parent / "docs" / "guides" / "generated-collections.md"
    (command,) = (line for line in page.read_text().splitlines() if line.startswith("$ "))
    monkeypatch.chdir(tmp_path)
    done = call(*command.split()[2:], "--cache", str(cache))
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "far" / "generator.json").read_text())
    assert done.stdout.startswith(
        f"far: {record['documents']} documents, {record['mean_tokens']:.0f} tokens on average"
    )
    assert "left out: 569 queries held out" in done.stderr
    refused = call("generate", "placed", "--from", "scifact", "--out", "x", "--depths", "0.5 0")
    assert refused.exit_code == 2 and "'0.5 0': write each number once, the lowest first" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_no_collection(tmp_path: Path, cache: Path, tiny: Path, number: signal.Signals) -> None:
    arguments = ["generate", "passkey", "--from", tiny, "--out", tmp_path / "out", "--cache", cache]
    arguments += ["--documents", "900", "--lengths", "30000"]
    run = subprocess.Popen([sys.executable, "-m", "harness", *arguments], stderr=subprocess.DEVNULL)
    while not any(tmp_path.glob("out-*.partial/out/corpus.jsonl.gz")):
        assert run.poll() is None
        time.sleep(0.01)
    run.send_signal(number)
    assert run.wait() != 0 and not (tmp_path / "out").exists()
    filesystem.staging_path(tmp_path / "out")  # as the next run begins
    assert list(tmp_path.iterdir()) == []
