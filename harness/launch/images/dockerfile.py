"""Dockerfiles of engines, read strictly: a build uses its context and the images that harness names, and nothing else.

The Docker engine itself fetches the names in ``FROM``, ``COPY --from``, ``ADD`` and ``# syntax=``.  It does so outside
of the build's containers, and so with the network of its host.  Therefore these are refused before a build.

The engine gets the text that was checked (:meth:`Dockerfile.for_build`): one instruction on each line, without comments
and continued lines, because versions of the engine read those in different ways.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from harness.containment import inside
from harness.errors import ImageError
from harness.untrusted import one_line, open_regular

# Stages of engines' Dockerfiles in a folder of `images/shared/`.
_STAGES = "stages.Dockerfile"
# Build arguments whose values are images that harness made; other arguments name stages, modules or folders.
IMAGE_ARGUMENTS = ("BASE", "TOOLCHAIN", "ENGINE", "RUNTIME", "FIRST", "SECOND")
_SCRATCH = "scratch"
# The engine reads lines of 65,535 bytes.
_MOST_BYTES, _MOST_LINE_BYTES = 1 << 20, 60_000
_SHOWN = 60

_ALLOWED = {
    *("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK"),
    *("RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
}
_REFUSED = {
    "ADD": "it can fetch an address; use COPY",
    "LABEL": "harness finds images by their labels; write a comment",
    "ONBUILD": "it acts in another build; write the instruction itself",
}
_DIRECTIVE = re.compile(r"#\s*(syntax|escape|check)\s*=", re.IGNORECASE)
_CONTINUED = re.compile(r"\\[ \t]*$")
_TWO_BACKSLASHES = re.compile(r"\\\\[ \t]*$")
_ARGUMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=([A-Za-z0-9_.-]*))?")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_STAGE = r"[a-z][a-z0-9_.-]*"
_FROM = re.compile(rf"(\S+)(?:[ \t]+[Aa][Ss][ \t]+({_STAGE}))?")
_COPY_FLAG = re.compile(r"--(from|chown|chmod)=([A-Za-z0-9_.:-]+)")
# A word of RUN or COPY that newer engines take for the start of a text on the next lines.
_HEREDOC = re.compile(r"(?<!\S)\d*<<(?![<\s])")


@dataclass(frozen=True)
class Instruction:
    """One instruction with the place where it begins; ``rest`` follows its name, on one line."""

    file: Path
    line: int
    name: str
    rest: str

    @property
    def place(self) -> str:
        """Return ``file:line``."""
        return f"{self.file}:{self.line}"

    @property
    def flags(self) -> list[str]:
        """Return the words with two dashes that follow the name."""
        words = self.rest.split()
        return words[: next((index for index, word in enumerate(words) if not word.startswith("--")), len(words))]

    def refuse(self, why: str) -> ImageError:
        """Return the error of an instruction that harness does not build."""
        return ImageError(f"{self.place}: {one_line(f'{self.name} {self.rest}', _SHOWN)!r} is not built: {why}")


@dataclass(frozen=True)
class _Stage:
    """A stage: its name or "", the place of its FROM, and the earlier stages that it names."""

    name: str
    begins: int
    needs: list[str]


@dataclass(frozen=True)
class Dockerfile:
    """A Dockerfile; the stages of shared folders come before its own first one."""

    instructions: tuple[Instruction, ...]

    @classmethod
    def of(cls, file: Path, shared: Iterable[Path] = ()) -> Dockerfile:
        """Read a Dockerfile, and the stages of these folders.

        Raises:
            ImageError: a file cannot be read as one; names the line.
        """
        own = _read(file)
        first = next((index for index, instruction in enumerate(own) if instruction.name == "FROM"), len(own))
        stages = [instruction for path in shared_stages(shared).values() for instruction in _read(path)]
        return cls((*own[:first], *stages, *own[first:]))

    def place_of_step(self, step: int) -> str | None:
        """Return the file and line where a step begins, ``file:line``."""
        return self.instructions[step - 1].place if 0 < step <= len(self.instructions) else None

    @property
    def text(self) -> str:
        """Return the text for the engine."""
        return "".join(f"{instruction.name} {instruction.rest}\n" for instruction in self.instructions)

    def copies(self, folder: str) -> bool:
        """Tell whether a ``COPY`` may take files of this folder of the context."""
        wanted = PurePosixPath(folder).parts
        for instruction in self.instructions:
            if instruction.name != "COPY" or any(flag.startswith("--from=") for flag in instruction.flags):
                continue
            words = instruction.rest.split()[len(instruction.flags) : -1]
            sources = [PurePosixPath(word.strip('",').removeprefix('["').lstrip("/")).parts for word in words]
            # The engine puts in what a variable holds.
            if "$" in "".join(words) or any(all(map(fnmatchcase, wanted, source)) for source in sources):
                return True
        return False

    def for_build(self, arguments: Mapping[str, str]) -> Dockerfile:
        """Return what a build runs, after the check that it fetches nothing.

        Stages that the last one does not need are left out: the engine would make them too, one after the other.

        Args:
            arguments: the build arguments that harness gives.

        Raises:
            ImageError: an instruction is not allowed, or names an image that harness does not give.
        """
        defaults: dict[str, str | None] = {}
        stages: list[_Stage] = []
        for place, instruction in enumerate(self.instructions):
            if not instruction.rest or instruction.rest.endswith("\\"):
                raise instruction.refuse("nothing follows its name, or it ends with a backslash; write it whole")
            if instruction.name not in _ALLOWED:
                raise instruction.refuse(_REFUSED.get(instruction.name, "harness does not know it; remove it"))
            if instruction.name in ("COPY", "RUN") and _HEREDOC.search(instruction.rest):
                raise instruction.refuse("a text on the lines below (<<) needs another builder; use a file and COPY")
            if instruction.name == "RUN" and instruction.flags:
                raise instruction.refuse("RUN takes no options here; remove them")
            if instruction.name == "COPY":
                _check_copy(instruction, stages)
            elif instruction.name == "ARG" and not stages:
                _declare(instruction, defaults)
            elif instruction.name == "FROM":
                stages.append(_stage(place, instruction, defaults, stages, arguments))
        return Dockerfile(tuple(self._needed(stages)))

    def _needed(self, stages: Sequence[_Stage]) -> Iterator[Instruction]:
        """Yield the instructions before the first stage, and all of the stages that the last one needs."""
        if not stages:
            yield from self.instructions
            return
        names = {stage.name: number for number, stage in enumerate(stages) if stage.name}
        wanted, open_ends = set[int](), [len(stages) - 1]
        while open_ends:
            number = open_ends.pop()
            if number not in wanted:
                wanted.add(number)
                open_ends += [names[name] for name in stages[number].needs if name in names]
                if any(name not in names for name in stages[number].needs):  # by its number, which must stay
                    wanted.update(range(len(stages)))
                    break
        yield from self.instructions[: stages[0].begins]
        ends = [*(stage.begins for stage in stages[1:]), len(self.instructions)]
        for number in sorted(wanted):
            yield from self.instructions[stages[number].begins : ends[number]]


def shared_stages(shared: Iterable[Path]) -> dict[str, Path]:
    """Return the files of stages that these shared folders have, by the folder's name."""
    return {folder.name: path for folder in shared if (path := inside(folder, _STAGES)).is_file()}


