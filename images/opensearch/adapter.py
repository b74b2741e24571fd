"""The client of OpenSearch; not tried here."""

from http_adapters.opensearch import OpenSearch

ENGINE = OpenSearch
