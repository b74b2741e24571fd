"""A Dockerfile that would fetch anything is refused before its build."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.errors import ImageError
from harness.launch.images import catalog, dockerfile
from harness.launch.images.dockerfile import Dockerfile

GIVEN = {"BASE": "harness-base:0", "STAGE": "lean", "NAME": "x"}


def checked(folder: Path, text: str | bytes, given: dict[str, str] = GIVEN) -> str:
    file = folder / "Dockerfile"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return Dockerfile.of(file).for_build(given).text


@pytest.mark.slow
def test_shipped_dockerfiles_fetch_nothing() -> None:
    engines = {system.engine: system for system in catalog.systems().values()}
    assert engines.keys() >= {"lucene", "colbert", "dense", "static", "llm-rerank"}
    for system in engines.values():
        bases = {"BASE": "b:1", **({"TOOLCHAIN": "t:1"} if system.toolchain else {})}
        built = Dockerfile.of(system.engine_dir / "Dockerfile", system.shared)
        text = built.for_build(bases).text
        assert text.startswith("ARG BASE\n") and built.for_build(bases).copies("driver/x")
        if "STAGE" in text:
            lean = built.for_build({**bases, "STAGE": "lean"})
            assert "AS full" in text and "AS lean" in lean.text and "AS full" not in lean.text
            assert lean.copies("packages/encoder") and not lean.copies("packages/pytorch"), system.engine
    given = dict.fromkeys(("ENGINE", "RUNTIME", "FIRST", "SECOND"), "i:1") | {"PREPARE": "m", "NAME": "n"}
    templates = sorted((catalog.images_dir() / "templates").glob("*.Dockerfile"))
    assert len(templates) == 4
    for template in templates:
        Dockerfile.of(template).for_build(given)


def test_instruction_is_written_as_the_engine_joins_it(tmp_path: Path) -> None:
    text = "\ufeff# a comment\r\narg BASE\r\nFROM ${BASE} AS a\r\n\n"
    text += "  run one \\  \n# between\n\n   # indented\\\n\ttwo\t\\\n three\n"
    assert checked(tmp_path, text) == "ARG BASE\nFROM ${BASE} AS a\nRUN one \ttwo\t three\n"
    built = Dockerfile.of(tmp_path / "Dockerfile")
    places = [built.place_of_step(step) for step in range(5)]
    assert places == [None, *(f"{tmp_path / 'Dockerfile'}:{line}" for line in (2, 3, 5)), None]


STAGES = """ARG BASE
ARG STAGE=full
FROM ${BASE} AS unused
COPY packages/unused /
FROM ${BASE} AS source
COPY packages/source /
FROM ${BASE} AS full
COPY --from=source /a /a
FROM ${BASE} AS lean
COPY lean /
FROM ${STAGE}
COPY driver /
"""


def test_only_stages_that_the_last_one_needs_are_built(tmp_path: Path) -> None:
    whole, lean = (checked(tmp_path, STAGES, {"BASE": "b", **given}) for given in ({}, {"STAGE": "lean"}))
    assert [line.split()[-1] for line in whole.splitlines() if "FROM" in line] == ["source", "full", "${STAGE}"]
    assert [line.split()[-1] for line in lean.splitlines() if "FROM" in line] == ["lean", "${STAGE}"]
    built = Dockerfile.of(tmp_path / "Dockerfile").for_build({"BASE": "b", "STAGE": "lean"})
    assert built.place_of_step(4) == f"{tmp_path / 'Dockerfile'}:10", "of what is built"
    assert built.copies("lean") and built.copies("driver") and built.copies("lean/wheels")
    assert not built.copies("packages/source") and not built.copies("packages/unused")
    numbered = STAGES.replace("--from=source", "--from=1")
    assert checked(tmp_path, numbered, {"BASE": "b"}) == numbered, "numbers of stages have to stay"


@pytest.mark.parametrize(
    "words", [". /", "--chown=1:1 packages /x", "pack* /", "a packages/x/wheels /", '["packages", "/"]']
)
def test_copy_that_may_take_a_folder_takes_it(tmp_path: Path, words: str) -> None:
    checked(tmp_path, f"FROM scratch\nCOPY {words}\n")
    built = Dockerfile.of(tmp_path / "Dockerfile")
    assert built.copies("packages/x")
    assert built.copies("wheels") == (words == ". /")


ALLOWED = [
    "ARG BASE\nFROM $BASE",
    "ARG BASE\nARG STAGE=full\nFROM ${BASE} AS base\nFROM base AS lean\nFROM ${STAGE}",
    "FROM scratch\nCOPY --chown=65532:65532 --chmod=755 a b /opt/",
    "ARG BASE\nFROM ${BASE}\nFROM ${BASE}\nCOPY --from=0 /a /b",
    "ARG BASE\nFROM ${BASE}\nRUN cat <<<word && echo $((1 << 3)) http://x",
    'ARG BASE\nFROM $BASE\nSHELL ["sh"]\nVOLUME /a\nHEALTHCHECK NONE\nEXPOSE 1\nENTRYPOINT ["--x"]\nARG X="a b"\nARG X',
]


@pytest.mark.parametrize("text", ALLOWED)
def test_dockerfile_that_fetches_nothing_is_built_as_it_is(tmp_path: Path, text: str) -> None:
    assert checked(tmp_path, text) == f"{text}\n"


BEGIN = "ARG BASE\nFROM ${BASE} AS one\n"
# Text, line of the error, words of it.
REFUSED = {
    "another image": ("FROM ubuntu", 1, "FROM takes"),
    "an address": ("FROM 127.0.0.1:5000/x", 1, "FROM takes"),
    "lower case": ("from ubuntu", 1, "FROM takes"),
    "quotes": ('FROM "ubuntu"', 1, "FROM takes"),
    "a tab": ("FROM\tubuntu", 1, "FROM takes"),
    "continued": ("FROM \\\n  ubuntu", 1, "FROM takes"),
    "continued over a comment": ("FROM \\\n# x \n\n  ubuntu", 1, "FROM takes"),
    "after a line with a backslash alone": ("\\\nFROM ubuntu", 1, "FROM takes"),
    "a default": ("ARG X=ubuntu\nFROM ${X}", 2, "FROM takes"),
    "a second default": ("ARG BASE\nARG BASE=ubuntu\nFROM ${BASE}", 2, "once"),
    "two arguments on a line": ("ARG BASE X=ubuntu\nFROM ${X}", 1, "one argument a line"),
    "an argument with a registry's name": ("ARG X=localhost/x\nFROM ${X}", 1, "plain default"),
    "a default by the shell": ("ARG BASE\nFROM ${BASE:-ubuntu}", 2, "FROM takes"),
    "part of a name": ("ARG BASE\nFROM evil/${BASE}", 2, "FROM takes"),
    "an argument that is not declared": ("FROM ${BASE}", 1, "FROM takes"),
    "an argument that names no image": ("ARG NAME\nFROM ${NAME}", 2, "FROM takes"),
    "an argument that is not given": ("ARG TOOLCHAIN=ubuntu\nFROM ${TOOLCHAIN}", 2, "FROM takes"),
    "a stage that is missing": ("ARG BASE\nARG STAGE=full\nFROM ${BASE} AS full\nFROM ${STAGE}", 4, "FROM takes"),
    "its own name": ("FROM x AS x", 1, "FROM takes"),
    "a later stage": ("FROM b AS a\nFROM scratch AS b", 1, "FROM takes"),
    "a stage in another case": (BEGIN + "FROM One", 3, "FROM takes"),
    "a stage named in capitals": ("ARG BASE\nFROM ${BASE} AS One", 2, "in lower case"),
    "a platform": ("ARG BASE\nFROM --platform=linux/s390x ${BASE}", 2, "write FROM IMAGE"),
    "three words": ("FROM ubuntu AS a b", 1, "write FROM IMAGE"),
    "a number": (BEGIN + "FROM 0", 3, "FROM takes"),
    "white space of another alphabet": ("FROM\u00a0ubuntu", 1, "nothing follows its name"),
    "white space before": ("\u00a0FROM ubuntu", 1, "harness does not know it"),
    "a foreign letter": ("\uff26ROM ubuntu", 1, "harness does not know it"),
    "a stage in a text": (BEGIN + "RUN <<EOF\nFROM scratch AS ubuntu\nEOF\nFROM ubuntu", 3, "needs another builder"),
    "a text with a tab": (BEGIN + "RUN cat 3<<-'EOF'", 3, "needs another builder"),
    "a text in COPY": (BEGIN + "COPY <<x /a", 3, "needs another builder"),
    "copy of an image": (BEGIN + "COPY --from=ubuntu /a /b", 3, "earlier stage"),
    "copy of a registry's": (BEGIN + "COPY --from=127.0.0.1:5000/x /a /b", 3, "takes --from"),
    "copy of an argument": (BEGIN + "COPY --from=${X} /a /b", 3, "takes --from"),
    "copy with quotes": (BEGIN + 'COPY --fr"om"=ubuntu /a /b', 3, "takes --from"),
    "copy with an escape": (BEGIN + "COPY --\\from=ubuntu /a /b", 3, "takes --from"),
    "second flag": (BEGIN + "COPY --chown=1:1 --from=ubuntu /a /b", 3, "earlier stage"),
    "copy of itself": (BEGIN + "COPY --from=one /a /b", 3, "earlier stage"),
    "copy of its own number": (BEGIN + "COPY --from=0 /a /b", 3, "earlier stage"),
    "copy over lines": (BEGIN + "COPY \\\n --from=ubuntu /a /b", 3, "earlier stage"),
    "no flag": (BEGIN + "COPY -- --from=ubuntu /b", 3, "takes --from"),
    "an address to add": (BEGIN + "ADD http://127.0.0.1/x /x", 3, "use COPY"),
    "a repository to add": (BEGIN + "add git@host:x.git /x", 3, "use COPY"),
    "a file to add": (BEGIN + "ADD x /x", 3, "use COPY"),
    "an address in a later build": (BEGIN + "ONBUILD ADD http://127.0.0.1/x /x", 3, "another build"),
    "a mount": (BEGIN + "RUN --mount=from=ubuntu,target=/x ls /x", 3, "no options"),
    "a network": (BEGIN + "RUN --network=host ls", 3, "no options"),
    "a label of harness": (BEGIN + "LABEL harness.recipe=0", 3, "by their labels"),
    "an unknown instruction": (BEGIN + "MAINTAINER x", 3, "harness does not know it"),
    "another reader": ("# syntax=docker/dockerfile:1\n" + BEGIN, 1, "another reader"),
    "another reader, in capitals": ("#x\n\n  # SYNTAX = docker/dockerfile:1\n" + BEGIN, 3, "another reader"),
    "another escape": ("# escape=`\nARG BASE\nFROM ${BASE}\nRUN x `\nADD http://127.0.0.1/x /x", 1, "another reader"),
    "two backslashes": (BEGIN + "RUN x\\\\ \nFROM scratch AS y", 3, "two backslashes"),
    "a backslash at the end": (BEGIN + "RUN x\\ \\\n", 3, "ends with a backslash"),
    "a control character": (BEGIN + "RUN x\x0bADD http://127.0.0.1/x /x", 3, "control character '\\x0b'"),
    "a carriage return": (BEGIN + "RUN x\rADD http://127.0.0.1/x /x", 3, "control character '\\r'"),
    "nothing": (BEGIN + "RUN", 3, "nothing follows"),
    "a line of 60,001 bytes": (BEGIN + "RUN " + "x" * 59_997, 3, "the engine reads 60,000"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_dockerfile_that_would_fetch_is_refused_with_its_line(tmp_path: Path, case: str) -> None:
    text, line, words = REFUSED[case]
    with pytest.raises(ImageError) as caught:
        checked(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'Dockerfile'}:{line}: ") and words in message
    assert message.isprintable() and len(message) < 300 + len(str(tmp_path))


def test_stage_that_is_given_must_be_there(tmp_path: Path) -> None:
    text = "ARG BASE\nARG STAGE=full\nFROM ${BASE} AS full\nFROM ${STAGE}"
    assert checked(tmp_path, text, {"BASE": "b:1"})
    with pytest.raises(
        ImageError, match=r":4: 'FROM \$\{STAGE\}' is not built: FROM takes \$\{BASE\}, an earlier stage"
    ):
        checked(tmp_path, text, {"BASE": "b:1", "STAGE": "lean"})


def test_pipe_is_refused_and_a_linked_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("FROM scratch\n")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    assert Dockerfile.of(tmp_path / "link").for_build({}).text == "FROM scratch\n"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ImageError, match="cannot be read as a Dockerfile: is a pipe"):
        Dockerfile.of(tmp_path / "pipe")


@pytest.mark.parametrize("bytes_", [b"FROM \xff", b"#" * ((1 << 20) + 1)], ids=["no text", "large"])
def test_file_that_is_no_text_or_too_large_is_refused(tmp_path: Path, bytes_: bytes) -> None:
    with pytest.raises(ImageError, match="cannot be read as a Dockerfile: "):
        checked(tmp_path, bytes_)


def test_arguments_that_the_builder_gives_as_images_are_known() -> None:
    """An image under another name could not be used in FROM."""
    text = "".join(
        (catalog.images_dir() / "templates" / f"{name}.Dockerfile").read_text() for name in ("joined", "prepared")
    )
    assert {name for name in dockerfile.IMAGE_ARGUMENTS if f"FROM ${{{name}}}" in text} == {
        *("ENGINE", "RUNTIME", "FIRST", "SECOND")
    }
