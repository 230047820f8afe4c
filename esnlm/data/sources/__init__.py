"""The data sources that `data.kind` can name, one line each."""

from esnlm.data.sources.base import CorpusSize, DataSource
from esnlm.data.sources.grammar import GrammarData
from esnlm.data.sources.imported import ImportedData
from esnlm.data.sources.store import StoreData

__all__ = ["SOURCES", "CorpusSize", "DataSource", "GrammarData", "ImportedData", "StoreData"]

SOURCES: dict[str, type[DataSource]] = {
    "store": StoreData,
    "grammar": GrammarData,
    "imported": ImportedData,
}
