"""The stages of streams."""

from typing import NoReturn

from flambeau import _missing
from flambeau.utils.data.datapipes.iter.combinatorics import (
    SamplerIterDataPipe as Sampler,
)
from flambeau.utils.data.datapipes.iter.combinatorics import (
    ShufflerIterDataPipe as Shuffler,
)
from flambeau.utils.data.datapipes.iter.combining import (
    ConcaterIterDataPipe as Concater,
)
from flambeau.utils.data.datapipes.iter.combining import (
    DemultiplexerIterDataPipe as Demultiplexer,
)
from flambeau.utils.data.datapipes.iter.combining import (
    ForkerIterDataPipe as Forker,
)
from flambeau.utils.data.datapipes.iter.combining import (
    MultiplexerIterDataPipe as Multiplexer,
)
from flambeau.utils.data.datapipes.iter.combining import (
    ZipperIterDataPipe as Zipper,
)
from flambeau.utils.data.datapipes.iter.files import (
    FileListerIterDataPipe as FileLister,
)
from flambeau.utils.data.datapipes.iter.files import (
    FileOpenerIterDataPipe as FileOpener,
)
from flambeau.utils.data.datapipes.iter.files import (
    RoutedDecoderIterDataPipe as RoutedDecoder,
)
from flambeau.utils.data.datapipes.iter.files import (
    StreamReaderIterDataPipe as StreamReader,
)
from flambeau.utils.data.datapipes.iter.grouping import (
    BatcherIterDataPipe as Batcher,
)
from flambeau.utils.data.datapipes.iter.grouping import (
    GrouperIterDataPipe as Grouper,
)
from flambeau.utils.data.datapipes.iter.grouping import (
    UnBatcherIterDataPipe as UnBatcher,
)
from flambeau.utils.data.datapipes.iter.sharding import (
    ShardingFilterIterDataPipe as ShardingFilter,
)
from flambeau.utils.data.datapipes.iter.transforming import (
    CollatorIterDataPipe as Collator,
)
from flambeau.utils.data.datapipes.iter.transforming import (
    FilterIterDataPipe as Filter,
)
from flambeau.utils.data.datapipes.iter.transforming import (
    IterableWrapperIterDataPipe as IterableWrapper,
)
from flambeau.utils.data.datapipes.iter.transforming import (
    MapperIterDataPipe as Mapper,
)

__all__ = [
    "Batcher",
    "Collator",
    "Concater",
    "Demultiplexer",
    "FileLister",
    "FileOpener",
    "Filter",
    "Forker",
    "Grouper",
    "IterableWrapper",
    "Mapper",
    "Multiplexer",
    "RoutedDecoder",
    "Sampler",
    "ShardingFilter",
    "Shuffler",
    "StreamReader",
    "UnBatcher",
    "Zipper",
]


def __getattr__(name: str) -> NoReturn:
    raise _missing.attribute_error(__name__, name)
