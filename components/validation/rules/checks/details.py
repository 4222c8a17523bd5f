"""Finds details that a paraphrase adds or loses: colours, sizes, garments, breeds, materials, body parts, places.

A language model that rewrites a short caption often decorates it, or says less, and it does not see the picture. A word
of `_DETAILS` needs a word of the same group in the other text, or one of the group's evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from components.core.text.languages import words_of
from components.validation.rules.checks.numbers_and_names import find_lost_number

_DETAILS = {
    "colour": """red crimson scarlet maroon, blue navy turquoise, green, yellow gold golden blond blonde, orange, pink,
        purple violet, brown tan beige chestnut : wooden, black dark : night, white pale : snow snowy, grey gray silver,
        striped stripes, spotted spots, colorful colourful bright : colored coloured""",
    "size": """big large huge giant enormous massive : high deep adult, long : length, tall high : huge big,
        small little tiny miniature : young child kid toddler baby puppy boy girl kitten pup, short, deep, wide, thick,
        loose : off""",
    "garment": """shirt shirts t-shirt tee top blouse : shirtless, jacket jackets coat coats parka : vest,
        hat hats cap caps : helmet, helmet helmets, dress dresses gown skirt, shorts trunks : swimsuit,
        trousers pants jeans, swimsuit bikini : bathing swim trunks, uniform uniforms : team players, shoes boots
        sneakers, glasses goggles sunglasses, scarf, gloves, sweater hoodie, tie, mask, backpack : pack""",
    "breed": """terrier, labrador lab, retriever, poodle, collie, shepherd, dalmatian, husky, greyhound greyhounds
        whippet, pug, chihuahua, beagle, bulldog, dachshund, spaniel, boxer, rottweiler, doberman, corgi, mutt""",
    "material": """wooden wood : log logs tree, metal steel iron : rail rails bar, stone stones rocky rock rocks :
        boulder boulders cliff, brick bricks, glass, leather, plastic, concrete cement : sidewalk pavement,
        paper, marble""",
    "body": """hand hands : holding holds held, paw paws : legs feet hind, leg legs : hind standing, foot feet, head
        heads, mouth mouths : teeth tongue, arm arms, hair hairs curls : haired blond blonde, face faces, horn horns,
        tail tails, ear ears, eye eyes : looking looks watching, lap, shoulder shoulders, knee knees""",
    "place": """beach shore seashore coast seaside sea ocean sand sandy : surf surfer waves wave, park : playground
        skateboard, forest woods : trees tree wooded, street streets road highway roadway sidewalk pavement : curb path,
        city town urban : street downtown, field meadow pasture grass grassy lawn : yard, mountain mountains hill hills
        cliff slope mountainside hillside : rock ski, lake pond river stream creek : water, pool : swimming swimmer,
        house home : backyard yard porch, yard backyard garden : lawn, building buildings, room bedroom kitchen : bed
        couch, stage : band concert, court : tennis basketball, stadium arena : game, fence, bridge, snow snowy : ski
        skier sled snowboard snowboarder, ground floor, tree trees : forest woods wooded leafless""",
    "person": """man men guy guys gentleman male males : person people player skater someone boys adult rider surfer
        climber biker skateboarder snowboarder skier performer worker vendor couple dancer he his,
        woman women lady ladies female females : person people player someone dancer couple she her girl girls,
        boy boys lad lads : child children kid kids person people player toddler baby guy,
        girl girls : child children kid kids person people player toddler woman women lady ladies,
        child children kid kids toddler toddlers baby infant babies : boy boys girl girls,
        mother mom mum, father dad, friend friends, crowd audience spectators fans : people""",
}
"""Kind -> groups of words that mean about the same, separated by commas; words after a colon are only evidence."""


def find_lost_detail(text: str, source: str) -> str | None:
    """The kind of the first detail of `source` that `text` does not have; None without one.

    >>> find_lost_detail("a girl rides a sled", "a girl in purple rides a sled")
    'colour'
    """
    return _first_missing(source, text)


def find_added_detail(text: str, source: str) -> str | None:
    """The kind of the first detail of `text` that `source` does not have, or `number`; None without one.

    >>> find_added_detail("A guy stands in front of a tall building", "A man is standing before a building.")
    'size'
    >>> find_added_detail("a kid on a large couch", "a child on a big sofa") is None
    True
    """
    return _first_missing(text, source) or ("number" if find_lost_number(source, text) else None)


def _first_missing(text: str, other: str) -> str | None:
    has = set(_words(other))
    for word in _words(text):
        groups = _groups().get(word, ())
        if groups and not any(group & has for _, group in groups):
            return groups[0][0]
    return None


def _words(text: str) -> Iterator[str]:
    for word in words_of(text):
        yield word
        yield from word.split("-") if "-" in word else ()


@cache
def _groups() -> dict[str, list[tuple[str, frozenset[str]]]]:
    """Word -> the kinds and groups that it belongs to; a group holds its evidence too."""
    found: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for kind, groups in _DETAILS.items():
        for group in groups.split(","):
            words, _, evidence = group.partition(":")
            whole = frozenset([*words.split(), *evidence.split()])
            for word in words.split():
                found.setdefault(word, []).append((kind, whole))
    return found
