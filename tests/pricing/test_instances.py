from pathlib import Path

import pytest

from harness.errors import FileError, UnknownName
from harness.pricing import instances
from tests.support import price_fixtures

GIB = 2**30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return price_fixtures.write(tmp_path)


def test_unknown_instance_facts_are_none(root: Path) -> None:
    types = instances.read_instances("x", root)
    assert len(types) == len(price_fixtures.FACTS)
    assert types["g.one"] == instances.Instance(
        provider="x",
        instance_type="g.one",
        vcpus=4,
        physical_cores=2,
        memory_bytes=16 * GIB,
        architecture="x86_64",
        gpus=1,
        gpu_name="t4",
        gpu_memory_bytes=16 * GIB,
        accelerators=0,
        local_nvme_bytes=125 * 10**9,
        burstable=False,
        bare_metal=False,
        current_generation=True,
    )
    tie = types["c.tie"]
    assert (tie.physical_cores, tie.current_generation, tie.local_nvme_bytes) == (None, None, None)


def test_only_whole_nvidia_gpus_are_gpus_and_others_are_accelerators(root: Path) -> None:
    types = instances.read_instances("x", root)
    counted = {name: (types[name].gpus, types[name].accelerators) for name in ("inf.one", "radeon.one", "part.gpu")}
    assert counted == {"inf.one": (0, 1), "radeon.one": (0, 1), "part.gpu": (0, 1)}
    assert (types["g.four"].gpus, types["g.four"].accelerators) == (4, 0)
    assert (types["part.gpu"].gpu_name, types["radeon.one"].gpu_memory_bytes) == (None, None)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x,m1.two,2,1,4,x86_64,0,,,,0,,,false,false,true,,,doc", ":15: 'm1.two' appears twice"),
        ("y,n.two,2,1,4,x86_64,0,,,,0,,,false,false,true,,,doc", ":15: provider is 'y', this file is for 'x'"),
        ("x,n.two,2,1,4,riscv,0,,,,0,,,false,false,true,,,doc", "architecture 'riscv' is unknown"),
        ("x,n.two,two,1,4,x86_64,0,,,,0,,,false,false,true,,,doc", "vcpus is 'two'; write a whole number"),
        ("x,n.two,2,1,nan,x86_64,0,,,,0,,,false,false,true,,,doc", "memory_gib is 'nan'; write a number above 0"),
        ("x,n.two,2,1,4,x86_64,0,,,,0,,,no,false,true,,,doc", "burstable is 'no'; write true or false"),
        ("x,n.two,2,1,4,x86_64,0,,,,0,,,false,false,maybe,,,doc", "current_generation is 'maybe'"),
        (
            "x,n.two,2,1,4,x86_64,0,,,,0,,some,false,false,true,,,doc",
            "local_nvme_gb is 'some'; write a number of 0 or above 0",
        ),
        ("x,n.two,2,1,4,x86_64,0,,,,0,,,false,false,true,,soon,doc", "gone_by is 'soon'; write YYYY-MM-DD"),
        ("x,n.two,2", ":15: 3 fields, must be 19"),
        ('"x', "not CSV; correct the quotes of the row"),
    ],
)
def test_wrong_facts_name_file_line_and_fix(root: Path, line: str, message: str) -> None:
    path = root / "instances" / "x.csv"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(FileError) as caught:
        instances.read_instances("x", root)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_provider_without_facts_is_named(root: Path) -> None:
    with pytest.raises(FileError, match=r"nobody\.csv: this file does not exist"):
        instances.read_instances("nobody", root)


def test_facts_are_reread_after_a_same_size_change_and_callers_cannot_change_them(root: Path) -> None:
    instances.read_instances("x", root).clear()
    assert instances.read_instances("x", root)["m1.two"].vcpus == 2
    path = instances.facts_path("x", root)
    path.write_text(path.read_text().replace("m1.two,2,", "m1.two,3,"))
    assert instances.read_instances("x", root)["m1.two"].vcpus == 3


def write_profiles(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hardware.toml"
    path.write_text(text)
    return path


def test_shipped_profile_names_match_their_hardware() -> None:
    profiles = instances.hardware_profiles()
    assert len(profiles) >= 11
    for name, envelope in profiles.items():
        gib = envelope.memory_bytes / GIB
        memory = f"mem{gib:g}" if gib >= 1 else f"mem{envelope.memory_bytes // 2**20}m"
        gpu = f"gpu{envelope.gpus}-" if envelope.gpus else ""
        assert name == f"{gpu}cpu{envelope.cpus}-{memory}"


def test_unknown_profile_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'cpu1-mem256m'"):
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
        ('[a]\ncpus = 1\nmemory = "4GiB"\ngpu = 1\n', "unknown key 'a.gpu'. Did you mean 'gpus'"),
        ("cpus = 1\n", "key 'cpus' does not belong to a profile"),
        ('["A b"]\ncpus = 1\nmemory = "4GiB"\n', "profile name 'A b'"),
        ("[a\n", "not valid TOML"),
    ],
)
def test_wrong_profile_names_key_and_fix(tmp_path: Path, text: str, message: str) -> None:
    path = write_profiles(tmp_path, text)
    with pytest.raises(FileError) as caught:
        instances.hardware_profiles(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_memory_that_no_result_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="'9999999999GiB' is beyond 1,073,741,824 GiB; write a smaller size"):
        instances.parse_memory("9999999999GiB")
