"""The data sources for `data.kind`, one line each."""

from pkgutil import resolve_name

from esnlm.data.sources.base import CorpusSize, DataSource

__all__ = ["SOURCES", "CorpusSize", "DataSource"]

SOURCES: dict[str, type[DataSource]] = {
    kind: resolve_name(source)
    for kind, source in {
        "store": "esnlm.data.sources.store:StoreData",
        "grammar": "esnlm.data.sources.grammar:GrammarData",
        "given": "esnlm.data.sources.given:GivenData",
        "imported": "esnlm.data.sources.imported:ImportedData",
    }.items()
}
