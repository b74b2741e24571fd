"""Shipped files arrive unchanged, and are shipped once."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from harness import datasets
from harness.aws.clients import Connections, S3Uri
from harness.aws.objects import Objects
from harness.datasets import Dataset, answers
from harness.driver.records import Envelope
from harness.errors import ImageError, RemoteError, UsageError
from harness.jobs import environment, indexes
from harness.jobs.indexes import Index
from harness.jobs.inputs import IndexBuild
from harness.launch.base import Prepared
from harness.launch.docker import DockerLauncher
from harness.launch.fake import FakeLauncher
from harness.launch.images import catalog
from harness.launch.images.systems import System
from harness.remote import records, shipment
from harness.remote.bundle import LOCAL_ONLY, bundle_entries, lock
from harness.remote.records import PartJob, PlannedPart, ShippedImage, ShippedInput, WorkerPart, dump
from harness.remote.records import read as read_record
from harness.remote.shipment import Fetcher, Shipper
from harness.remote.storage import ObjectState
from harness.results.schema import IndexFacts
from harness.untrusted import to_json
from tests.aws.server import REGION
from tests.conftest import Bench, protocol, write_dataset
from tests.datasets import examples
from tests.images.test_fusion import declare
from tests.remote.conftest import WORK
from tests.remote.planning import TYPE, WORKER_ID, Engine, Planning

ROOT = Path(__file__).resolve().parents[2]
KEY = "0123456789abcdef01234567"


def shipper(work: Objects, cache: Path) -> Shipper:
    return Shipper(work, Engine().client, cache)


def fetcher(work: Objects, cache: Path) -> Fetcher:
    return Fetcher(work, cache)


def find(work: Objects, key: str, cache: Path) -> ShippedInput | None:
    return shipper(work, cache).find_index(key)


def adopt(work: Objects, worker_id: str, key: str, cache: Path) -> ShippedInput | None:
    return shipper(work, cache).adopt_index(worker_id, key)


def names(objects: Objects) -> list[str]:
    return [each.name for each in objects.list()]


def content(objects: Objects, shipped: ShippedInput) -> bytes:
    found = objects.get(shipped.name, 1 << 30)
    assert found is not None and len(found) == shipped.size_bytes
    assert hashlib.sha256(found).hexdigest() == shipped.sha256
    return found


# ---- bundle


def test_the_bundle_is_a_checkout_that_runs(
    work: Objects, logged: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_IMAGES", raising=False)
    shipped = shipper(work, tmp_path).bundle()
    place = tmp_path / "bundle"
    with tarfile.open(fileobj=io.BytesIO(content(work, shipped))) as tar:
        found = tar.getnames()
        tar.extractall(place, filter="data")
    assert {name.partition("/")[0] for name in found} == {
        *("harness", "images", "instance_profiles", "datasets", "requirements.lock")
    }
    assert not [name for name in found if "__pycache__" in name or "/." in name or name.endswith(".pyc")]
    code = (
        "import harness; from harness.launch.images import catalog; from harness.jobs import environment\n"
        "print(harness.__file__, environment.commit(), *catalog.systems())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(place / "harness/__init__.py"), environment.commit(), *catalog.systems()]


def test_bundle_is_shipped_again_only_after_a_change(
    work: Objects, logged: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    (own / "mine" / "systems").mkdir(parents=True)
    (own / "mine" / "engine.toml").write_text("x")
    (own / "letters").mkdir()
    (own / "letters" / "private.txt").write_text("x")
    (own / "mine" / ".secret").write_text("x")
    monkeypatch.setenv("HARNESS_IMAGES", str(own))
    first = shipper(work, tmp_path).bundle()
    before = names(work)
    assert shipper(work, tmp_path).bundle() == first
    assert names(work) == before == [first.name] and len(logged) == 1
    with tarfile.open(fileobj=io.BytesIO(content(work, first))) as tar:
        assert [name for name in tar.getnames() if name.startswith("own")] == ["own-images/mine/engine.toml"]
    (own / "mine" / "engine.toml").chmod(0o755)
    assert shipper(work, tmp_path).bundle() != first and len(logged) == 2
    assert not list((tmp_path / "shipping").iterdir()), "nothing is left in the cache"


@pytest.mark.slow
def test_an_installed_package_gives_the_same_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_IMAGES", raising=False)
    here = {name: read(each) for name, each in bundle_entries()}
    site = tmp_path / "site"
    for name, content in here.items():
        top, _, rest = name.partition("/")
        # Where the wheel puts them (pyproject.toml, force-include).
        path = site / name if top == "harness" else site / "harness" / "shipped" / top / rest
        if name != "requirements.lock" and not name.endswith("/COMMIT"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    (site / "somebodys.py").write_text("x = 1")
    code = "from harness.remote import bundle\n"
    code += "print(*sorted(name for name, _ in bundle.bundle_entries()), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == sorted(here)


def read(content: Path | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def test_the_runtime_lock_agrees_with_the_main_one() -> None:
    main = {line.split(" ")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    runtime = (ROOT / "harness/remote/requirements.lock").read_text()
    ours = {line.split(" ")[0] for line in runtime.splitlines() if "==" in line and not line.startswith(" ")}
    assert ours < main
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {line.partition(">")[0] for line in project} <= {each.partition("==")[0] for each in ours}
    assert "pytest" not in {each.partition("==")[0] for each in ours}
    whole = (ROOT / "requirements.lock").read_text()
    hashes = [line for line in runtime.splitlines() if "--hash" in line]
    assert hashes and all(line.rstrip(" \\") in whole for line in hashes)


def test_worker_installs_the_lock_without_local_only_packages() -> None:
    def packages(text: str) -> set[str]:
        return set(re.split(r"^(?=[a-z])", text, flags=re.MULTILINE))

    here = packages((ROOT / "harness/remote/requirements.lock").read_text())
    # pytrec_eval has no wheel for arm64.
    on_workers = packages(lock().replace(" ; platform_machine == 'x86_64' \\", " \\"))
    assert on_workers < here and {each.partition("==")[0] for each in here - on_workers} == LOCAL_ONLY
    assert re.search(r"^pytrec-eval-terrier==\S+ ; platform_machine == 'x86_64' \\\n    --hash", lock(), re.MULTILINE)


# ---- datasets


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """NLTK's sentence model here; nothing of NLTK's elsewhere."""
    import nltk.data

    folder = tmp_path / "nltk" / "tokenizers" / "punkt_tab" / "english"
    folder.mkdir(parents=True)
    folder.parents[2].chmod(0o700)
    (folder / "abbrev_types.txt").write_text("d.c\ndr\ninc\n")
    for name in ("collocations.tab", "sent_starters.txt", "ortho_context.tab"):
        (folder / name).write_text("")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk")])
    forget()
    yield folder.parents[2]
    forget()


def forget() -> None:
    from nltk import tokenize

    tokenize._get_punkt_tokenizer.cache_clear()
    answers.check_tokenizer.cache_clear()


def hashes(dataset: Dataset) -> list[object]:
    return [
        *(dataset.name, dataset.corpus.sha256, dataset.corpus.size, dataset.corpus.empty),
        *(dataset.qrels_sha256, dataset.queries, dataset.judgements),
    ]


def there_and_back(dataset: Dataset, work: Objects, tmp_path: Path) -> Dataset:
    """The dataset as a worker loads it."""
    shipped = shipper(work, tmp_path / "cache").dataset(dataset)
    assert shipper(work, tmp_path / "cache").dataset(dataset) == shipped
    folder = tmp_path / "elsewhere" / dataset.name
    fetcher(work, tmp_path / "other").dataset(shipped, folder)
    return datasets.load(datasets.find(f"./{dataset.name}", folder.parent), tmp_path / "other")


@pytest.mark.parametrize("heading", [name for name, text in examples.sections().items() if examples._FILE.search(text)])
def test_shipped_dataset_of_any_format_loads_the_same(
    heading: str, work: Objects, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nltk.data

    dataset = datasets.load(examples.write(heading, tmp_path / "data"), tmp_path / "cache")
    here = hashes(dataset)
    back = there_and_back(dataset, work, tmp_path)
    assert hashes(back) == here
    run = "".join(f"{q.query_id} Q0 {line} 1 1.0 x\n" for q in dataset.queries for line in ids(dataset)).encode()
    if dataset.answers:
        # Only what came along can be used there.
        monkeypatch.setattr(nltk.data, "path", [path for path in nltk.data.path if "elsewhere" in path])
        forget()
    assert back.judge(run) == dataset.judge(run)


def ids(dataset: Dataset) -> list[str]:
    return (dataset.corpus.folder / "ids.txt").read_text(encoding="utf-8").splitlines()


def test_special_characters_and_judgements_of_missing_queries_are_shipped(work: Objects, tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "data")
    with (folder / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write(
            '{"_id": "x1", "title": null, "text": "a\\u2028b \\ud800 \\r\\n \\u0000"}\n{"_id": "x2", "text": ""}\n'
        )
    with (folder / "queries.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"_id": "q\\u00e9", "text": "\\u2028 \\ud800 \\r x"}\n')
    plain = datasets.load(folder, tmp_path / "cache")
    # ir_datasets has such judgements; in a folder of one's own they would be a mistake.
    dataset = Dataset(plain.name, plain.corpus, plain.queries, plain.qrels + b"unknown 0 d1 1\n")
    assert hashes(there_and_back(dataset, work, tmp_path)) == hashes(dataset)


def test_broken_download_is_retried(work: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = datasets.load(write_dataset(tmp_path / "data"), tmp_path / "cache")
    shipped = shipper(work, tmp_path / "cache").dataset(dataset)
    reading, failures = Objects.reading, [1, 2]

    @contextlib.contextmanager
    def broken(self: Objects, name: str) -> Iterator[dict[str, Any]]:
        with reading(self, name) as answer:
            if not failures:
                yield answer
                return
            yield {"Body": io.BytesIO(b"the beginning of something")}
            failures.pop()
            raise RemoteError("cut off", "IncompleteReadError")

    monkeypatch.setattr(Objects, "reading", broken)
    monkeypatch.setattr("harness.remote.failures._PAUSE_S", 0.0)
    fetcher(work, tmp_path / "other").dataset(shipped, tmp_path / "a" / "data")
    assert not failures and hashes(datasets.load(tmp_path / "a" / "data", tmp_path / "other")) == hashes(dataset)
    failures += range(9)
    with pytest.raises(RemoteError, match="cut off"):
        fetcher(work, tmp_path / "other").dataset(shipped, tmp_path / "b" / "data")


def test_input_with_another_content_is_refused(work: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = datasets.load(write_dataset(tmp_path / "data"), tmp_path / "cache")
    shipped = shipper(work, tmp_path / "cache").dataset(dataset)
    genuine = content(work, shipped)
    for spoiled in (genuine[:-1], genuine[:-1] + b"x"):
        work.put(shipped.name, spoiled)
        with pytest.raises(RemoteError) as caught:
            fetcher(work, tmp_path / "other").dataset(shipped, tmp_path / f"out{len(spoiled)}" / "data")
        assert caught.value.code == "BadInput" and shipped.name in str(caught.value)
    for code in ("NoSuchKey", "AccessDenied"):  # workers may not list: to them S3 does not say what is missing
        with (
            monkeypatch.context() as patch,
            pytest.raises(RemoteError, match="is missing or cannot be read") as caught,
        ):
            patch.setattr(Objects, "reading", _refusing(code))
            fetcher(work, tmp_path / "other").dataset(shipped, tmp_path / code / "data")
        assert caught.value.code == "BadInput"
    assert not list((tmp_path / "other" / "shipping").iterdir())


def _refusing(code: str) -> Callable[..., str]:
    def refuse(*_: object) -> str:
        raise RemoteError("reading: no", code)

    return refuse


# ---- images


@pytest.mark.docker
def test_shipped_image_is_loaded_unchanged(
    work: Objects, tmp_path: Path, logged: list[str], engine: docker.DockerClient, toy: System
) -> None:
    cache, launcher = tmp_path / "cache", DockerLauncher(tmp_path / "cache")
    prepared = launcher.prepare(toy)
    ships = Shipper(work, launcher.client, cache)
    try:
        shipped = ships.image(prepared)
        assert ships.image(prepared) == shipped
        assert (shipped.digest, shipped.image) == (prepared.digest, toy.image) and shipped.file
        assert sum("uploading the image" in line for line in logged) == 1
        engine.images.remove(shipped.reference, force=True)
        assert launcher.find(toy) is None
        with pytest.raises(ImageError, match="rebuilt or removed"):
            ships.image(prepared)
        Fetcher(work, cache).image(engine, shipped)
        assert launcher.find(toy) == prepared
        with pytest.raises(RemoteError, match="containerd image store"):
            Fetcher(work, cache).image(engine, replace(shipped, digest="sha256:" + "0" * 64))
        engine.images.get(shipped.digest).tag("another-name", "x")
        engine.images.remove(shipped.reference)
        work.delete([shipped.file.name])
        Fetcher(work, cache).image(engine, shipped)  # only its tag was missing
        assert launcher.find(toy) == prepared
        engine.images.remove(shipped.reference)
        engine.images.remove("another-name:x")
        with pytest.raises(RemoteError, match="is missing or cannot be read"):
            Fetcher(work, cache).image(engine, shipped)
    finally:
        launcher.close()
        for tag in ("another-name:x", shipped.reference):
            with contextlib.suppress(docker.errors.ImageNotFound):
                engine.images.remove(tag, force=True)


# ---- indexes


def made_index(cache: Path, text: str = "postings") -> Index:
    cached = indexes.folder(cache, KEY)
    (cached / "data" / "sub" / "empty").mkdir(parents=True)
    (cached / "data" / "sub" / "part").write_text(text)
    (cached / "data" / "x").write_text("more")
    size, checksum = indexes.content(cached / "data")
    facts = IndexFacts(1.5, size, checksum, Envelope("build", 1, 1 << 30))
    (cached / "facts.json").write_text(to_json(facts))
    found = indexes.find(cache, KEY)
    assert found
    return found


def test_shipped_index_is_found_and_fetched(work: Objects, tmp_path: Path, logged: list[str]) -> None:
    built = made_index(tmp_path / "cache")
    assert find(work, KEY, tmp_path) is None
    shipped = shipper(work, tmp_path).index(KEY, built)
    assert find(work, KEY, tmp_path) == shipped
    other = tmp_path / "other"
    fetcher(work, other).index(KEY, shipped)
    found = indexes.find(other, KEY)
    assert found and found.facts == built.facts
    assert indexes.content(found.folder) == indexes.content(built.folder)
    assert (found.folder / "sub" / "empty").is_dir()
    work.delete([shipped.name])
    fetcher(work, other).index(KEY, shipped)  # the cache has it, so it is not fetched
    assert indexes.find(other, KEY) == found
    assert find(work, KEY, tmp_path) is None, "without its bytes it is not whole"
    assert shipper(work, tmp_path).index(KEY, built) == shipped, "and is shipped again"


def test_index_that_contradicts_its_facts_is_refused(work: Objects, tmp_path: Path, logged: list[str]) -> None:
    built = made_index(tmp_path / "cache")
    (built.folder / "x").write_text("MORE")
    shipped = shipper(work, tmp_path).index(KEY, built)
    with pytest.raises(RemoteError, match="holds another index"):
        fetcher(work, tmp_path / "other").index(KEY, shipped)
    assert indexes.find(tmp_path / "other", KEY) is None
    assert not list((tmp_path / "other" / "indexes").iterdir())


# ---- as long as a run needs it


def aged(monkeypatch: pytest.MonkeyPatch, work: Objects, *shipped: ShippedInput) -> None:
    """Let S3 say that these objects will soon expire."""
    keys = {work.place.key(each.name) for each in shipped}
    state = Objects.state

    def older(self: Objects, name: str) -> ObjectState | None:
        found = state(self, name)
        old = found is not None and self.place.key(name) in keys
        return replace(found, age=shipment.RENEWED_AFTER + timedelta(seconds=1)) if found and old else found

    monkeypatch.setattr(Objects, "state", older)


def test_input_that_expires_soon_is_copied(
    work: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    """Written again in its place it would be replaced, which runners may not."""
    dataset = datasets.load(write_dataset(tmp_path / "data"), tmp_path / "cache")
    shipped, bundle = shipper(work, tmp_path / "cache").dataset(dataset), shipper(work, tmp_path / "cache").bundle()
    before = {name: work.get(name, 1 << 30) for name in names(work)}
    logged.clear()
    aged(monkeypatch, work, shipped, bundle)
    renewed = shipper(work, tmp_path / "cache").dataset(dataset)
    assert renewed == replace(shipped, name=renewed.name) and renewed.name != shipped.name and logged == []
    assert content(work, renewed) == content(work, shipped)
    assert shipper(work, tmp_path / "cache").dataset(dataset) == renewed
    again = shipper(work, tmp_path / "cache").bundle()
    assert again == replace(bundle, name=again.name) and again.name != bundle.name
    assert {name: work.get(name, 1 << 30) for name in before} == before, "nothing is written over"


def test_age_is_by_s3s_clock(work: Objects) -> None:
    work.put("a", b"x")
    work.client.meta.events.register(
        "after-call.s3.HeadObject",
        lambda parsed, **_: parsed.update(LastModified=parsed["LastModified"] - timedelta(days=61)),
    )
    state = work.state("a")
    assert state and timedelta(days=60, hours=23) < state.age < timedelta(days=61, hours=1)


# ---- strangers who may write below inputs/


class Stranger:
    """Somebody who may write, replace and delete below ``inputs/``."""

    def __init__(self, work: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HARNESS_IMAGES", raising=False)
        self.work, self.cache = work, tmp_path / "victim"
        self.dataset = datasets.load(write_dataset(tmp_path / "data"), tmp_path / "cache")
        self.built = made_index(tmp_path / "built")
        system = SimpleNamespace(image="bm25", name="bm25")
        self.prepared: Any = SimpleNamespace(system=system, digest="sha256:" + "d" * 64, reference="harness-bm25:0")
        monkeypatch.setattr(shipment, "_tag", lambda *_: "harness-bm25:0")

    def ship(self, what: str, cache: Path | None = None) -> ShippedInput:
        """Ship as the victim does."""
        engine = Engine().client
        engine.api = SimpleNamespace(get_image=lambda _: [b"layers of the image"])
        ships = Shipper(self.work, engine, cache or self.cache)
        ways: dict[str, Callable[[], ShippedInput]] = {
            "bundle": ships.bundle,
            "dataset": lambda: ships.dataset(self.dataset),
            "image": lambda: ships.image(self.prepared).file,
            "index": lambda: ships.index(KEY, self.built),
        }
        return ways[what]()


@pytest.fixture
def stranger(work: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stranger:
    return Stranger(work, tmp_path, monkeypatch)


KINDS = ["bundle", "dataset", "image", "index"]


@pytest.mark.parametrize("what", KINDS)
def test_packing_gives_the_same_bytes_on_every_machine(
    stranger: Stranger, work: Objects, tmp_path: Path, what: str
) -> None:
    first = stranger.ship(what)
    content(work, first)
    assert re.fullmatch(rf"inputs/\w+/{first.sha256}\.tar\.gz", first.name), "named by its whole hash"
    later = time.time() + 7200
    for path in (*stranger.built.folder.rglob("*"), *stranger.dataset.corpus.folder.rglob("*")):
        os.utime(path, (later, later))
    assert stranger.ship(what, tmp_path / "another machine") == first
    assert names(work) == [first.name], "and nothing else is written, which somebody could believe"


@pytest.mark.parametrize("what", KINDS)
def test_object_that_was_there_already_is_not_believed(
    stranger: Stranger, work: Objects, tmp_path: Path, what: str
) -> None:
    honest = stranger.ship(what, tmp_path / "elsewhere")
    genuine = content(work, honest)
    work.delete([honest.name])
    forged = genuine[:-1] + b"x"
    work.put(honest.name, forged)
    record = ShippedInput(honest.name, hashlib.sha256(forged).hexdigest(), len(forged))
    work.put(f"{honest.name}.json", dump(record))
    shipped = stranger.ship(what)
    assert shipped.sha256 == honest.sha256 and shipped.name != honest.name
    assert content(work, shipped) == genuine
    assert work.get(honest.name, 1 << 30) == forged, "another's object is not replaced"
    assert stranger.ship(what) == shipped or what == "bundle"


@pytest.mark.parametrize("what", KINDS)
def test_object_that_was_replaced_is_shipped_again(stranger: Stranger, work: Objects, what: str) -> None:
    shipped = stranger.ship(what)
    genuine = content(work, shipped)
    work.put(shipped.name, genuine[:-1] + b"x")
    again = stranger.ship(what)
    assert again == replace(shipped, name=again.name) and again.name != shipped.name
    assert content(work, again) == genuine
    work.delete([again.name])
    assert content(work, stranger.ship(what)) == genuine


def test_replaced_object_does_not_fill_the_workers_disk(
    stranger: Stranger, work: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped, written = stranger.ship("index"), []
    work.put(shipped.name, content(work, shipped) + bytes(5 << 20))
    download = Objects.download

    def measured(self: Objects, name: str, path: Path, most_bytes: int) -> str:
        sha256 = download(self, name, path, most_bytes)
        written.append(path.stat().st_size)
        return sha256

    monkeypatch.setattr(Objects, "download", measured)
    with pytest.raises(RemoteError, match="not what was shipped; run again"):
        fetcher(work, tmp_path / "worker").index(KEY, shipped)
    assert written[0] <= shipped.size_bytes + (1 << 20)


def test_record_of_an_index_is_not_believed(stranger: Stranger, work: Objects, tmp_path: Path) -> None:
    """An index that another machine shipped is the word of whoever may write there."""
    shipped = stranger.ship("index", tmp_path / "elsewhere")
    for name in (f"inputs/indexes/{KEY}.tar.gz.json", f"{shipped.name}.json"):
        work.put(name, dump(shipped))
    assert find(work, KEY, tmp_path / "here") is None


def test_two_orchestrators_that_ship_at_once_use_one_object(
    stranger: Stranger, work: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, upload = threading.Barrier(2), Objects.upload_new

    def together(self: Objects, name: str, path: Path) -> bool:
        both.wait(60)  # neither saw the object of the other
        return upload(self, name, path)

    monkeypatch.setattr(Objects, "upload_new", together)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda number: stranger.ship("index", tmp_path / f"machine {number}"), range(2))
    assert first == second and names(work) == [first.name]
    content(work, first)


def test_damaged_or_foreign_entry_of_the_ledger_counts_for_nothing(
    stranger: Stranger, work: Objects, tmp_path: Path
) -> None:
    shipped = stranger.ship("dataset")
    (entry,) = (stranger.cache / "shipped").iterdir()
    entry.write_text("junk")
    assert stranger.ship("dataset") == shipped
    elsewhere = Objects(Connections(REGION), S3Uri(WORK.bucket, "another/place"))
    assert Shipper(elsewhere, Engine().client, stranger.cache).dataset(stranger.dataset) == shipped
    assert names(elsewhere) == [shipped.name], "an entry is of one work place"


def test_engine_with_the_containerd_store_is_refused(work: Objects, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"containerd image store.*daemon\.json") as caught:
        Shipper(work, Engine("io.containerd.snapshotter.v1").client, tmp_path)
    assert "\n" not in str(caught.value)


# ---- indexes that workers built


def test_an_index_of_a_worker_is_adopted_once(work: Objects, tmp_path: Path, logged: list[str]) -> None:
    built = made_index(tmp_path / "cache")
    assert adopt(work, WORKER_ID, KEY, tmp_path) is None, "the worker has none yet"
    shipment.upload_index(work, WORKER_ID, KEY, built, tmp_path)
    assert all(name.startswith(f"workers/{WORKER_ID}/indexes/{KEY}.") for name in names(work)) and len(names(work)) == 2
    adopted = adopt(work, WORKER_ID, KEY, tmp_path)
    assert adopted is not None and adopted.name.startswith(f"inputs/indexes/{adopted.sha256}.")
    assert find(work, KEY, tmp_path) == adopted
    content(work, adopted)
    fetcher(work, tmp_path / "other").index(KEY, adopted)
    fetched = indexes.find(tmp_path / "other", KEY)
    assert fetched and fetched.facts == built.facts and indexes.content(fetched.folder) == indexes.content(built.folder)
    other = made_index(tmp_path / "another", "others")
    shipment.upload_index(work, f"{WORKER_ID}-2", KEY, other, tmp_path)
    assert adopt(work, f"{WORKER_ID}-2", KEY, tmp_path) == adopted, "the first one stays"
    assert shipper(work, tmp_path).index(KEY, other) == adopted
    work.delete([adopted.name])
    assert find(work, KEY, tmp_path) is None, "without its bytes it is not known"
    again = adopt(work, WORKER_ID, KEY, tmp_path)
    assert again and again != adopted and find(work, KEY, tmp_path) == again


def test_index_in_several_parts_is_adopted_by_its_bytes(
    work: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then S3 states no hash of the whole."""
    monkeypatch.setattr("harness.aws.objects.MOST_PART_BYTES", 8 << 20)
    whole = bytes(range(256)) * (9 << 12)
    sha256, folder = hashlib.sha256(whole).hexdigest(), f"{records.worker(WORKER_ID)}/indexes"
    for body, adopted in ((whole[:-1] + b"\0", False), (whole, True)):
        name = f"{folder}/{KEY}.{sha256}.tar.gz"
        work.put(name, body)
        work.put(f"{folder}/{KEY}.tar.gz.json", dump(ShippedInput(name, sha256, len(body))))
        with contextlib.nullcontext() if adopted else pytest.raises(RemoteError, match="does not match the index"):
            made = adopt(work, WORKER_ID, KEY, tmp_path)
            assert made and content(work, made) == whole


