"""The data of a model that was trained elsewhere: there is none."""

from typing import ClassVar

from esnlm.data.sources.base import DataSource
from esnlm.data.store import TokenStore
from esnlm.runs.directory import RunDirectory
from esnlm.settings import settings


@settings
class ImportedData(DataSource):
    """None: the model was trained elsewhere (`esnlm import`)."""

    kind: str = "imported"
    source: str = ""  # name of the folder that it came from

    has_corpus: ClassVar[bool] = False
    refusal: ClassVar[str] = "such a model has no text to train on; choose store or grammar"

    def open(self, directory: RunDirectory, seed: int) -> tuple[TokenStore, TokenStore | None]:
        self._refuse()
