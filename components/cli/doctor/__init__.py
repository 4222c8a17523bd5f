"""The checks of `cliptune doctor`: of servers and stores, and of this machine."""

from __future__ import annotations

from collections.abc import Mapping

from components.cli.doctor import machine, servers
from components.cli.doctor.check import CheckFunction

CHECKS: Mapping[str, CheckFunction] = {
    "params.yaml": machine.check_params,
    "Prefect API": servers.check_prefect,
    "tracking": servers.check_tracking,
    "registry": servers.check_registry,
    "generation store": servers.check_generation_store,
    "LLM endpoint": servers.check_language_models,
    "GPU and driver": machine.check_gpu,
    "data": machine.check_data,
}
"""Title -> check, in the order of the table."""
