"""YAML in which a key stands once."""

from __future__ import annotations

from typing import Any

import yaml


class StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which would let the last of two equal keys win."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """As the safe loader; raises `yaml.YAMLError` for a key that is written twice."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                raise yaml.YAMLError(
                    f"key '{key.value}' stands twice, in lines {lines[key.value]} and {line}: keep one"
                )
            lines[key.value] = line
        return node
