"""Result files of others: MTEB, HAKARI-Bench, ann-benchmarks and VectorDBBench."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from harness.errors import FileError, UsageError
from harness.results import foreign_formats

DATA = Path(__file__).resolve().parents[1] / "data" / "vectordbbench"
NDCG = frozenset({"nDCG@10"})
REVISION = "8b3219a92973c328a8e22fadcfa821b5dc75636a"


def mteb(folder: Path, name: str = "SciFact", *, meta: dict[str, Any] | None = None, **changes: Any) -> Path:
    """Write a result of a task as MTEB does, below the folders of model and revision."""
    entry = {"hf_subset": "default", "languages": ["eng-Latn"], "main_score": 0.64508, "ndcg_at_10": 0.64508}
    entry |= {"mrr_at_10": 0.60524, "nauc_ndcg_at_10_max": float("nan")}
    content = {
        "dataset_revision": "0228b52cf27578f30900b9e5271d331663a030d7",
        "task_name": name,
        "mteb_version": "1.18.0",
        "scores": {"test": [entry]},
        "evaluation_time": 7.5,
        "kg_co2_emissions": None,
        **changes,
    }
    path = folder / "results" / "sentence-transformers__all-MiniLM-L6-v2" / REVISION / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: value for key, value in content.items() if value != "left out"}))
    if meta is not None:
        (path.parent / "model_meta.json").write_text(json.dumps(meta))
    return path


def hakari(**changes: Any) -> bytes:
    content = {
        "generated_at_utc": "2026-05-01T00:00:00Z",
        "model": {"id": "intfloat/multilingual-e5-small", "method": "dense", "source": {"revision": REVISION}},
        "target": {
            "dataset_name": "NanoBEIR",
            "dataset_id": "nano-beir-en",
            "dataset_revision": "1" * 40,
            "split_name": "NanoSciFact",
            "task_name": "NanoSciFact",
        },
        "evaluation": {"aggregate_metric": "ndcg@10", "aggregate_metric_value": 0.71, "wall_seconds": 3.0},
        **changes,
    }
    return json.dumps(content).encode()


def test_a_result_of_mteb(tmp_path: Path) -> None:
    path = mteb(tmp_path)
    found = foreign_formats.read("mteb", [path], frozenset({"nDCG@10", "RR@10"}))
    assert [(each.measure, each.value, each.column) for each in found.qualities] == [
        ("nDCG@10", 0.64508, "mteb SciFact nDCG@10"),
        ("RR@10", 0.60524, "mteb SciFact RR@10"),
    ]
    one = found.qualities[0]
    assert (one.model, one.revision) == ("sentence-transformers/all-MiniLM-L6-v2", REVISION)
    assert (one.split, one.subset) == ("test", "default") and one.dataset_revision.startswith("0228b52c")


def test_a_folder_of_results_with_subsets(tmp_path: Path) -> None:
    values = {"en": 0.5, "zh": 0.4}
    subsets = [{"hf_subset": code, "languages": [code], "ndcg_at_10": value} for code, value in values.items()]
    mteb(tmp_path, "XQuADRetrieval", scores={"validation": subsets})
    mteb(tmp_path, meta={"name": "all-MiniLM-L6-v2", "revision": None, "max_tokens": float("inf")})
    mteb(tmp_path, "Banking77Classification", scores={"test": [{"accuracy": 0.8, "hf_subset": "default"}]})
    found = foreign_formats.read("mteb", [tmp_path / "results"], NDCG)
    assert (found.files, found.without) == (3, 1), "the model's own file is no result"
    assert [each.column for each in found.qualities] == [
        "mteb SciFact nDCG@10",
        "mteb XQuADRetrieval en validation nDCG@10",
        "mteb XQuADRetrieval zh validation nDCG@10",
    ]
    assert {(each.model, each.revision) for each in found.qualities} == {("all-MiniLM-L6-v2", None)}


def test_a_result_from_before_version_1_11(tmp_path: Path) -> None:
    flat = {"ndcg_at_10": 0.81606, "evaluation_time": 34.13}
    old = {"task_name": "left out", "scores": "left out", "mteb_dataset_name": "GermanGovServiceRetrieval"}
    (one,) = foreign_formats.read("mteb", [mteb(tmp_path, **old, test=flat)], NDCG).qualities
    assert (one.task, one.split, one.value) == ("GermanGovServiceRetrieval", "test", 0.81606)
    nested = {"de": {"ndcg_at_10": 0.7}, "evaluation_time": 3.0}
    (one,) = foreign_formats.read("mteb", [mteb(tmp_path, **old, test=nested)], NDCG).qualities
    assert (one.subset, one.value) == ("de", 0.7)


@pytest.mark.parametrize("packed", ["json", "json.gz", "json.xz"])
def test_a_result_of_hakari(tmp_path: Path, packed: str) -> None:
    pack = {"json": bytes, "json.gz": gzip.compress, "json.xz": lzma.compress}[packed]
    (tmp_path / f"NanoSciFact.{packed}").write_bytes(pack(hakari()))
    (one,) = foreign_formats.read("hakari", [tmp_path], NDCG).qualities
    assert one.column == "hakari nano-beir-en/NanoSciFact nDCG@10" and one.value == 0.71
    assert (one.model, one.revision, one.split) == ("intfloat/multilingual-e5-small", REVISION, "NanoSciFact")
    other = {"aggregate_metric": "acc@100", "aggregate_metric_value": 0.9}
    (tmp_path / f"NanoSciFact.{packed}").write_bytes(pack(hakari(evaluation=other)))
    assert foreign_formats.read("hakari", [tmp_path], NDCG).without == 1


def test_points_of_ann_benchmarks(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_text(
        "algorithm,parameters,count,k-nn,epsilon,qps,p50,build,dataset\n"
        'hnswlib,"hnswlib ({\'M\': 16, ""ef"": 10})",10,0.91,0.95,15000.5,0.06,12.5,glove-100-angular\n'
        "broken,x,10,0.0,0.0,0.0,0.0,1.0,glove-100-angular\n"
    )
    (one,) = foreign_formats.read("ann-benchmarks", [path], NDCG).points
    assert (one.system, one.dataset, one.recall, one.queries_per_s) == ("hnswlib", "glove-100-angular", 0.91, 15000.5)
    assert one.setting == "hnswlib ( M : 16, ef : 10" or one.setting.startswith("hnswlib (")


def test_points_of_a_real_result_of_vectordbbench() -> None:
    found = foreign_formats.read("vectordbbench", [DATA / "result_20230808_standard_pgvector.json"], NDCG)
    first = found.points[0]
    assert (first.dataset, first.system, first.recall, first.queries_per_s) == (
        "1536D 500K",
        "PgVector 2c8g",
        0.8528,
        0.8836,
    )
    assert first.setting == "index=IVF_FLAT, lists=10, metric_type=L2, probes=2"
    assert all(each.queries_per_s > 0 for each in found.points) and len(found.points) == 3, "cases out of range are out"


@pytest.mark.parametrize(
    ("source", "name", "content", "said"),
    [
        ("mteb", "a.json", b"{", "cannot be read"),
        ("mteb", "a.json", b"[]", "not a result of mteb"),
        ("mteb", "a.json", b'{"scores": {"test": [{"ndcg_at_10": 7}]}, "task_name": "x"}', "not a result of mteb"),
        ("hakari", "a.json.xz", b"not packed", "cannot be read"),
        ("hakari", "a.json", b"{}", r"not a result of hakari \(KeyError: 'model'\)"),
        ("ann-benchmarks", "a.csv", b"a,b\n1,2\n", "it lacks a column of algorithm, parameters"),
        ("vectordbbench", "a.json", b'{"results": [{}]}', r"not a result of vectordbbench \(KeyError: 'metrics'\)"),
    ],
)
def test_another_file_is_refused_in_a_line(tmp_path: Path, source: str, name: str, content: bytes, said: str) -> None:
    path = tmp_path / "org__model" / "1" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(FileError, match=said):
        foreign_formats.read(source, [path], NDCG)


def test_an_empty_folder_and_a_file_without_a_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="0 files of mteb"):
        foreign_formats.read("mteb", [tmp_path], NDCG)
    path = mteb(tmp_path, meta={"name": "no_model_name_available", "revision": "x"})
    with pytest.raises(FileError, match="names no model"):
        foreign_formats.read("mteb", [path], NDCG)
