"""The image sets as test sets, whose content training must not contain."""

from __future__ import annotations

from functools import partial

from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import Tested, TestSet, TestSetFiles
from research.image_sets.image_set import ImageSetFacts, image_sets
from research.image_sets.reading import CLASS_NAMES, TEMPLATES, pc_clip_images, read_image_set


def image_set_files(facts: ImageSetFacts, what: str) -> tuple[RequiredFile, ...]:
    """The folder of an image set, and optional files in it."""
    optional = ((CLASS_NAMES, "one class name per line"), (TEMPLATES, "one prompt per line, {c} for the class"))
    return (
        RequiredFile(".", what, f"about {facts.size}", facts.licence, facts.source),
        *(RequiredFile(path, text, "1 kB", facts.licence, facts.source, optional=True) for path, text in optional),
    )


def _tested(files: TestSetFiles, facts: ImageSetFacts) -> Tested:
    return Tested(pictures=read_image_set(files, facts).pictures)


def _tested_pc_clip(files: TestSetFiles, facts: ImageSetFacts) -> Tested:
    """The images of a test split that PC-CLIP's code draws itself."""
    return Tested(pictures=pc_clip_images(files, facts).pictures)


TEST_SETS = (
    *(
        TestSet(
            f"zero_shot_{facts.name}", facts.name, image_set_files(facts, facts.title), partial(_tested, facts=facts)
        )
        for facts in image_sets().values()
    ),
    *(
        TestSet(
            f"zero_shot_{facts.name}_pc_clip_released", facts.name, image_set_files(facts, facts.title),
            partial(_tested_pc_clip, facts=facts),
        )
        for facts in image_sets().values() if facts.whole
    ),
)  # fmt: skip
