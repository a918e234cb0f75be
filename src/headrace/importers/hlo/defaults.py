"""Attributes that say nothing: text spells them and artifacts leave them out, or the other
way round."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.importers.hlo.tree import HloModule, HloOperation, HloRegion

_WITHOUT_MEANING = ("api_version", "result_accuracy")
"""Accuracy is what the target gives: never less than the default asks for."""
_WITHOUT_MEANING_WHEN_EMPTY = ("infeed_config", "outfeed_config")


def drop_defaults(module: HloModule) -> None:
    """Takes attributes without meaning out of a verified module, in place."""
    for function in module.functions:
        for operation in _operations(function.body):
            for name in _WITHOUT_MEANING:
                operation.attributes.pop(name, None)
            for name in _WITHOUT_MEANING_WHEN_EMPTY:
                if operation.attributes.get(name) == "":
                    del operation.attributes[name]


def _operations(region: HloRegion) -> Iterator[HloOperation]:
    for operation in region.operations:
        yield operation
        for inner in operation.regions:
            yield from _operations(inner)
