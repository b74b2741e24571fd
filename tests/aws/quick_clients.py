"""boto3's clients at a third of the price: what is the same in all clients of a service is made once a process."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import botocore.args
import botocore.client
import botocore.regions
import botocore.useragent
import pytest
from botocore.endpoint_provider import EndpointProvider


@contextmanager
def shared() -> Iterator[None]:
    """Models, classes and endpoint rules of services are shared; a client and its events stay its own."""
    creator = botocore.client.ClientCreator
    load, make_class, make_rules = creator._load_service_model, creator._create_client_class, EndpointProvider
    models: dict[Any, Any] = {}
    classes: dict[str, type] = {}

    def model(self: Any, service_name: str, api_version: str | None = None) -> Any:
        name = (service_name, api_version)
        if name not in models:
            models[name] = load(self, service_name, api_version)
        return models[name]

    def client_class(self: Any, service_name: str, service_model: Any) -> type:
        if service_name not in classes:
            classes[service_name] = make_class(self, service_name, service_model)
        return classes[service_name]

    rules: dict[int, Any] = {}

    def provider(*, ruleset_data: Any, **others: Any) -> Any:
        # What is kept beside the rules is theirs alone: other data has another id.
        if id(ruleset_data) not in rules:
            rules[id(ruleset_data)] = ruleset_data, make_rules(ruleset_data=ruleset_data, **others)
        return rules[id(ruleset_data)][1]

    clean = functools.lru_cache(4096)(botocore.useragent.sanitize_user_agent_string_component)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(creator, "_load_service_model", model)
        patch.setattr(creator, "_create_client_class", client_class)
        patch.setattr(botocore.regions, "EndpointProvider", provider)
        patch.setattr(botocore.useragent, "sanitize_user_agent_string_component", clean)
        yield