ABC, OWN = hashlib.sha256(b"abc").hexdigest(), f"workers/{WORKER_ID}/indexes"
LIES = {
    "another worker's": (f"workers/{WORKER_ID}-2/indexes/{KEY}.{ABC}.tar.gz", ABC),
    "an input": (f"inputs/indexes/{KEY}.{ABC}.tar.gz", ABC),
    "another file of the worker": (f"workers/{WORKER_ID}/jobs/0123456789abcdef.tar", ABC),
    "a way out": (f"{OWN}/../../../inputs/images/{ABC}.tar.gz", ABC),
    "another key": (f"{OWN}/{KEY[:-1]}0.{ABC}.tar.gz", ABC),
    "no hash": (f"{OWN}/{KEY}..tar.gz", ""),
    "a path for a hash": (f"{OWN}/{KEY}.../x.tar.gz", "../x"),
    "capitals": (f"{OWN}/{KEY}.{'A' * 64}.tar.gz", "A" * 64),
    "a short hash": (f"{OWN}/{KEY}.{'0' * 63}.tar.gz", "0" * 63),
}


@pytest.mark.parametrize(("name", "sha256"), LIES.values(), ids=LIES)
def test_a_record_that_names_no_index_of_its_worker_is_refused(
    work: Objects, tmp_path: Path, name: str, sha256: str
) -> None:
    work.put(name, b"abc")
    work.put(f"{records.worker(WORKER_ID)}/{records.index(KEY)}.json", dump(ShippedInput(name, sha256, 3)))
    before = names(work)
    with pytest.raises(RemoteError, match="does not name an index of this worker") as caught:
        adopt(work, WORKER_ID, KEY, tmp_path)
    assert caught.value.code == "BadInput" and "\n" not in str(caught.value) and names(work) == before


