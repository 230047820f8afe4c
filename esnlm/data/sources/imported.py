"""The empty data section of a model that was trained elsewhere."""

from typing import ClassVar

from esnlm.data.sources.base import DataSource
from esnlm.data.store import TokenStore
from esnlm.runs.directory import RunDirectory
from esnlm.settings import settings


@settings
class ImportedData(DataSource):
    """No data: the model was trained elsewhere (`esnlm import`)."""

    kind: str = "imported"
    source: str = ""  # name of the imported folder

    has_corpus: ClassVar[bool] = False
    refusal: ClassVar[str] = "an imported model has no training text; choose store or grammar"

    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        self._refuse()
