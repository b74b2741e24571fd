from pathlib import Path

import pytest

from harness.errors import FileError, UnknownName
from harness.pricing import instances

GIB = 2**30


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hardware.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "cpus", "memory_bytes", "gpus"),
    [
        ("cpu1-mem256m", 1, 256 * 2**20, 0),
        ("cpu1-mem1", 1, GIB, 0),
        ("cpu2-mem4", 2, 4 * GIB, 0),
        ("cpu1-mem4", 1, 4 * GIB, 0),
        ("cpu16-mem32", 16, 32 * GIB, 0),
        ("gpu1-cpu1-mem4", 1, 4 * GIB, 1),
        ("gpu1-cpu16-mem32", 16, 32 * GIB, 1),
    ],
)
def test_shipped_profiles_match_their_names(name: str, cpus: int, memory_bytes: int, gpus: int) -> None:
    envelope = instances.hardware_profile(name)
    assert (envelope.name, envelope.cpus, envelope.memory_bytes, envelope.gpus) == (name, cpus, memory_bytes, gpus)


def test_shipped_profile_names_match_their_hardware() -> None:
    known = instances.hardware_profiles()
    assert len(known) >= 11
    for name, envelope in known.items():
        gib = envelope.memory_bytes / GIB
        memory = f"mem{gib:g}" if gib >= 1 else f"mem{envelope.memory_bytes // 2**20}m"
        gpu = f"gpu{envelope.gpus}-" if envelope.gpus else ""
        assert name == f"{gpu}cpu{envelope.cpus}-{memory}"


def test_unknown_profile_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'cpu1-mem256m'"):
        instances.hardware_profile("cpu1-mem256mb")


@pytest.mark.parametrize(
    ("text", "expected"), [("256MiB", 256 * 2**20), ("1GiB", GIB), ("32 GiB", 32 * GIB), ("1536MiB", 1536 * 2**20)]
)
def test_memory_sizes_are_read_in_bytes(text: str, expected: int) -> None:
    assert instances.parse_memory(text) == expected


@pytest.mark.parametrize("text", ["1GB", "1.5GiB", "0GiB", "-1GiB", "GiB", "1024", "1gib", "", "1GiB1", "٣GiB"])
def test_malformed_memory_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a memory size"):
        instances.parse_memory(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[a]\ncpus = 1\nmemory = "4GB"\n', "key 'a.memory': '4GB' is not a memory size"),
        ('[a]\ncpus = 0\nmemory = "4GiB"\n', "key 'a.cpus'"),
        ('[a]\nmemory = "4GiB"\n', "key 'a.cpus' is missing"),
        ('[a]\ncpus = 1\nmemory = "4GiB"\ngpu = 1\n', "unknown key 'a.gpu'; did you mean 'gpus'"),
        ("cpus = 1\n", "key 'cpus' is outside a profile"),
        ('["A b"]\ncpus = 1\nmemory = "4GiB"\n', "profile name 'A b'"),
        ("[a\n", "not valid TOML"),
    ],
)
def test_wrong_file_names_key_and_fix(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(FileError) as caught:
        instances.hardware_profiles(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
