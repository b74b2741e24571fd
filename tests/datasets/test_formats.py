"""Formats: the choice of one for a folder, and faults named by file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from harness import datasets
from harness.datasets import IrDataset, formats
from harness.driver.records import Query
from harness.errors import FileError, HarnessError, UnknownName
from harness.evaluation import trec
from tests.datasets import examples
from tests.datasets.conftest import Example, load, load_error, replace_text

LONG = "x" * 257


def documents(folder: Path) -> list[dict[str, str]]:
    with (load(folder).corpus.folder / "corpus.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


# Format, file, what to put for what, and how the line begins that is said of it.
WRONG = [
    ("BEIR", "qrels/test.tsv", "query-id\tcorpus-id\tscore\n", "", ":1: 3 fields, must be 4 (query iteration"),
    ("BEIR", "qrels/test.tsv", "q1\td1\t1", "q1\td1", ":2: 2 fields, must be 3 (query-id corpus-id score)"),
    ("BEIR", "qrels/test.tsv", "q1\td1\t1", "q1\td1\t1.5", ":2: relevance '1.5' is not a whole number"),
    ("BEIR", "qrels/test.tsv", "q1\td1", "q2\td1", "line 2: query 'q2' is not in queries.jsonl"),
    ("BEIR", "corpus.jsonl", '"d2"', '"d 2"', "line 2: id 'd 2' must be"),
    ("MS MARCO", "collection.tsv", "d2\t", "d 2\t", "line 2: id 'd 2' must be"),
    ("MS MARCO", "collection.tsv", "d2\t", "d2 ", "line 2: 1 fields between tabs, expected 'id text'"),
    ("MS MARCO", "collection.tsv", "d2\tGlaciers are slow rivers of ice.", "\t", "line 2: id '' must be"),
    ("MS MARCO", "collection.tsv", "d2\t", "d1\t", "line 2: id 'd1' comes twice"),
    ("MS MARCO", "queries.dev.small.tsv", "q1\t", "q 1\t", "line 1: id 'q 1' must be"),
    ("MS MARCO", "qrels.dev.small.tsv", "q1\t0\t", "q1\t", ":1: 3 fields, must be 4 (query iteration document"),
    ("MS MARCO", "qrels.dev.small.tsv", "q1", "q7", "line 1: query 'q7' is not in queries.dev.small.tsv"),
    ("TREC", "documents.trec", "<DOCNO> d2 </DOCNO>\n", "", "line 9: this document has no <DOCNO>"),
    ("TREC", "documents.trec", "<DOCNO> d2 </DOCNO>", "<DOCNO> d 2 </DOCNO>", "line 9: id 'd 2' must be"),
    ("TREC", "documents.trec", " d2 ", " d1 ", "line 9: id 'd1' comes twice"),
    ("TREC", "documents.trec", "ice.\n</TEXT>\n</DOC>\n", "ice.\n", "line 9: this <DOC> has no line '</DOC>'"),
    ("TREC", "documents.trec", "</TEXT>\n</DOC>\n<DOC>", "</TEXT>\n<DOC>", "line 1: this <DOC> has no line '</DOC>'"),
    ("TREC", "documents.trec", "<DOC>\n<DOCNO> d1", "<DOCNO> d1", "line 1: expected a line '<DOC>', got '<DOCNO> d1"),
    ("TREC", "topics.trec", "<num> Number: q1\n", "", "line 1: this <top> has no <num>"),
    ("TREC", "topics.trec", "Number: q1", "Number: q 1", "line 1: id 'q 1' must be"),
    ("TREC", "qrels.trec", "q1 0 d1 1", "q1 0 d1", ":1: 3 fields, must be 4 (query iteration document relevance)"),
    ("DuReader-retrieval", "passage-collection/part-01", "-\t-\t", "-\t", "line 1: 3 fields between tabs, expected"),
    ("DuReader-retrieval", "dev/dev.json", '"question_id"', '"qid"', "line 1: key 'question_id' is missing"),
    ("DuReader-retrieval", "dev/dev.json", '"paragraph_id"', '"pid"', "line 1: key 'paragraph_id' is missing"),
    ("DuReader-retrieval", "dev/dev.json", '"q1"', '"q 1"', "line 1: id 'q 1' must be"),
]


@pytest.mark.parametrize(("name", "file", "old", "new", "what"), WRONG)
def test_a_wrong_line_is_named(example: Example, name: str, file: str, old: str, new: str, what: str) -> None:
    path = example(name)
    replace_text(path / file, old, new)
    assert load_error(path).startswith(f"{path / file}{what if what.startswith(':') else f': {what}'}")


def test_wrong_query_ids_are_counted(example: Example) -> None:
    path = example("BEIR")
    (path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nx1\td1\t1\nx2\td2\t1\n")
    text = "line 2: query 'x1' is not in queries.jsonl (2 of 2 judgements name queries that it lacks); give both files"
    assert f"{text} the same ids" in load_error(path)
    (path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nx1\td1\t1\nx2\td2\t1\n")
    assert "'x1' is not in queries.jsonl (2 of 3 judgements name" in load_error(path)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("BEIR", "qrels/test.tsv"),
        ("MS MARCO", "collection.tsv"),
        ("TREC", "documents.trec"),
        ("TREC", "topics.trec"),
        ("DuReader-retrieval", "passage-collection/part-00"),
        ("DuReader-retrieval", "passage-collection/passage2id.map.json"),
    ],
)
def test_compressed_files_are_read_and_damaged_ones_named(example: Example, name: str, file: str) -> None:
    path = example(name)
    plain = load(path)
    packed = path / f"{file}.gz"
    packed.write_bytes(gzip.compress((path / file).read_bytes()))
    (path / file).unlink()
    dataset = load(path)
    assert (dataset.corpus.sha256, dataset.queries, dataset.qrels) == (plain.corpus.sha256, plain.queries, plain.qrels)
    packed.write_bytes(packed.read_bytes()[:-9])
    for made in (path.parent / "cache" / "corpora").iterdir():
        for part in made.iterdir():
            part.unlink()
        made.rmdir()
    assert load_error(path).startswith(f"{packed}: ")


def test_beir_reads_the_test_split_by_default(example: Example) -> None:
    path = example("BEIR")
    (path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td2\t2\n")
    assert load(path).qrels == b"q1 0 d1 1\n"
    assert load(path.with_name("data#dev")).qrels == b"q1 0 d2 2\n"


def test_trec_documents_may_be_a_folder_of_files_or_tab_separated(example: Example) -> None:
    path = example("TREC")
    (path / "documents" / "b").mkdir(parents=True)
    (path / "documents.trec").rename(path / "documents" / "b" / "part1")
    (path / "documents" / "a.tsv").write_text("d3\tSea\tSalt.\nd4\tSand.\n")
    # The same name in another folder is another file.
    (path / "documents" / "c").mkdir()
    (path / "documents" / "c" / "part1").write_text("<DOC>\n<DOCNO>d5</DOCNO>\n</DOC>\n")
    found = [(document["_id"], document["title"]) for document in documents(path)]
    assert found == [("d3", "Sea"), ("d4", ""), ("d1", "Rivers"), ("d2", ""), ("d5", "")]


def test_trec_topics_may_be_tab_separated_or_in_the_old_form(example: Example) -> None:
    path = example("TREC")
    (path / "topics.trec").write_text("q1\twhere do rivers go\n")
    assert load(path).queries == (Query("q1", "where do rivers go"),)
    (path / "topics.trec").write_text(
        "<top>\n<head> Tipster Topic\n<num> Number: 051\n<dom> Domain: Trade\n"
        "<title> Topic: Airbus\n Subsidies\n<desc>\n</top>\n"
        "<top>\n<num>q1</num>\n<title>rivers &amp; seas</title>\n</top>\n"
    )
    assert load(path).queries == (Query("051", "Airbus Subsidies"), Query("q1", "rivers & seas"))


def test_descriptions_of_trec_topics_are_queries_if_named(example: Example) -> None:
    path = example("TREC")
    (path / "topics.trec").write_text(
        "<top>\n<num> Number: q1\n<title> rivers\n"
        "<desc> Description:\nWhere do\nrivers go?\n<narr> Narrative:\nx\n</top>\n"
    )
    described = path.with_name(f"{path.name}#description")
    assert [load(each, path.parent).queries[0].text for each in (path, described)] == ["rivers", "Where do rivers go?"]
    (path / "topics.trec").write_text("q1\twhere do rivers go\n")
    assert load_error(described) == f"{path}: unknown split 'description'; known: title"


def test_two_files_of_trec_topics_are_refused(example: Example) -> None:
    path = example("TREC")
    (path / "topics.more.trec").write_text("q2\tx\n")
    assert load_error(path).startswith(f"{path}: it has several such files (topics.more.trec, topics.trec)")


def test_chinese_texts_are_read_and_a_repeated_passage_of_a_question_counts_once(example: Example) -> None:
    path = example("DuReader-retrieval")
    passage = '{"paragraph_id": "d1", "paragraph_text": "河流流向大海。"}'
    replace_text(path / "dev" / "dev.json", passage, f"{passage}, {passage}")
    dataset = load(path)
    assert dataset.queries == (Query("q1", "河流流向哪里"),)
    assert dict(dataset.corpus.texts(["d1", "d2"])) == {"d1": "河流流向大海。", "d2": "冰川是缓慢的冰河。"}
    assert dataset.qrels == b"q1 0 d1 1\n"


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        ('{"0": "d1"}', "part-01: line 1: passage 1 has no id among the 1 of passage2id.map.json"),
        ('{"0": "d1", "1": "d2", "2": "d3"}', "map.json: 3 ids for 2 passages; is a part missing?"),
        ('{"0": "d1", "2": "d2"}', "map.json: its keys are not each number from 0 to 1 once"),
        ('{"0": "d1", "1": ["d2"]}', """map.json: not a JSON object of numbers and ids near ' "1": ["d2"]}'"""),
        ('{"0": "d1", "1": "d2"', "map.json: not a JSON object of numbers and ids near"),
        ('{"0": "d1", "1": "d2",', "map.json: not a JSON object of numbers and ids near"),
        (f'{{"0": "d1", "1": "{LONG}"}}', "map.json: not a JSON object of numbers and ids near"),
        ('{"0": "d1", "1": "d 2"}', "part-01: line 1: id 'd 2' must be"),
        ('{"0": "d1", "1": "d1"}', "part-01: line 1: id 'd1' comes twice"),
    ],
)
def test_mismatched_passages_and_ids_are_refused(example: Example, ids: str, what: str) -> None:
    path = example("DuReader-retrieval")
    (path / "passage-collection" / "passage2id.map.json").write_text(ids)
    assert what in load_error(path)


def test_passage_ids_are_read_in_chunks_and_in_any_order(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.datasets import dureader

    path = example("DuReader-retrieval")
    names = {str(number): f"p{number}" for number in reversed(range(500))}
    (path / "passage-collection" / "passage2id.map.json").write_text(json.dumps(names, indent=1))
    (path / "passage-collection" / "part-00").write_text("".join(f"-\t-\ttext {n}\t-\n" for n in range(300)))
    (path / "passage-collection" / "part-01").write_text("".join(f"-\t-\ttext {n}\t-\n" for n in range(300, 500)))
    monkeypatch.setattr(dureader, "_CHUNK", 97)
    assert [(document["_id"], document["text"]) for document in documents(path)] == [
        (f"p{n}", f"text {n}") for n in range(500)
    ]
    assert dureader.FORMAT.read(path).documents.total() == 500, "a bar that has an end"


def test_an_empty_passage_is_kept(example: Example) -> None:
    path = example("MS MARCO")
    replace_text(path / "collection.tsv", "d2\tGlaciers are slow rivers of ice.", "\r\nd2\t\r")
    assert documents(path)[1] == {"_id": "d2", "title": "", "text": ""}
    assert load(path).corpus.empty == 1


ALIKE = ("harness", "BEIR", "TREC", "MS MARCO")


@pytest.mark.parametrize("heading", ALIKE)
def test_formats_of_the_same_content_give_the_same_topics_and_judgements(example: Example, heading: str) -> None:
    dataset = load(example(heading))
    assert dataset.name == "data"
    assert dataset.queries == (Query("q1", "where do rivers go"),)
    assert dataset.qrels == b"q1 0 d1 1\n"
    assert dict(dataset.corpus.texts(["d1", "d2"])) == {
        "d1": "Rivers run to the sea.",
        "d2": "Glaciers are slow rivers of ice.",
    }


def test_corpus_of_the_same_documents_has_one_hash_in_every_format(tmp_path: Path) -> None:
    own, beir, trec = (load(examples.write(name, tmp_path / name)).corpus for name in ("harness", "BEIR", "TREC"))
    assert own.sha256 == beir.sha256 == trec.sha256


def test_every_format_has_an_example() -> None:
    assert {format.name for format in formats.FORMATS} <= set(examples.sections())


@pytest.mark.parametrize("name", [format.name for format in formats.FORMATS])
def test_each_example_fits_only_its_own_format(example: Example, name: str) -> None:
    path = example(name)
    assert [format.name for format in formats.FORMATS if not formats._missing(format, path)] == [name]


def test_a_folder_that_fits_two_formats_is_refused(example: Example) -> None:
    example("harness")
    path = example("MS MARCO")
    assert load_error(path) == f"{path}: its files fit harness and MS MARCO; leave the files of one format in it"


def test_folder_without_a_known_file_says_what_to_add(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    add = "; add corpus.jsonl, queries.jsonl and qrels/test.tsv as BEIR has them, or the files of another format ("
    assert load_error(path).startswith(f"{path}: this folder is empty{add}")
    (path / "notes.md").write_text("x")
    assert load_error(path).startswith(f"{path}: this folder has no file of a known format{add}")


def test_missing_files_are_named_for_the_nearest_formats(example: Example) -> None:
    path = example("harness")
    (path / "qrels.trec").unlink()
    lacks = "lacks qrels.trec (harness), or qrels/*.tsv (BEIR); add corpus, queries and qrels"
    assert load_error(path).startswith(f"{path}: {lacks}")


def test_missing_folder_is_named(tmp_path: Path) -> None:
    what = "this folder does not exist; give one with corpus, queries and qrels"
    assert load_error(tmp_path / "absent") == f"{tmp_path / 'absent'}: {what}"


def test_a_split_is_chosen_by_name(example: Example) -> None:
    path = example("MS MARCO")
    (path / "queries.train.tsv").write_text("t1\twhy ice\n")
    (path / "qrels.train.tsv").write_text("t1\t0\td2\t1\n")
    assert load_error(path) == f"{path}: has the splits dev.small, train; name one, e.g. data#dev.small"
    unknown = "unknown split 'trian'. Did you mean 'train'?"
    assert load_error(path.with_name("data#trian")) == f"{path}: {unknown}"
    dataset = load(path.with_name("data#train"))
    assert (dataset.name, dataset.queries) == ("data-train", (Query("t1", "why ice"),))


def test_format_without_splits_refuses_a_split(example: Example) -> None:
    path = example("harness")
    assert load_error(path.with_name("data#dev")) == f"{path}: the harness format has no splits; leave '#dev' out"


def test_folder_name_may_contain_the_split_mark(tmp_path: Path) -> None:
    assert load(examples.write("harness", tmp_path / "c#sharp")).name == "c-sharp"


def test_a_dataset_is_a_path_a_shipped_name_or_an_id(tmp_path: Path) -> None:
    assert datasets.find("./tiny", tmp_path) == tmp_path / "tiny"
    assert datasets.find("/data/tiny", tmp_path) == Path("/data/tiny")
    assert datasets.find("beir/scifact/test", tmp_path) == IrDataset("beir/scifact/test")
    (tmp_path / "mine" / "inner").mkdir(parents=True)
    for name in ("mine", "mine/inner", "mine#dev"):
        assert datasets.find(name, tmp_path) == tmp_path / name
    with pytest.raises(UnknownName, match=r"unknown dataset 'scifakt'. Did you mean 'scifact'"):
        datasets.find("scifakt", tmp_path)
    with pytest.raises(UnknownName, match=r"unknown dataset 'beir/scifakt/test'. Did you mean 'beir/scifact/test'"):
        datasets.find("beir/scifakt/test", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "judged", "text"),
    [
        ("xquad-zh", 240, 1190, "黑豹队"),
        ("xquad-en", 240, 1190, "Panthers"),
        ("dureader-demo-zh", 7670, 196, "书"),
        ("dureader-demo-zh-titles", 7670, 196, "书"),
    ],
)
def test_shipped_collections_are_whole(tmp_path: Path, name: str, size: int, judged: int, text: str) -> None:
    place = datasets.find(name, tmp_path)
    assert isinstance(place, Path)
    dataset = load(place, tmp_path)
    assert (dataset.corpus.size, len(dataset.judged)) == (size, judged)
    found = {line.split()[2] for line in dataset.qrels.decode().splitlines()}
    assert dataset.corpus.unknown(found) == set()
    first = (dataset.corpus.folder / "ids.txt").read_text().split("\n", 1)[0]
    assert text in dict(dataset.corpus.texts([first]))[first]
    readme = (place / "README.md").read_text(encoding="utf-8")
    assert f"{size:,}" in readme
    terms = datasets.licence(place)
    for text_of_terms in (terms.licence, terms.attribution):
        assert text_of_terms is not None and text_of_terms.raw in " ".join(readme.split())


@pytest.mark.parametrize(
    ("kind", "text", "what"),
    [
        ("documents", b"<DOC>\n" + b"a line\n" * 1_000_000, "line 1: this <DOC> exceeds 0 MiB; end it with a line "),
        ("topics", b"<top>\n" * 1_000_000, "has more than 0 MiB; give a smaller file"),
    ],
)
def test_trec_documents_and_topics_are_bounded(
    example: Example, monkeypatch: pytest.MonkeyPatch, kind: str, text: bytes, what: str
) -> None:
    monkeypatch.setattr(datasets.source, "MAX_TEXT_BYTES", 1 << 16)
    folder = example("TREC")
    (folder / f"{kind}.trec").unlink()
    (folder / f"{kind}.gz").write_bytes(gzip.compress(text))
    assert load_error(folder).startswith(f"{folder / kind}.gz: {what}")


def test_passage_id_that_is_not_utf8_is_named(example: Example) -> None:
    folder = example("DuReader-retrieval")
    path = folder / "passage-collection" / "passage2id.map.json"
    content = path.read_bytes()
    at = content.index(b'": "') + 4
    path.write_bytes(content[:at] + b"\xff" + content[at:])
    error = load_error(folder)
    assert f"{path}: the id b'" in error and "byte 0xff is not UTF-8; save the file as UTF-8" in error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "hostile", "what"),
    [
        ("topics", b"<top>\n<num> Number: 7" + b"\t" * 2_000_000 + b"<x>\n</top>\n", "this <top> has no <num>"),
        ("topics", b"<top>\n" + b"<num>" * 200_000 + b"\n</top>\n", "this <top> has no <num>"),
        ("documents", b"<DOC>\n" + b"<TITLE>" * 200_000 + b"\n</DOC>\n", "this document has no <DOCNO>"),
        ("documents", b"<DOC>\n<DOCNO>x</DOCNO>\n" + b"<TEXT>" * 200_000 + b"\n</DOC>\n", ""),
        ("documents", b"<DOC>\n<DOCNO>x</DOCNO>\n" + b"<!-- " * 200_000 + b"\n</DOC>\n", ""),
        ("documents", b"<DOC>\n<DOCNO>x</DOCNO>\n<TEXT>&#" + b"9" * 5000 + b";</TEXT>\n</DOC>\n", "thousands of"),
    ],
)
def test_trec_takes_a_time_that_grows_with_the_text_alone(
    example: Example, file: str, hostile: bytes, what: str
) -> None:
    """A pattern that tries all combinations would take hours: this test ends at once, or never."""
    folder = example("TREC")
    (path,) = folder.glob(f"{file}*")
    path.write_bytes(path.read_bytes() + hostile)
    if what:
        assert what in load_error(folder)
    else:
        assert load(folder).corpus.size == 3


def test_trec_comments_titles_and_references_are_no_text(example: Example) -> None:
    folder = example("TREC")
    (path,) = folder.glob("documents*")
    path.write_text(
        "<DOC>\n<docno> d1 </docno>\n<headline>On <b>ice</b></HEADLINE>\n"
        "<TEXT>one<!-- <P> not --> &amp; <title>two</title> <P>three</P></TEXT>\n<TEXT>four</TEXT>\n</DOC>\n"
        "<DOC>\n<DOCNO>d2</DOCNO>\n<TITLE>open\n<HL>closed</HL>\nfive\n</DOC>\n"
        "<DOC>\n<DOCNO>d3</DOCNO>\n<F P=1>Rivers</F>\nrun.\n</DOC>\n"
        "<DOC>\n<DOCNO>d4</DOCNO>\n<TEXT>\n<HEADLINE>R &amp; D</HEADLINE>\nRivers\n</TEXT>\n</DOC>\n"
    )
    found = [(document["title"], document["text"]) for document in documents(folder)]
    expected = [("On ice", "one & three four"), ("closed", "open five"), ("", "Rivers run."), ("R & D", "Rivers")]
    assert found == expected


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("patients with HbA1c < 7 and BMI over 30", "patients with HbA1c < 7 and BMI over 30"),
        ("the <b>rivers</b> of x<y", "the rivers of x<y"),
        ("a vector<int> in C++", "a vector in C++"),
        ("\n<b>rivers</b>\n and seas", "rivers and seas"),
        ("<i>a</i> </title> <note> later", "a"),
        ("a < b <desc> Description:\nother\n", "a < b"),
        ("one <!-- not this --> two &lt;three&gt;", "one two <three>"),
    ],
)
def test_trec_titles_are_whole_and_without_marks_as_documents_are(example: Example, title: str, text: str) -> None:
    path = example("TREC")
    (path / "topics.trec").write_text(f"<top>\n<num> Number: q1\n<title> {title}\n<narr> Narrative:\nx\n</top>\n")
    assert load(path).queries == (Query("q1", text),)
    (path / "documents.trec").write_text(
        f"<DOC>\n<DOCNO>d1</DOCNO>\n<TEXT>{title.partition('</title>')[0]}</TEXT>\n</DOC>\n"
    )
    if "<desc>" not in title:
        assert documents(path)[0]["text"] == text


@pytest.mark.parametrize(
    "topics",
    [
        '<?xml version="1.0"?>\n<topics task="x">\n<topic number="q1">\n<query>rivers &amp; a &lt; b</query>\n'
        "<question>where?</question>\n<narrative>n</narrative>\n</topic>\n</topics>\n",
        '<webtrack>\n<topic type="faceted" number="q1">\n<description>where?</description>\n'
        '<query><![CDATA[rivers & a < b]]></query>\n<subtopic number="1" type="inf">s</subtopic></topic></webtrack>\n',
        '<topics><topic lang="en"><identifier>q1</identifier><title>rivers &amp; a < b</title>'
        "<description>where?</description></topic></topics>\n",
        '<top lang="en">\n<num>q1</num>\n<title>rivers &amp; a &lt; b</title>\n<desc>where?</desc>\n</top>\n',
        '<topics><topic number="q1">\nrivers &amp; a &lt; b\n</topic></topics>\n',
    ],
    ids=["covid", "web", "clef", "fire", "trials"],
)
def test_trec_topics_in_xml_are_read(example: Example, topics: str) -> None:
    path = example("TREC")
    (path / "topics.trec").rename(path / "topics.xml")
    (path / "topics.xml").write_text(topics)
    assert load(path).queries == (Query("q1", "rivers & a < b"),)
    if "where?" in topics:
        assert load(path.with_name("data#description"), path.parent / "cache").queries == (Query("q1", "where?"),)


def test_what_systems_and_editors_leave_in_a_folder_is_no_data(example: Example) -> None:
    path = example("BEIR")
    for name in ("._test.tsv", "test.tsv~", "test.tsv.bak", ".test.tsv.swp", "desktop.ini", "~$test.tsv", "#test.tsv#"):
        (path / "qrels" / name).write_bytes(b"\0\5\x16\7\0junk")
    (path / "._corpus.jsonl").write_bytes(b"\0")
    assert load(path).qrels == b"q1 0 d1 1\n"
    with pytest.raises(FileError, match="unknown split 'dev'; known: test"):
        load(path.with_name(f"{path.name}#dev"), path.parent / "cache")


def test_what_archivers_leave_in_folders_of_documents_is_no_data(example: Example) -> None:
    path = example("TREC")
    (path / "documents" / "__MACOSX").mkdir(parents=True)
    (path / "documents.trec").rename(path / "documents" / "a.trec")
    for name in (".DS_Store", "Thumbs.db", "a.trec~", "._a.trec", "__MACOSX/a.trec", "Icon\r"):
        (path / "documents" / name).write_bytes(b"\0\1junk")
    assert [document["_id"] for document in documents(path)] == ["d1", "d2"]


@pytest.mark.parametrize("name", ["harness", "BEIR", "MS MARCO", "TREC"])
def test_judgements_have_one_reader(example: Example, name: str) -> None:
    """Comments, repeated lines, grades with a point, a byte order mark: as every command takes them."""
    path = example(name)
    qrels = next(each for pattern in ("qrels*.t*", "qrels/*.tsv") for each in sorted(path.glob(pattern)))
    header, lines = ("query-id\tcorpus-id\tscore\n", "q1\td1\t1\n") if name == "BEIR" else ("", "q1 0 d1 1\n")
    again = lines.replace("1\n", "1.0\n")
    qrels.write_text(f"\ufeff{header}# by two students\n{lines}{again}\n{lines}", encoding="utf-8")
    dataset = load(path)
    assert dataset.qrels == b"q1 0 d1 1\n"
    assert [fault.text for fault in dataset.faults] == [
        "2 of 3 judgements repeat an earlier one, such as 'd1'; each counts once"
    ]
    assert trec.read_qrels_file(qrels).qrels == {"q1": {"d1": 1}}
    qrels.write_text(f"{header}{lines}{lines.replace(chr(49) + chr(10), '2' + chr(10))}", encoding="utf-8")
    assert load_error_of(path).endswith("document 'd1' has grades 1, 2 for 'q1'; keep one")


def load_error_of(path: Path) -> str:
    with pytest.raises(FileError) as caught:
        load(path)
    return str(caught.value)


def test_ids_of_another_unicode_form_are_said_to_be(example: Example) -> None:
    path = example("harness")
    replace_text(path / "corpus.jsonl", '"d2"', '"caf\u00e9"')
    (path / "qrels.trec").write_text("q1 0 d1 1\nq1 0 cafe\u0301 1\n", encoding="utf-8")
    assert any("in another Unicode normalisation (NFC, NFD), such as 'cafe\u0301'" in f.text for f in load(path).faults)
    (path / "qrels.trec").write_text("q1 0 cafe\u0301 1\n", encoding="utf-8")
    with pytest.raises(HarnessError, match=r"some differ in Unicode normalisation only \(NFC, NFD\); give both"):
        _ = load(path).faults


@pytest.mark.parametrize("tag", ["en", "EN", "en-US", "en_GB", "en-Latn-US"])
def test_a_language_may_have_its_region(example: Example, tag: str) -> None:
    path = example("harness")
    (path / "dataset.toml").write_bytes(f'\ufefflanguage = "{tag}"\n'.encode())
    assert load(path).language == "en"
    (path / "dataset.toml").write_text('language = "english"\n')
    assert "key 'language'" in load_error_of(path)
