"""The client of Elasticsearch; not tried here."""

from http_adapters.opensearch import Elasticsearch

ENGINE = Elasticsearch
