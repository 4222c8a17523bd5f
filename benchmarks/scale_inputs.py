"""Inputs of the benchmark of scale: captions made of words, embeddings at random, and answers to every question.

All of it follows from a seed. The files are laid out as clip-retrieval's inference and `cliptune answers export` write
them, in blocks, so that memory does not grow with the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from components.captions.generating.store.schema import EXPORT
from components.captions.prompting.disarm import disarm
from components.captions.prompting.request import Request, Sampling
from components.captions.prompting.tasks import find_task
from components.core.system.progress import bar
from components.core.tables.files import atomic_file, write_json
from components.core.tables.folders import EVALUATION
from components.core.tables.records import CAPTION_QUERIES, PAIRS, PARAPHRASE_QUERIES
from components.encoders.adapter.encoder import Encoder

DIM = 512
VALIDATION_PAIRS = 1000
MODEL = "replayed"
"""The model of the replayed answers; none is generated."""
_REPO = Path(__file__).parents[1]
_FILE = 1_000_000
"""Rows of a file, as clip-retrieval has them by default."""
_BLOCK = 50_000
_REPLAY = Path("inputs/replay.parquet")
_TASKS = ("paraphrase_1", "paraphrase_2")
_ARCHITECTURE = {
    "embed_dim": DIM,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "head_width": 32, "patch_size": 16},
    "text_cfg": {"context_length": 48, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2},
}
"""Towers so small that a step of training is mostly about data."""

_WORDS = [
    [alike.split("/") for alike in words.split(", ")]
    for words in (
        "small/little/tiny, large/big/huge, old/aged/ancient, bright/vivid/shining, quiet/calm/silent, "
        "pretty/lovely/charming, strange/odd/peculiar, cheerful/happy/merry, damp/wet/moist, rapid/fast/swift, "
        "plain/simple/bare, costly/expensive/precious, broken/damaged/shattered, narrow/thin/slim, "
        "famous/renowned/celebrated, filthy/dirty/grimy",
        "dog/hound/canine, cat/kitty/feline, car/automobile/vehicle, boat/vessel/ship, child/kid/youngster, "
        "doctor/physician/medic, house/home/dwelling, road/street/lane, rabbit/bunny/hare, rock/stone/boulder, "
        "sofa/couch/settee, cup/mug/beaker, forest/wood/grove, shop/store/boutique, hat/cap/bonnet, bag/sack/pouch",
        "beside/next to/close to, behind/in back of/to the rear of, near/not far from/around, under/below/beneath, "
        "above/over/higher than, facing/opposite/across from",
        "garden/yard/park, beach/shore/coast, city/town/metropolis, field/meadow/pasture, hill/slope/rise, "
        "valley/dale/glen, hall/lobby/foyer, market/bazaar/fair",
    )
]
"""Adjectives, nouns, relations and places, each with a word for either paraphrase."""

_SENTENCES = (
    "a {0} {1} {2} a {3} {4} in the {6} {5}",
    "Inside some {6} {5}, one sees the {0} {1} {2} one {3} {4}.",
    "The {3} {4} has the {0} {1} {2} it, all within this {6} {5}.",
)


@dataclass(frozen=True)
class Size:
    """How much there is; the files of a folder are made for one size.

    Attributes:
        rows: pairs to train on.
        images: test images.
        queries: texts that are evaluated.
        batch, steps: of training.
    """

    rows: int
    images: int
    queries: int
    batch: int
    steps: int


def texts(rows: int, seed: int) -> list[pa.Array]:
    """A caption, its paraphrase and the paraphrase of that, as columns of `rows`."""
    rng = np.random.default_rng(seed)
    kinds = (0, 1, 2, 0, 1, 3, 0)
    drawn = [rng.integers(len(_WORDS[kind]), size=rows) for kind in kinds]
    found = []
    for form, sentence in enumerate(_SENTENCES):
        known = [pa.array([alike[form] for alike in words]) for words in _WORDS]
        words = [known[kind].take(pa.array(own)) for kind, own in zip(kinds, drawn, strict=True)]
        found.append(_filled(sentence, words))
    return found


def _filled(sentence: str, words: list[pa.Array]) -> pa.Array:
    """`sentence` with a column of words for each of its fields."""
    parts: list[Any] = []
    for piece in sentence.split("{"):
        name, found, rest = piece.rpartition("}")
        parts += [words[int(name)], rest] if found else [rest]
    return pc.binary_join_element_wise(*parts, "")


def _blocks(rows: int, seed: int) -> Iterator[list[pa.Array]]:
    for start in range(0, rows, _BLOCK):
        yield texts(min(_BLOCK, rows - start), seed + start)


def write_embeddings(folder: Path, size: Size) -> None:
    """`img_emb` and `metadata`, the files of test and validation named so."""
    counts = {"": size.rows, "_val": VALIDATION_PAIRS, "_test": size.images}
    for name in ("img_emb", "metadata"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    with bar("embeddings", sum(counts.values()), "row") as progress:
        for seed, (split, rows) in enumerate(counts.items()):
            for number, start in enumerate(range(0, rows, _FILE)):
                count, own = min(_FILE, rows - start), _seed(seed, start)
                captions = pa.concat_arrays([block[0] for block in _blocks(count, own)])
                paths = pa.array([f"{split}/{start + row:09d}.jpg" for row in range(count)])
                table = pa.table({"image_path": paths, "caption": captions})
                pq.write_table(table, folder / "metadata" / f"metadata{split}_{number}.parquet", row_group_size=_FILE)
                with atomic_file(folder / "img_emb" / f"img_emb{split}_{number}.npy") as path:
                    _write_vectors(path, count, own)
                progress.update(count)


def _seed(split: int, start: int) -> int:
    return split * 1_000_000_000 + start


def _write_vectors(path: Path, rows: int, seed: int) -> None:
    """Unit rows `[rows, DIM]` in float16."""
    rng = np.random.default_rng([seed, 1])
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f2", "fortran_order": False, "shape": (rows, DIM)})
        for start in range(0, rows, _BLOCK):
            drawn = rng.standard_normal((min(_BLOCK, rows - start), DIM), np.float32)
            drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
            file.write(drawn.astype("<f2").tobytes())


def write_replay(folder: Path, rows: int) -> None:
    """Answers to both tasks about every caption to train on, as the store exports them: sorted by task and key.

    Nothing where they are there already.
    """
    path = folder / _REPLAY
    if path.is_file():
        return
    unsorted = path.with_suffix(".unsorted")
    with pq.ParquetWriter(unsorted, EXPORT) as writer, bar("answers", rows, "caption") as progress:
        for start in range(0, rows, _FILE):
            for block in _blocks(min(_FILE, rows - start), _seed(0, start)):
                columns_read = [column.to_pylist() for column in block]
                for number, task in enumerate(_TASKS):
                    writer.write_batch(_answers(task, columns_read[number], columns_read[number + 1]))
                progress.update(len(columns_read[0]))
    limits = {"memory_limit": "2GB", "threads": 1, "temp_directory": f"{path}.spilled"}
    with duckdb.connect(config=limits) as connection:
        # Equal questions have one answer.
        connection.execute(
            f"copy (select distinct on (task, key) * from read_parquet('{unsorted}') order by task, key) "
            f"to '{path}.new' (format parquet, compression zstd)"
        )
    unsorted.unlink()
    Path(f"{path}.new").rename(path)


def _answers(task: str, texts: list[str], answers: list[str]) -> pa.RecordBatch:
    prompt, sampling = find_task(task), Sampling(0.9, 0.95, 40)
    (name,) = prompt.inputs
    requests = []
    for text in texts:
        messages = prompt.render({name: disarm(text)}, "own")
        chat = tuple((message["role"], message["content"]) for message in messages)
        requests.append(Request(task, chat, MODEL, sampling, 0))
    rows = len(requests)
    columns = {
        "key": [request.key for request in requests],
        "task": [task] * rows,
        "prompt_sha256": [request.prompt_sha256 for request in requests],
        "model": [MODEL] * rows,
        "sampling": [sampling.json] * rows,
        "attempt": [0] * rows,
        "answer": answers,
        "created": ["2026-01-01T00:00:00+00:00"] * rows,
    }
    return pa.RecordBatch.from_pydict(columns, schema=EXPORT)


def write_project(folder: Path, size: Size) -> None:
    """The settings of a project that reads these inputs, and the encoder that it begins with."""
    raw: dict[str, Any] = yaml.safe_load((_REPO / "params.yaml").read_text("utf-8"))
    inputs = folder.resolve() / "inputs"
    raw["dataset"] = {"name": "scale"}
    counts = {"train": size.rows, "val": VALIDATION_PAIRS, "test": size.images}
    raw["prepare"] = {"source": "embeddings", "folder": str(inputs), "counts": counts}
    # The vectors are drawn at random.
    raw["embed"]["check_given"] = False
    raw["base"] = {"source": "file", "model": "scale", "file": str(inputs / "encoder")}
    server = {"engine": "server", "urls": ["http://127.0.0.1:9/v1"], "model": MODEL}
    raw["synthesize"] |= {"llms": {MODEL: server}, "default_llm": MODEL, "max_captions": size.rows}
    raw["synthesize"]["cached_answers"] = str(folder.resolve() / _REPLAY)
    for task in raw["synthesize"]["tasks"].values():
        task |= {"samples": 1, "always_ask_first": 0}
    raw["validate"] |= {"check_scene_facts": False, "measure_similarity": False}
    raw["train"] |= {"checkpoint_every": size.steps, "validate_every": size.steps}
    # The run is ended after so many steps, long before so many epochs.
    epochs = 2 + size.steps * size.batch // size.rows
    raw["methods"]["paraclip"] |= {"batch_size": size.batch, "epochs": epochs}
    raw["evaluate"] |= {"benchmarks": ["paraphrased_retrieval", "retrieval"]}
    raw["promote"] |= {
        "guards": {"retrieval/t2i_recall_at_5": 0.01},
        "require_benchmarks": raw["evaluate"]["benchmarks"],
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(raw, sort_keys=False), "utf-8")
    Encoder.create("base", "scale", _ARCHITECTURE, "random").save(inputs / "encoder")
    write_json(folder / "size.json", vars(size))


def write_queries(folder: Path, size: Size) -> None:
    """Captions of test pairs with their paraphrases, in place of the tables that stage `prepare` has of all of them."""
    ids = pa.concat_tables(PAIRS.blocks(folder / "data" / "pairs" / "test.parquet", ["image_id", "caption"]))
    blocks, queries = list(_blocks(size.images, _seed(2, 0))), size.queries
    captions, paraphrases, _ = (pa.chunked_array(column).slice(0, queries) for column in zip(*blocks, strict=True))
    ids = ids.slice(0, queries)
    if not ids["caption"].equals(captions):
        raise RuntimeError("the test pairs stand in another order than their embeddings")
    columns = {"image_id": ids["image_id"].to_pylist(), "text": captions.to_pylist()}
    evaluation = folder / EVALUATION
    CAPTION_QUERIES.write(evaluation / "caption_queries.parquet", columns | {"register": ["plain"] * queries})
    columns = {"image_id": columns["image_id"], "query": columns["text"], "paraphrase": paraphrases.to_pylist()}
    columns |= {"tier": ["plain"] * queries, "held_out": ["pair"] * queries}
    PARAPHRASE_QUERIES.write(evaluation / "paraphrase_queries.parquet", columns)


def read_size(folder: Path) -> Size | None:
    """The size that the inputs in a folder were made for; None without inputs."""
    path = folder / "size.json"
    return Size(**json.loads(path.read_text("utf-8"))) if path.is_file() else None