def _read(file: Path) -> list[Instruction]:
    """Return the instructions of a file."""
    try:
        # Some installers link files; which links an engine's folder may have is decided where it is packed.
        with open_regular(file.resolve(), _MOST_BYTES) as source:
            text = source.read(_MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ImageError(f"{file}: cannot be read as a Dockerfile: {why}") from error
    return [_instruction(file, number, line) for number, line in _joined(file, text.replace("\r\n", "\n"))]


def _joined(file: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield each instruction on one line, with its line's number: as the engine joins continued lines."""
    begun, parts, any_yet = 0, list[str](), False
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip(" \t")
        if not any_yet and not parts and _DIRECTIVE.match(stripped):
            why = "a first comment of that form gives the engine another reader; remove it"
            raise ImageError(f"{file}:{number}: {one_line(stripped, _SHOWN)!r}: {why}")
        if not stripped or stripped.startswith("#"):
            continue
        odd = next((each for each in line if each != "\t" and unicodedata.category(each) == "Cc"), None)
        if odd:
            raise ImageError(f"{file}:{number}: has the control character {odd!r}; remove it")
        if _TWO_BACKSLASHES.search(line):
            raise ImageError(f"{file}:{number}: ends with two backslashes, which engines read in two ways; add a word")
        begun = begun if parts else number
        parts.append(_CONTINUED.sub("", line))
        if not _CONTINUED.search(line):
            yield begun, "".join(parts)
            parts, any_yet = [], True
    if parts:
        yield begun, "".join(parts)


def _instruction(file: Path, number: int, text: str) -> Instruction:
    name, *rest = re.split(r"[ \t]+", text.strip(" \t"), maxsplit=1)
    instruction = Instruction(file, number, name.upper() if name.isascii() else name, "".join(rest))
    if len(text.encode()) > _MOST_LINE_BYTES:
        raise instruction.refuse(f"it has {len(text.encode()):,} bytes; the engine reads {_MOST_LINE_BYTES:,}")
    return instruction


def _declare(instruction: Instruction, defaults: dict[str, str | None]) -> None:
    """Note an argument that FROM may use, with its default."""
    declared = _ARGUMENT.fullmatch(instruction.rest)
    if declared is None or declared[1] in defaults:
        raise instruction.refuse("before the first FROM, declare one argument a line, once, with a plain default")
    defaults[declared[1]] = declared[2]


def _stage(
    place: int,
    instruction: Instruction,
    defaults: Mapping[str, str | None],
    stages: Sequence[_Stage],
    arguments: Mapping[str, str],
) -> _Stage:
    """Return the stage that an instruction begins, after the check of its image."""
    found = _FROM.fullmatch(instruction.rest)
    if found is None:
        raise instruction.refuse("write FROM IMAGE, or FROM IMAGE AS NAME with a name in lower case")
    image, stage = found[1], _Stage(found[2] or "", place, [])
    if variable := _VARIABLE.fullmatch(image):
        argument = variable[1] or variable[2]
        if argument in IMAGE_ARGUMENTS and argument in arguments and argument in defaults:
            return stage
        image = arguments.get(argument, defaults[argument]) or "" if argument in defaults else ""
    if image != _SCRATCH and (not image or image not in [earlier.name for earlier in stages]):
        raise instruction.refuse(f"FROM takes {_given(arguments)}, an earlier stage, or {_SCRATCH}")
    if image != _SCRATCH:
        stage.needs.append(image)
    return stage


def _given(arguments: Mapping[str, str]) -> str:
    """Return the images that a build is given, as FROM names them."""
    return ", ".join(f"${{{name}}}" for name in IMAGE_ARGUMENTS if name in arguments)


def _check_copy(instruction: Instruction, stages: Sequence[_Stage]) -> None:
    """Refuse a COPY from an image that is not an earlier stage of this file; note the stage."""
    for flag in instruction.flags:
        known = _COPY_FLAG.fullmatch(flag)
        if known is None:
            raise instruction.refuse("COPY takes --from, --chown and --chmod here")
        if known[1] == "from":
            earlier = [stage.name for stage in stages[:-1]]
            by_number = re.fullmatch(r"\d{1,4}", known[2]) is not None and int(known[2]) < len(earlier)
            if not by_number and known[2] not in filter(None, earlier):
                raise instruction.refuse("--from takes an earlier stage of this file")
            stages[-1].needs.append(known[2])
