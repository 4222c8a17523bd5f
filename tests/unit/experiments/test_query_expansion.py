"""Query expansion on COCO-P with a WordNet of a few synsets and paraphrases written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.benchmarks.published import find_published
from components.benchmarks.scoring.protocols.retrieval import synonym_expansions
from components.core.system.errors import InputError
from components.core.tables.records import QUERY_PARAPHRASES
from components.experiments.parts.perturbations import POS, read_wordnet
from tests.support.toy_context import colour_image, toy_context

TABLE = {
    **{"a car": (1, 0, 0), "a auto": (0, 1, 0), "a motor car": (0, 1, 0)},
    **{"the thing": (0, 1, 0), "one automobile": (0, 1, 0), "some wheels": (0, 1, 0)},
}
SYNSETS = {
    "noun": [["car", "auto", "motor_car"], ["man"]],
    "verb": [["run", "race"]],
    "adj": [["galore(ip)", "aplenty(ip)"]],
}
LICENCE = "  1 This software and database is being provided to you\n"


def _wordnet(folder: Path) -> Path:
    """Write synsets as wndb(5WN) lays them out."""
    folder.mkdir()
    for pos in POS:
        data, index = LICENCE, ""
        for words in SYNSETS.get(pos, []):
            place = len(data.encode())
            members = " ".join(f"{word} 0" for word in words)
            data += f"{place:08d} 06 {pos[0]} {len(words):02x} {members} 000 | what it means\n"
            index += "".join(f"{word.partition('(')[0]} {pos[0]} 1 1 @ 1 1 {place:08d}  \n" for word in words)
        (folder / f"data.{pos}").write_text(data)
        (folder / f"index.{pos}").write_text(LICENCE + index)
    (folder / "noun.exc").write_text("autos auto\nmen man\n")
    return folder


def _pairs(folder: Path) -> None:
    row = {"image": "000000000001.png", "query": "a car", "paraphrase": "the thing"}
    (folder / "coco_p.json").write_text(json.dumps([row]))
    colour_image(folder / "val2017" / "000000000001.png", (255, 0, 0))
    colour_image(folder / "val2017" / "000000000002.png", (0, 255, 0))


def test_both_sources_by_hand(tmp_path: Path) -> None:
    """The query finds red; with two expansions out of three it finds green, as the paraphrase does."""
    _pairs(tmp_path)
    _wordnet(tmp_path / "wordnet")
    texts: list[object] = ["one automobile", "one automobile", "some wheels"]
    count = len(texts)
    columns = {"id": ["1"] * count, "sample": [2, 1, 0], "query": ["a car"] * count, "paraphrase": texts}
    QUERY_PARAPHRASES.write(tmp_path / "query_paraphrases.parquet", {**columns, "similarity": [0.9] * count})
    scores = find_published("query_expansion").score(toy_context(tmp_path, TABLE, allow_partial=True, ks=(1, 2)))
    for source in ("wordnet", "paraphrases"):
        named = {name.split("/")[-1]: found.tolist() for name, found in scores.values.items() if source in name}
        assert named["ao_at_1"] == [1]
        assert named["query_recall_at_1"] == [0]
        assert named["expanded_share"] == [1]
    once = toy_context(tmp_path, TABLE, allow_partial=True, ks=(1,), options={"expansions": 1})
    scores = find_published("query_expansion").score(once)
    assert scores.values["query_expansion/wordnet/ao_at_1"].tolist() == [0], "a tie, and red is the earlier image"


def test_expanded_captions_find_their_images_on_coco(tmp_path: Path) -> None:
    """The caption of the green image says red; with two green expansions of three it finds green."""
    content = {
        "images": [{"id": number, "file_name": f"{number}.png"} for number in (1, 2)],
        "annotations": [{"id": 1, "image_id": 1, "caption": "a red"}, {"id": 2, "image_id": 2, "caption": "a car"}],
    }
    (tmp_path / "coco_test_karpathy.json").write_text(json.dumps(content))
    colour_image(tmp_path / "val2014" / "1.png", (255, 0, 0))
    colour_image(tmp_path / "val2014" / "2.png", (0, 255, 0))
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"a car": ["the thing", "some wheels"]}))
    table = {**TABLE, "a red": (1, 0, 0)}
    name = "query_expansion_coco"
    options = {"paraphrases": str(path)}
    found = find_published(name).score(toy_context(tmp_path, table, allow_partial=True, ks=(1,), options=options))
    assert found.values[f"{name}/paraphrases/text_to_image/recall_at_1"].tolist() == [1, 1]
    assert found.values[f"{name}/paraphrases/text_to_image/recall_at_5"].tolist() == [1, 1]
    assert found.values[f"{name}/paraphrases/expanded_share"].tolist() == [0, 1]
    once = {**options, "expansions": 1}
    found = find_published(name).score(toy_context(tmp_path, table, allow_partial=True, ks=(1,), options=once))
    # One expansion of two leaves both images alike, and the earlier, which is red, comes first.
    assert found.values[f"{name}/paraphrases/text_to_image/recall_at_1"].tolist() == [1, 0]


def test_paraphrases_from_a_json_and_files_laid_out_otherwise(tmp_path: Path) -> None:
    _pairs(tmp_path)
    benchmark, path = find_published("query_expansion"), tmp_path / "mine.json"
    without = toy_context(tmp_path, TABLE, allow_partial=True)
    with pytest.raises(InputError, match=r"neither wordnet/ nor query_paraphrases.parquet.*validate@query_paraphrases"):
        benchmark.score(without)
    assert without.lists == {"queries": [("a car",), ("the thing",)]}
    path.write_text(json.dumps({" a  car": ["one automobile", "some wheels"]}))
    context = toy_context(tmp_path, TABLE, allow_partial=True, ks=(1,), options={"paraphrases": str(path)})
    assert benchmark.score(context).values["query_expansion/paraphrases/ao_at_1"].tolist() == [1]
    assert context.left_out == ["wordnet: no folder wordnet/"]
    for content in ("[]", '{"a car": "one automobile"}', "{"):
        path.write_text(content)
        with pytest.raises(InputError, match=r"mine.json.*JSON object, text -> list of texts"):
            benchmark.score(context)
    with pytest.raises(InputError, match="expansions=none: give a number"):
        benchmark.score(toy_context(tmp_path, TABLE, allow_partial=True, options={"expansions": "none"}))


def test_synonyms_of_forms_and_compounds(tmp_path: Path) -> None:
    wordnet = read_wordnet(_wordnet(tmp_path / "wordnet"))
    assert wordnet.synonyms("Car") == ["auto", "motor car"]
    assert wordnet.synonyms("autos") == ["car", "motor car"], "an irregular form"
    assert wordnet.synonyms("races") == ["run"], "a regular ending"
    assert wordnet.synonyms("galore") == ["aplenty"]
    assert wordnet.synonyms("men") == wordnet.synonyms("unheard") == []


def test_a_wordnet_that_is_damaged_is_refused(tmp_path: Path) -> None:
    folder = _wordnet(tmp_path / "wordnet")
    (folder / "index.noun").write_text("car n 1 0 1 0 00000007\n")
    with pytest.raises(InputError, match=r"data.noun does not fit index.noun"):
        read_wordnet(folder).synonyms("car")
    (folder / "index.noun").write_text("car n one\n")
    for path in (folder, tmp_path / "absent"):
        with pytest.raises(InputError, match="is not a WordNet database"):
            read_wordnet(path)


def test_one_word_changes_and_stop_words_stay() -> None:
    def synonyms(word: str) -> list[str]:
        return [f"{word}-one", f"{word}-two"]

    expansions = synonym_expansions("The dog, by the car.", synonyms, {"the", "by"}, 3, seed=0)
    possible = {f"The {dog}, by the car." for dog in ("dog-one", "dog-two")}
    possible |= {f"The dog, by the {car}." for car in ("car-one", "car-two")}
    assert len(set(expansions)) == 3
    assert set(expansions) <= possible
    assert expansions == synonym_expansions("The dog, by the car.", synonyms, {"the", "by"}, 3, seed=0)
    draws = {tuple(synonym_expansions("The dog, by the car.", synonyms, {"the", "by"}, 3, seed)) for seed in range(9)}
    assert len(draws) > 1