@pytest.mark.parametrize("record", [b"junk", b" " * (17 << 20)], ids=["junk", "large"])
def test_broken_record_of_an_index_is_refused(work: Objects, tmp_path: Path, record: bytes) -> None:
    work.put(f"{records.worker(WORKER_ID)}/{records.index(KEY)}.json", record)
    with pytest.raises(RemoteError, match="stays there and was not used") as caught:
        adopt(work, WORKER_ID, KEY, tmp_path)
    assert caught.value.code == "BadInput" and find(work, KEY, tmp_path) is None


def test_outage_does_not_refuse_an_index(work: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise RemoteError("AWS is busy", "Busy")

    shipment.upload_index(work, WORKER_ID, KEY, made_index(tmp_path / "cache"), tmp_path)
    with monkeypatch.context() as patch, pytest.raises(RemoteError, match="AWS is busy") as caught:
        patch.setattr(Objects, "copy_new", away)
        adopt(work, WORKER_ID, KEY, tmp_path)
    assert caught.value.code == "Busy" and adopt(work, WORKER_ID, KEY, tmp_path)


def test_an_index_is_adopted_only_with_the_content_that_its_record_names(work: Objects, tmp_path: Path) -> None:
    """Else no worker of any later run can use that index, and none builds it again."""
    sha256, folder = hashlib.sha256(b"index").hexdigest(), f"{records.worker(WORKER_ID)}/indexes"
    name = f"{folder}/{KEY}.{sha256}.tar.gz"
    work.put(name, b"other")
    work.put(f"{folder}/{KEY}.tar.gz.json", dump(ShippedInput(name, sha256, 5)))
    before = names(work)
    with pytest.raises(RemoteError, match="does not match the index") as caught:
        adopt(work, WORKER_ID, KEY, tmp_path)
    assert caught.value.code == "BadInput" and find(work, KEY, tmp_path) is None
    (left,) = set(names(work)) - set(before)  # which the bucket's rule deletes
    assert re.fullmatch(rf"inputs/indexes/{sha256}\.[0-9a-f]{{16}}\.tar\.gz", left), (
        "no name that anybody would ship under"
    )


def test_an_index_whose_bytes_are_too_many_cut_or_gone_is_not_adopted(work: Objects, tmp_path: Path) -> None:
    shipment.upload_index(work, WORKER_ID, KEY, made_index(tmp_path / "cache"), tmp_path)
    before = names(work)
    (packed,) = [name for name in before if name.endswith(".tar.gz")]
    with pytest.raises(RemoteError, match="too large") as caught:
        shipper(work, tmp_path).adopt_index(WORKER_ID, KEY, most_bytes=99)
    assert caught.value.code == "BadInput" and names(work) == before
    for spoil in (lambda: work.put(packed, b"cut"), lambda: work.delete([packed])):
        spoil()
        with pytest.raises(RemoteError, match="cut short or too large") as caught:
            adopt(work, WORKER_ID, KEY, tmp_path)
        assert caught.value.code == "BadInput" and find(work, KEY, tmp_path) is None


# ---- parts


class Shipping(Shipper):
    """Ships no image, and notes what it ships."""

    def __init__(self, work: Objects, cache: Path) -> None:
        super().__init__(work, Engine().client, cache)
        self.shipped: list[str] = []

    def image(self, prepared: Prepared) -> ShippedImage:
        self.shipped.append(prepared.system.image)
        return ShippedImage(
            prepared.system.image, prepared.digest, prepared.reference, ShippedInput("i.tar.gz", "0" * 64, 1)
        )

    def dataset(self, dataset: Dataset) -> ShippedInput:
        self.shipped.append(dataset.name)
        return super().dataset(dataset)


def test_a_part_names_all_that_its_jobs_need(bench: Bench, work: Objects, tmp_path: Path) -> None:
    planning = Planning(bench, bench.suite(protocol(2)), FakeLauncher(), work)
    jobs = planning.part().jobs
    (job,) = {each.spec.index_key: each for each in planning.planned}.values()
    system = planning.inputs.system(job.cell)
    ready = {system.image: Prepared(system, job.spec.recipe, "sha256:1", "image:tag")}
    build = IndexBuild(job.spec.index_key, job.cell.system, job.cell.dataset)
    planned = PlannedPart("p-1", TYPE, 0.1, 30, jobs, (build,))
    ships = Shipping(work, tmp_path / "cache")

    def part(local: dict[str, Index], some: tuple[PartJob, ...] = jobs) -> WorkerPart:
        return ships.part(planned, some, planning.inputs, ready, local, lambda _: build.key)

    first = part({})
    assert (first.name, first.instance_type, first.jobs) == ("p-1", TYPE, jobs)
    assert first.builds == (build,) and first.indexes == {}
    assert [image.image for image in first.images] == [system.image] and list(first.datasets) == ["tiny"]
    assert first.suite == planning.inputs.suite.model_dump(mode="json")
    assert read_record(WorkerPart, "part", dump(first)) == first
    built = made_index(tmp_path / "worker")
    shipment.upload_index(work, WORKER_ID, build.key, built, tmp_path)
    adopted = ships.adopt_index(WORKER_ID, build.key)
    second = part({}, jobs[1:])
    assert (second.jobs, second.builds, second.indexes) == (jobs[1:], (), {build.key: adopted})
    assert part({}, ()).images == (), "nothing is left to do, and the index is built"
    assert ships.shipped == ["planted", "tiny"], "once each"


def test_part_that_builds_a_hybrid_gets_its_components_images_and_indexes(
    bench: Bench, work: Objects, tmp_path: Path
) -> None:
    declare(bench)
    planning = Planning(bench, bench.suite(protocol(1), systems=["both"]), FakeLauncher(), work)
    whole, ships = planning.part(builds=True), Shipping(work, tmp_path / "cache")
    words, letters, both = whole.builds
    local = {words.key: made_index(tmp_path / "words")}

    def part(*builds: IndexBuild, jobs: tuple[PartJob, ...] = (), **more: Index) -> WorkerPart:
        planned = PlannedPart("p-1", TYPE, 0.1, 30, jobs, builds)
        return ships.part(planned, jobs, planning.inputs, planning.images, {**local, **more}, lambda _: both.key)

    assert [image.image for image in part(letters).images] == ["letters"]
    made = part(letters, both)
    assert [image.image for image in made.images] == ["letters", "both", "words"]
    assert made.builds == (letters, both) and made.indexes.keys() == {words.key}
    assert part(letters, both, jobs=whole.jobs).images == part(both, jobs=whole.jobs).images, "it may have to build all"
    searching = part(jobs=whole.jobs, **{both.key: made_index(tmp_path / "both")})
    assert [image.image for image in searching.images] == ["both"] and searching.indexes.keys() == {both.key}
