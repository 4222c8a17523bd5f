"""Query expansion on COCO-P with a WordNet of a few synsets and paraphrases written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.core.system.errors import InputError
from components.core.tables.records import QUERY_PARAPHRASES
from components.evaluation.scoring.protocols.retrieval import synonym_expansions
from research.experiments.parts.wordnet import POS, read_wordnet
from tests.support.published import coco, refused, scored
from tests.unit.data.test_sets.writing import write_files

TABLE = dict.fromkeys(("a auto", "a motor car", "the thing", "one automobile", "some wheels"), (0, 1, 0))
TABLE["a car"] = (1, 0, 0)
NOUNS = [["car", "auto", "motor_car"], ["man"]]
SYNSETS = {"noun": NOUNS, "verb": [["run", "race"]], "adj": [["galore(ip)", "aplenty(ip)"]]}
METRICS = ("ao_at_1", "query_recall_at_1", "expanded_share")
LICENCE = "  1 This software and database is being provided to you\n"


def _wordnet(folder: Path) -> Path:
    """Write synsets as wndb(5WN) lays them out."""
    for pos in POS:
        data, index = LICENCE, ""
        for words in SYNSETS.get(pos, []):
            place = len(data.encode())
            members = " ".join(f"{word} 0" for word in words)
            data += f"{place:08d} 06 {pos[0]} {len(words):02x} {members} 000 | what it means\n"
            index += "".join(f"{word.partition('(')[0]} {pos[0]} 1 1 @ 1 1 {place:08d}  \n" for word in words)
        write_files(folder, {f"data.{pos}": data, f"index.{pos}": LICENCE + index})
    write_files(folder, {"noun.exc": "autos auto\nmen man\n"})
    return folder


PAIRS = {
    "coco_p.json": [{"image": "000000000001.png", "query": "a car", "paraphrase": "the thing"}],
    "val2017/000000000001.png": (255, 0, 0),
    "val2017/000000000002.png": (0, 255, 0),
}


def test_both_sources_by_hand(tmp_path: Path) -> None:
    """The query finds red; with two expansions out of three it finds green, as the paraphrase does."""
    write_files(tmp_path, PAIRS)
    _wordnet(tmp_path / "wordnet")
    texts: list[object] = ["one automobile", "one automobile", "some wheels"]
    columns = {"id": ["1"] * 3, "sample": [2, 1, 0], "query": ["a car"] * 3, "paraphrase": texts}
    QUERY_PARAPHRASES.write(tmp_path / "query_paraphrases.parquet", {**columns, "similarity": [0.9] * 3})
    found = scored("query_expansion", tmp_path, TABLE, ks=(1, 2)).values
    for source in ("wordnet", "paraphrases"):
        assert [found[f"{source}/{name}"] for name in METRICS] == [[1], [0], [1]], source
    once = scored("query_expansion", tmp_path, TABLE, ks=(1,), options={"expansions": 1}).values
    assert once["wordnet/ao_at_1"] == [0], "a tie, and red is the earlier image"


def test_expanded_captions_find_their_images_on_coco(tmp_path: Path) -> None:
    """The caption of the green image says red; with two green expansions of three it finds green.

    With one expansion both images are alike, and the earlier, which is red, comes first.
    """
    write_files(tmp_path, {
        "coco_test_karpathy.json": coco({"1.png": ["a red"], "2.png": ["a car"]}),
        "val2014/1.png": (255, 0, 0), "val2014/2.png": (0, 255, 0),
        "mine.json": {"a car": ["the thing", "some wheels"]},
    })  # fmt: skip
    for expansions, hits in ((3, [1, 1]), (1, [1, 0])):
        options = {"paraphrases": str(tmp_path / "mine.json"), "expansions": expansions}
        found = scored("query_expansion_coco", tmp_path, TABLE | {"a red": (1, 0, 0)}, ks=(1,), options=options).values
        assert found["paraphrases/text_to_image/recall_at_1"] == hits
        assert found["paraphrases/text_to_image/recall_at_5"] == [1, 1]
        assert found["paraphrases/expanded_share"] == [0, 1]


def test_paraphrases_from_a_json_and_files_laid_out_otherwise(tmp_path: Path) -> None:
    name, options = "query_expansion", {"paraphrases": str(tmp_path / "mine.json")}
    content: Any = {" a  car": ["one automobile", "some wheels"]}
    write_files(tmp_path, {**PAIRS, "mine.json": content})
    message = r"neither wordnet/ nor query_paraphrases.parquet.*validate@query_paraphrases"
    without = refused(name, tmp_path, message, TABLE, allow_partial=True)
    assert without.lists == {"queries": [("a car",), ("the thing",)]}
    found = scored(name, tmp_path, TABLE, ks=(1,), options=options)
    assert found.values["paraphrases/ao_at_1"] == [1]
    assert found.left_out == ["wordnet: no folder wordnet/"]
    for content in ("[]", '{"a car": "one automobile"}', "{"):
        write_files(tmp_path, {"mine.json": content})
        message = r"mine.json.*JSON object, text -> list of texts"
        refused(name, tmp_path, message, TABLE, allow_partial=True, options=options)
    message = "expansions=none: give a number"
    refused(name, tmp_path, message, TABLE, allow_partial=True, options={"expansions": "none"})


def test_synonyms_of_forms_and_compounds_and_a_damaged_wordnet(tmp_path: Path) -> None:
    wordnet = read_wordnet(_wordnet(tmp_path / "wordnet"))
    assert wordnet.synonyms("Car") == ["auto", "motor car"]
    assert wordnet.synonyms("autos") == ["car", "motor car"], "an irregular form"
    assert wordnet.synonyms("races") == ["run"], "a regular ending"
    assert wordnet.synonyms("galore") == ["aplenty"]
    assert wordnet.synonyms("men") == wordnet.synonyms("unheard") == []
    folder = _wordnet(tmp_path / "wordnet")
    for index, path, message in (
        ("car n 1 0 1 0 00000007\n", folder, r"data.noun does not fit index.noun"),
        ("car n one\n", folder, "is not a WordNet database"),
        ("car n one\n", tmp_path / "absent", "is not a WordNet database"),
    ):
        (folder / "index.noun").write_text(index)
        with pytest.raises(InputError, match=message):
            read_wordnet(path).synonyms("car")


def test_one_word_changes_and_stop_words_stay() -> None:
    def expansions(seed: int) -> list[str]:
        text, stop = "The dog, by the car.", {"the", "by"}
        return synonym_expansions(text, lambda word: [f"{word}-one", f"{word}-two"], stop, 3, seed)

    possible = {f"The {dog}, by the car." for dog in ("dog-one", "dog-two")}
    possible |= {f"The dog, by the {car}." for car in ("car-one", "car-two")}
    assert len(set(expansions(0))) == 3
    assert set(expansions(0)) <= possible
    assert expansions(0) == expansions(0)
    assert len({tuple(expansions(seed)) for seed in range(9)}) > 1
